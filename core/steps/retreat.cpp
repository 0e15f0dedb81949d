// SPDX-License-Identifier: Apache-2.0

#include "core/steps/retreat.hpp"

#include <algorithm>

namespace quire {

namespace {

constexpr uint32_t kReleaseAhead = 24;  // block records that a release prefetches

}  // namespace

void Retreat::release_from(uint32_t sequence, uint32_t token_count, uint32_t wrong_from) {
    Sequence &s = books_.sequences[sequence];
    uint32_t charged_before = s.charged();
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        BlockTable &t = books_.journal.table(sequence, g);
        t.writable = kNone;
        uint32_t first_block = group.size.blocks_of(token_count);
        uint32_t first_wrong = wrong_from == kNone ? kNone : group.size.block_of(wrong_from);
        if (t.length <= first_block || (group.cross && first_block != 0)) continue;
        const BlockPool &pool = books_.journal.pool(g);
        for (uint32_t i = t.length; i-- > first_block;) {
            uint32_t block = t.ids.data[i];
            if (i >= kReleaseAhead && !swapped) pool.prefetch(t.ids.data[i - kReleaseAhead]);
            if (block == kNullBlock) continue;
            --s.blocks_held;
            if (swapped) {
                books_.journal.drop_host(g, block, s.last_step);
                continue;
            }
            if (i >= first_wrong && pool[block].node != kNone)
                books_.journal.forget(pool[block].node);
            books_.journal.drop_ref(g, block, s.last_step);
            books_.journal.disown(g, block, sequence);
        }
        t.length = first_block;
        if (t.null_front > first_block) t.null_front = first_block;
        ++t.epoch;
    }
    tenants_.charge(s, charged_before);
}

// Shortening for one group may break
// another's window, so all groups are asked until none shortens it.
uint32_t Retreat::whole_window_length(uint32_t sequence, uint32_t token_count) {
    const uint32_t computed = books_.sequences[sequence].state.computed;
    for (uint32_t g = 0; g < books_.geometry.group_count;) {
        uint32_t null_front = books_.journal.table(sequence, g).null_front;
        uint32_t whole = books_.geometry.groups[g].longest_whole(token_count, null_front, computed);
        g = whole == token_count ? g + 1 : 0;
        token_count = whole;
    }
    return token_count;
}

void Retreat::lower_computed(uint32_t sequence, uint32_t token_count, uint32_t wrong_from) {
    Sequence &s = books_.sequences[sequence];
    uint32_t computed = s.state.computed < token_count ? s.state.computed : token_count;
    s.state.computed = whole_window_length(sequence, computed);
    s.fewest_computed = std::min(s.fewest_computed, s.state.computed);
    s.trim_pending(s.state.computed);
    books_.touched.touch(sequence);
    s.trim_moves(s.state.computed);
    release_from(sequence, s.covered(), wrong_from);
    prefixes_.rewind_cursor(sequence);
    // With nothing computed, the host tier holds nothing, and nothing is left of old weights.
    if (s.state.computed == 0) s.state.flags &= ~(Sequence::kSwapped | Sequence::kUnpublished);
}

}  // namespace quire
