// SPDX-License-Identifier: Apache-2.0
//
// The life of sequences: create, end, fork, truncate, set_tokens.

#include <algorithm>

#include "core/cache.hpp"

namespace quire {

namespace {

constexpr uint32_t kReleaseAhead = 24;  // block records that a release or a fork prefetches

}  // namespace

Status Cache::no_sequence_left() const {
    if (sequence_handles_.worn_out()) {
        return fail(QUIRE_E_LIMIT, "the process has used up its sequence handles");
    }
    return fail(QUIRE_E_LIMIT, "{} sequences are alive: end one, or raise max_sequences",
                sequence_handles_.capacity());
}

Status Cache::create_sequence(const quire_seq_desc &desc, const quire_key *keys, uint64_t *out) {
    uint32_t ns = desc.ns == 0 ? Namespaces::kDefault : namespaces_.find(desc.ns);
    if (ns == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    if (desc.cross_tokens != 0 && !geometry_.any_cross) {
        return fail(QUIRE_E_ARG, "cross_tokens is {}: the cache has no cross group",
                    desc.cross_tokens);
    }
    if (desc.cross_tokens > geometry_.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "cross_tokens {} are more than max_sequence_tokens {}",
                    desc.cross_tokens, geometry_.max_sequence_tokens);
    }
    QUIRE_TRY(check_keys(keys, desc.key_count));
    if (sequence_handles_.full()) return no_sequence_left();
    Sequence fresh{};
    fresh.name_space = ns;
    QUIRE_TRY(use_keys(keys, desc.key_count, &fresh));
    Status fits = fit_account(ns);
    uint32_t index = fits.ok() ? sequence_handles_.take() : HandleTable::kNone;
    if (index == HandleTable::kNone) {
        end_keys(fresh);
        return fits.ok() ? no_sequence_left() : fits;
    }
    fresh.priority = desc.priority;
    fresh.cross_tokens = desc.cross_tokens;
    fresh.state.cursor = journal_.tree().root_cursor(fresh.root);
    sequences_[index] = fresh;
    leader_.touch(index);
    ++namespaces_[ns].sequences;
    *out = sequence_handles_.handle(index);
    return Status{};
}

// Blocks on the device that count against the namespace's quota.
uint32_t Cache::charged(const Sequence &s) const {
    return (s.state.flags & Sequence::kSwapped) != 0 ? 0 : s.blocks_held;
}

void Cache::charge(const Sequence &s, uint32_t charged_before) {
    Namespace &ns = namespaces_[s.name_space];
    ns.blocks_held += charged(s);
    ns.blocks_held -= charged_before;
}

// Charges a change whose sequence now holds more or fewer blocks. No other sequence may count on
// the blocks given back while the change can be undone.
void Cache::charge_change(Change *change, uint32_t charged_before) {
    const Sequence &s = sequences_[change->sequence];
    charge(s, charged_before);
    uint32_t now = charged(s);
    change->returned = now < charged_before ? charged_before - now : 0;
    Namespace &ns = namespaces_[s.name_space];
    (change->kind == ChangeKind::victim ? ns.given_up : ns.returned) += change->returned;
}

// Called when the change is final or about to be undone. REQUIRES: it is an item or a victim.
void Cache::settle_returned(const Change &change) {
    Namespace &ns = namespaces_[sequences_[change.sequence].name_space];
    (change.kind == ChangeKind::victim ? ns.given_up : ns.returned) -= change.returned;
}

// Gives back a table's blocks from `first_block` on, the tail first. Published blocks from
// `first_wrong` on are withdrawn; kNone if none of them is wrong.
void Cache::release_from(uint32_t sequence, uint32_t first_block, uint32_t first_wrong) {
    Sequence &s = sequences_[sequence];
    uint32_t charged_before = charged(s);
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        BlockTable &t = journal_.table(sequence, g);
        t.writable = kNone;
        if (t.length <= first_block || (geometry_.groups[g].cross && first_block != 0)) continue;
        for (uint32_t i = t.length; i-- > first_block;) {
            uint32_t block = t.ids.data[i];
            if (i >= kReleaseAhead && !swapped)
                journal_.pool(g).prefetch(t.ids.data[i - kReleaseAhead]);
            if (block == kNullBlock) continue;
            --s.blocks_held;
            if (swapped) {
                journal_.drop_host(g, block, s.last_step);
                continue;
            }
            uint32_t node = journal_.pool(g)[block].node;
            if (i >= first_wrong && node != kNone) journal_.forget(node);
            journal_.drop_ref(g, block, s.last_step);
            journal_.disown(g, block, sequence);
        }
        t.length = first_block;
        if (t.null_front > first_block) t.null_front = first_block;
        ++t.epoch;
    }
    charge(s, charged_before);
}

// The longest length up to token_count whose windows are whole. Shortening for one group may break
// another's window, so all groups are asked until none shortens it.
uint32_t Cache::whole_window_length(uint32_t sequence, uint32_t token_count) {
    for (uint32_t g = 0; g < geometry_.group_count;) {
        uint32_t null_front = journal_.table(sequence, g).null_front;
        uint32_t whole =
            geometry_.groups[g].longest_whole(token_count, null_front, geometry_.block_tokens);
        g = whole == token_count ? g + 1 : 0;
        token_count = whole;
    }
    return token_count;
}

// Sets the cursor to the last published block that still exists.
void Cache::rewind_cursor(uint32_t sequence) {
    Sequence &s = sequences_[sequence];
    uint32_t full = s.state.computed >> geometry_.block_shift;
    if (s.state.published <= full) return;
    s.state.published = full;
    if (full != 0 && (s.state.flags & Sequence::kSwapped) == 0) {
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            if (geometry_.groups[g].cross) continue;
            const BlockTable &t = journal_.table(sequence, g);
            uint32_t block = t.ids.data[full - 1];
            uint32_t node = block != kNullBlock ? journal_.pool(g)[block].node : kNone;
            if (node == kNone) continue;
            s.state.cursor = journal_.tree().cursor(node);
            return;
        }
    }
    s.state.published = 0;  // walked again from the root at the next publication
    s.state.cursor = journal_.tree().root_cursor(s.root);
}

// Tokens from `wrong_from` on were computed wrongly. An incomplete window may take away more tokens
// than are wrong; those stay published for other sequences to find.
void Cache::lower_computed(uint32_t sequence, uint32_t token_count, uint32_t wrong_from) {
    Sequence &s = sequences_[sequence];
    uint32_t computed = s.state.computed < token_count ? s.state.computed : token_count;
    s.state.computed = whole_window_length(sequence, computed);
    s.trim_pending(s.state.computed);
    leader_.touch(sequence);
    s.trim_moves(s.state.computed);
    uint32_t first_wrong = wrong_from == kNone ? kNone : wrong_from >> geometry_.block_shift;
    release_from(sequence, geometry_.blocks_of(s.covered()), first_wrong);
    rewind_cursor(sequence);
    // With nothing computed, the host tier holds nothing, and nothing is left of old weights.
    if (s.state.computed == 0) s.state.flags &= ~(Sequence::kSwapped | Sequence::kUnpublished);
}

// A published tail is copied before more is written to it. If the sequence holds every block of the
// pool, no block for the copy would ever come free: so the tail is withdrawn and written in place.
void Cache::unpublish_tail(uint32_t sequence) {
    const Sequence &s = sequences_[sequence];
    if ((s.state.computed & (geometry_.block_tokens - 1)) == 0) return;
    if ((s.state.flags & Sequence::kSwapped) != 0) return;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const BlockTable &t = journal_.table(sequence, g);
        const BlockPool &pool = journal_.pool(g);
        bool is_alone =
            pool.held_count() == geometry_.groups[g].held_entries(t.length, t.null_front);
        if (geometry_.groups[g].cross || !is_alone || pool.available(kNoBarrier) != 0) continue;
        const Block &b = pool[t.ids.data[s.state.computed >> geometry_.block_shift]];
        if (b.node == kNone || b.refs != 1) continue;
        if (geometry_.any_full || !journal_.tree().has_children(b.node)) journal_.forget(b.node);
    }
}

// True if another sequence holds a block that the node for this one's block `index` names.
bool Cache::used_by_others(uint32_t sequence, uint32_t index, uint32_t node) const {
    bool swapped = (sequences_[sequence].state.flags & Sequence::kSwapped) != 0;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        uint32_t named = journal_.tree().blocks(node)[g];
        if (named == kNullBlock) continue;
        const BlockTable &t = journal_.table(sequence, g);
        bool own = !swapped && index < t.length && t.ids.data[index] == named;
        if (journal_.pool(g)[named].refs > (own ? 1u : 0u)) return true;
    }
    return false;
}

// Forgets the nodes on the path of the sequence's tokens that no other sequence uses, including
// those whose blocks it gave back because they were past its window, swapped or preempted.
Status Cache::drop_published(uint32_t sequence) {
    const Sequence &s = sequences_[sequence];
    if (prefix_off_ || s.cross_tokens != 0) return Status{};
    uint32_t settled = s.state.known - s.state.drafts;
    if (s.state.first_unknown < settled) settled = s.state.first_unknown;
    if (!hash_blocks(s, settled >> geometry_.block_shift)) return no_host_memory();
    PrefixTree &tree = journal_.tree();
    uint64_t compared = tree.bytes_compared();
    uint32_t found = match(s, hashed_, kAnyQueue);
    tree.set_bytes_compared(compared);
    hashed_ = 0;
    drop_unreachable(sequence, found);
    while (found-- > 0) {
        uint32_t node = matches_[found];
        // The tail goes first, and may have removed its bare ancestors with it.
        if (!tree.in_use(node) || used_by_others(sequence, found, node)) continue;
        if (geometry_.any_full) {
            journal_.forget(node);
        } else {
            journal_.strip(node);
        }
    }
    return Status{};
}

// Forgets nodes of the sequence's blocks from `first` on, which no walk from the root reaches.
void Cache::drop_unreachable(uint32_t sequence, uint32_t first) {
    if ((sequences_[sequence].state.flags & Sequence::kSwapped) != 0) return;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const BlockTable &t = journal_.table(sequence, g);
        for (uint32_t i = t.length; i-- > first;) {
            if (t.ids.data[i] == kNullBlock) continue;
            uint32_t node = journal_.pool(g)[t.ids.data[i]].node;
            if (node != kNone && !used_by_others(sequence, i, node)) journal_.forget(node);
        }
    }
}

Status Cache::end_sequence(uint64_t handle, uint32_t flags) {
    uint32_t index = 0;
    QUIRE_TRY(find_idle_sequence(handle, &index));
    if ((flags & ~uint32_t{QUIRE_END_DROP_PREFIX}) != 0) {
        return fail(QUIRE_E_ARG, "flags {} are not known", flags);
    }
    Sequence &s = sequences_[index];
    if ((flags & QUIRE_END_DROP_PREFIX) != 0) QUIRE_TRY(drop_published(index));
    release_from(index, 0, kNone);
    end_keys(s);
    token_pages_.release(&s.tokens);
    journal_.buffers().give_back(&s.tree);
    journal_.buffers().give_back(&s.moves);
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        BlockTable &t = journal_.table(index, g);
        journal_.buffers().give_back(&t.ids);
        t.length = t.null_front = 0;  // the new epoch tells batch rows that the next one differs
        ++t.epoch;
    }
    --namespaces_[s.name_space].sequences;
    leader_.touch(index);
    sequence_handles_.end(index);
    s = Sequence{};
    return Status{};
}

// Makes the child's tables name the parent's blocks, and freezes the slots that both can read. The
// namespace pays for the shared blocks as for blocks of its own, and the blocks that an abort may
// bring back to it have to fit too.
Status Cache::share_tables(uint32_t parent, uint32_t child, uint32_t computed) {
    Sequence &s = sequences_[child];
    const Namespace &ns = namespaces_[s.name_space];
    uint64_t shared = 0;
    auto length = [&](uint32_t g) {
        return computed != 0 ? geometry_.table_length(g, computed, s.cross_tokens) : 0;
    };
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        uint32_t null_front = journal_.table(parent, g).null_front;
        if (null_front > length(g)) null_front = length(g);
        shared += geometry_.groups[g].held_entries(length(g), null_front);
        if (!journal_.buffers().grow(&journal_.table(child, g).ids, length(g), 0))
            return no_host_memory();
    }
    uint64_t held = ns.blocks_held + ns.returned + ns.given_up + shared;
    if (ns.quota_blocks != 0 && held > ns.quota_blocks) {
        return fail(QUIRE_E_LIMIT,
                    "the namespace's quota is {} blocks, and with the fork it would hold {}",
                    ns.quota_blocks, held);
    }
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        uint32_t blocks = length(g);
        BlockTable &from = journal_.table(parent, g);
        BlockTable &to = journal_.table(child, g);
        from.writable = kNone;
        for (uint32_t i = 0; i < blocks; ++i) {
            if (i + kReleaseAhead < blocks)
                journal_.pool(g).prefetch(from.ids.data[i + kReleaseAhead]);
            uint32_t block = from.ids.data[i];
            journal_.append_entry(&s, child, g, block);
            if (block == kNullBlock) continue;
            journal_.add_ref(g, block);
            if (geometry_.groups[g].cross) continue;
            uint32_t readable = computed - (i << geometry_.block_shift);
            if (readable > geometry_.block_tokens) readable = geometry_.block_tokens;
            Block &b = journal_.pool(g)[block];
            if (b.frozen_slots < readable) b.frozen_slots = static_cast<uint16_t>(readable);
        }
        ++to.epoch;
    }
    charge(s, 0);
    return Status{};
}

Status Cache::fork_sequence(uint64_t handle, uint32_t token_count, uint64_t *out) {
    uint32_t parent = 0;
    QUIRE_TRY(find_idle_sequence(handle, &parent));
    Sequence &p = sequences_[parent];
    if ((p.state.flags & Sequence::kSwapped) != 0) {
        return fail(QUIRE_E_BUSY, "the sequence is swapped out: add it to a step first");
    }
    if (p.state.drafts != 0) {
        return fail(QUIRE_E_BUSY, "the sequence has drafts: accept them first");
    }
    if (token_count > p.state.known) {
        return fail(QUIRE_E_ARG, "token_count is {}: the sequence has {} known tokens", token_count,
                    p.state.known);
    }
    Sequence fresh{};
    bool ok = token_pages_.share(&p.tokens, token_count, &fresh.tokens);
    uint32_t child = ok ? sequence_handles_.take() : HandleTable::kNone;
    if (child == HandleTable::kNone) {
        token_pages_.release(&fresh.tokens);
        if (!ok) return no_host_memory();
        return no_sequence_left();
    }
    uint32_t computed = p.state.computed < token_count ? p.state.computed : token_count;
    // Tokens that are still to be moved lie only where the parent will move them from.
    if (p.state.move_count != 0 && p.state.move_begin < computed) computed = p.state.move_begin;
    computed = whole_window_length(parent, computed);
    fresh.cross_tokens = p.cross_tokens;
    fresh.name_space = p.name_space;
    sequences_[child] = fresh;
    Status shared = share_tables(parent, child, computed);
    if (!shared.ok()) {
        token_pages_.release(&fresh.tokens);
        sequences_[child] = Sequence{};
        sequence_handles_.end(child);
        return shared;
    }
    Sequence &s = sequences_[child];
    s.root = p.root;
    s.scope = p.scope;
    journal_.tree().scopes().use(s.root);
    if (s.scope != kNone) journal_.tree().scopes().use(s.scope);
    s.priority = p.priority;
    s.last_step = p.last_step;
    s.state = p.state;
    s.state.known = token_count;
    s.state.computed = computed;
    s.state.lookahead = 0;
    s.state.move_count = 0;
    s.state.preemptions = 0;
    s.state.flags = computed != 0 ? p.state.flags & Sequence::kUnpublished : 0;
    if (s.state.first_unknown >= token_count) s.state.first_unknown = kNone;
    s.lent_from = p.lent_from = std::min(p.lent_from, s.state.first_unknown);
    s.state.admitted = computed != 0 ? ++admissions_ : 0;
    rewind_cursor(child);
    for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
        if (p.pending_step[i] != 0 && p.pending_position[i] < computed) {
            s.note_pending(p.pending_step[i], p.pending_position[i]);
        }
    }
    leader_.touch(child);
    ++namespaces_[s.name_space].sequences;
    ++counts_.forks;
    *out = sequence_handles_.handle(child);
    return Status{};
}

Status Cache::truncate(uint64_t handle, uint32_t token_count) {
    uint32_t index = 0;
    QUIRE_TRY(find_idle_sequence(handle, &index));
    Sequence &s = sequences_[index];
    if (token_count > s.state.known) {
        return fail(QUIRE_E_ARG, "token_count is {}: the sequence has {} known tokens", token_count,
                    s.state.known);
    }
    uint32_t firm = s.state.known - s.state.drafts;
    s.state.drafts = token_count > firm ? token_count - firm : 0;
    s.state.known = token_count;
    s.state.lookahead = 0;
    if (s.state.first_unknown >= token_count) s.state.first_unknown = kNone;
    lower_computed(index, token_count, kNone);
    unpublish_tail(index);
    return Status{};
}

Status Cache::set_tokens(const uint8_t *spans, uint32_t count, uint32_t stride,
                         const quire_token *tokens, uint32_t token_count) {
    auto span_at = [&](uint32_t i) -> const quire_token_span & {
        return *reinterpret_cast<const quire_token_span *>(spans + uint64_t{i} * stride);
    };
    auto check_span = [&](uint32_t i, uint32_t *sequence) -> Status {
        const quire_token_span &span = span_at(i);
        *sequence = sequence_handles_.find(span.seq);
        if (*sequence == HandleTable::kNone || sequences_[*sequence].change != kNone) {
            return find_idle_sequence(span.seq, sequence);
        }
        const Sequence &s = sequences_[*sequence];
        if (span.reserved0 != 0) return fail(QUIRE_E_STRUCT, "spans[{}].reserved0 is not 0", i);
        if (uint64_t{span.token_offset} + span.token_count > token_count) {
            return fail(QUIRE_E_ARG, "spans[{}] reaches past the {} tokens given", i, token_count);
        }
        if (uint64_t{span.position} + span.token_count > s.state.known) {
            return fail(QUIRE_E_ARG, "spans[{}] reaches past the {} known tokens", i,
                        s.state.known);
        }
        for (uint32_t k = 0; k < span.token_count; ++k) {
            if (*token_pages_.at(s.tokens, span.position + k) != QUIRE_TOKEN_UNKNOWN) {
                return fail(QUIRE_E_ARG, "spans[{}]: position {} is known already", i,
                            span.position + k);
            }
            if (tokens[span.token_offset + k] == QUIRE_TOKEN_UNKNOWN) {
                return fail(QUIRE_E_ARG, "spans[{}] names position {} as unknown", i,
                            span.position + k);
            }
        }
        return Status{};
    };
    // Each span is written once it is checked, so a later one for the same position is refused.
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t index = 0;
        Status checked = check_span(i, &index);
        if (checked.ok() && !token_pages_.prepare(&sequences_[index].tokens, span_at(i).position,
                                                  span_at(i).position + span_at(i).token_count)) {
            checked = no_host_memory();
        }
        if (!checked.ok()) {
            while (i-- > 0) {
                const quire_token_span &span = span_at(i);
                KnownTokens *own = &sequences_[sequence_handles_.find(span.seq)].tokens;
                token_pages_.fill_unknown(own, span.position, span.position + span.token_count);
            }
            return checked;
        }
        const quire_token_span &span = span_at(i);
        if (waiting_.handle == span.seq) waiting_ = Waiting{};
        token_pages_.write(&sequences_[index].tokens, span.position, tokens + span.token_offset,
                           span.token_count);
    }
    for (uint32_t i = 0; i < count; ++i) {
        uint32_t index = sequence_handles_.find(span_at(i).seq);
        Sequence &s = sequences_[index];
        uint32_t &unknown = s.state.first_unknown;
        if (unknown < s.state.known)
            unknown = token_pages_.find_unknown_in(s.tokens, unknown, s.state.known);
        if (unknown >= s.state.known) unknown = kNone;
        if (s.publishable(geometry_.block_shift) <= s.state.published) continue;
        note_named(index);
        publish(index, s.last_step);
    }
    return Status{};
}

Status Cache::sequence_info(uint64_t handle, quire_seq_info *out) const {
    uint32_t index = 0;
    QUIRE_TRY(find_sequence(handle, &index));
    const Sequence &s = sequences_[index];
    out->flags = s.state.flags | (s.change != kNone ? uint32_t{QUIRE_SEQ_IN_STEP} : 0u);
    out->known_tokens = s.state.known;
    out->computed_tokens = s.state.computed;
    out->draft_tokens = s.state.drafts;
    out->lookahead_tokens = s.state.lookahead;
    out->blocks_held = (s.state.flags & Sequence::kSwapped) != 0 ? 0 : s.blocks_held;
    out->preemptions = s.state.preemptions;
    out->priority = s.priority;
    return Status{};
}

Status Cache::blocks(uint64_t step, uint64_t seq, uint32_t group, uint32_t first, int32_t *ids,
                     uint32_t capacity, uint32_t *count) {
    StepRecord *record = nullptr;
    if (step != 0) QUIRE_TRY(find_step(step, false, &record));
    uint32_t index = 0;
    QUIRE_TRY(find_sequence(seq, &index));
    if (group >= geometry_.group_count) {
        return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group, geometry_.group_count);
    }
    const BlockTable &t = journal_.table(index, group);
    bool swapped = (sequences_[index].state.flags & Sequence::kSwapped) != 0;
    uint32_t length = swapped ? 0 : t.length;
    if (first > length)
        return fail(QUIRE_E_ARG, "first is {}: the table has {} blocks", first, length);
    uint32_t written = length - first < capacity ? length - first : capacity;
    if (written != 0) std::memcpy(ids, t.ids.data + first, uint64_t{written} * 4);
    *count = length;
    return Status{
        length - first > capacity ? quire_status{QUIRE_S_INCOMPLETE} : quire_status{QUIRE_OK},
        nullptr, 0, 0};
}

}  // namespace quire
