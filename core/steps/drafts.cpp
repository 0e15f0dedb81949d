// SPDX-License-Identifier: Apache-2.0

#include "core/steps/drafts.hpp"

namespace quire {

Status Drafts::accept(uint64_t handle, uint32_t count) {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_idle_sequence(handle, &index));
    Sequence &s = books_.sequences[index];
    SequenceState &state = s.state;
    if (count > state.drafts + state.lookahead) {
        return fail(QUIRE_E_ARG, "count is {}: the last item had {} drafts and lookahead", count,
                    state.drafts + state.lookahead);
    }
    if (count > state.drafts && books_.geometry.any_recurrent) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "count is {}, with lookahead: a recurrent group has no state after that",
                    count);
    }
    if ((state.flags & Sequence::kSwapped) != 0) {
        return fail(QUIRE_E_BUSY, "the sequence is swapped out: add it to a step first");
    }
    for (uint32_t i = 0; state.drafts_are_tree && i < count && i < state.drafts; ++i) {
        if (s.tree.data[i] == (i != 0 ? i - 1 : QUIRE_MASK_ROOT)) continue;
        return fail(QUIRE_E_ARG,
                    "draft {} is not a child of the one before it: accept a path through the tree "
                    "with quire_seq_accept_path",
                    i);
    }
    uint32_t known = state.known - state.drafts + count;
    if (known > state.known) {
        if (!books_.token_pages.prepare(&s.tokens, state.known, known)) return no_host_memory();
        books_.token_pages.fill_unknown(&s.tokens, state.known, known);
        if (state.first_unknown == kNone) state.first_unknown = state.known;
        if (state.computed == state.known) state.computed = known;
    }
    state.known = known;
    state.drafts = 0;
    state.lookahead = 0;
    if (state.first_unknown >= known) state.first_unknown = kNone;
    retreat_.lower_computed(index, known, kNone);
    prefixes_.note_named(index);
    prefixes_.publish(index, s.last_step);
    return Status{};
}

// Checks that the path exists in the drafts' tree or chain.
Status Drafts::check_path(const Sequence &s, const uint32_t *path, uint32_t count) const {
    const SequenceState &state = s.state;
    for (uint32_t i = 0; i < count; ++i) {
        if (path[i] >= state.drafts || (i != 0 && path[i] <= path[i - 1])) {
            return fail(
                QUIRE_E_ARG,
                i == 0 ? "path[{}] is {}: must be the index of a draft"
                       : "path[{}] is {}: must be the index of a draft, above the previous one",
                i, path[i]);
        }
        uint32_t before = i != 0 ? path[i - 1] : QUIRE_MASK_ROOT;
        bool follows = state.drafts_are_tree ? s.tree.data[path[i]] == before : path[i] == i;
        if (!follows) {
            return fail(QUIRE_E_ARG,
                        "path[{}] is {}: this draft must see exactly the path's earlier drafts and "
                        "all tokens before the drafts",
                        i, path[i]);
        }
    }
    return Status{};
}

Status Drafts::accept_path(uint64_t handle, const uint32_t *path, uint32_t count) {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_idle_sequence(handle, &index));
    Sequence &s = books_.sequences[index];
    if ((s.state.flags & Sequence::kSwapped) != 0) {
        return fail(QUIRE_E_BUSY, "the sequence is swapped out: add it to a step first");
    }
    if (s.state.drafts == 0) {
        if (count == 0) return Status{};
        return fail(QUIRE_E_ARG, "count is {}: the sequence has no drafts to keep", count);
    }
    QUIRE_TRY(check_path(s, path, count));
    uint32_t in_place = 0;
    while (in_place < count && path[in_place] == in_place) ++in_place;
    uint32_t moved = count - in_place;
    if (moved != 0 && !books_.can_move) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the backend cannot move tokens: only the first {} of the path are in place; "
                    "accept those",
                    in_place);
    }
    BufferPool &buffers = books_.journal.buffers();
    SequenceState &state = s.state;
    uint32_t base = state.known - state.drafts;
    if (!buffers.grow(&s.moves, moved, 0) ||
        !books_.token_pages.prepare(&s.tokens, base + in_place, base + count)) {
        return no_host_memory();
    }
    for (uint32_t i = in_place; i < count; ++i) {
        s.moves.data[i - in_place] = base + path[i];
        uint32_t token = *books_.token_pages.at(s.tokens, base + path[i]);
        books_.token_pages.write(&s.tokens, base + i, &token, 1);
    }
    state.known = base + count;
    state.drafts = state.lookahead = 0;
    if (state.first_unknown >= base) {
        uint32_t unknown = books_.token_pages.find_unknown_in(s.tokens, base, base + count);
        state.first_unknown = unknown < state.known ? unknown : kNone;
    }
    state.move_begin = base + in_place;
    state.move_count = moved;
    retreat_.lower_computed(index, state.known, kNone);
    prefixes_.note_named(index);
    prefixes_.publish(index, s.last_step);
    return Status{};
}

}  // namespace quire
