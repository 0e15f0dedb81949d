// SPDX-License-Identifier: Apache-2.0

#include "core/steps/sequences.hpp"

#include <algorithm>

namespace quire {

namespace {

constexpr uint32_t kForkAhead = 24;  // block records that a fork prefetches

}  // namespace

Status Sequences::no_sequence_left() const {
    if (books_.handles.worn_out()) {
        return fail(QUIRE_E_LIMIT, "the process has used up its sequence handles");
    }
    return fail(QUIRE_E_LIMIT, "{} sequences and leases are alive: end one, or raise max_sequences",
                books_.handles.capacity());
}

Status Sequences::create(const quire_seq_desc &desc, const quire_key *keys, uint64_t *out) {
    uint32_t ns = desc.ns == 0 ? Namespaces::kDefault : books_.namespaces.find(desc.ns);
    if (ns == kNone) return fail(QUIRE_E_STALE, "no such namespace");
    if (books_.journal.leases_only()) {
        return fail(QUIRE_E_UNSUPPORTED, "QUIRE_CACHE_LEASES_ONLY: the cache has no sequences");
    }
    if (desc.cross_tokens != 0 && !books_.geometry.any_cross) {
        return fail(QUIRE_E_ARG, "cross_tokens is {}: the cache has no cross group",
                    desc.cross_tokens);
    }
    if (desc.cross_tokens > books_.geometry.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "cross_tokens {} are more than max_sequence_tokens {}",
                    desc.cross_tokens, books_.geometry.max_sequence_tokens);
    }
    Sequence fresh{};
    fresh.name_space = ns;
    fresh.priority = desc.priority;
    fresh.cross_tokens = desc.cross_tokens;
    return enter(fresh, keys, desc.key_count, out);
}

Status Sequences::enter(Sequence fresh, const quire_key *keys, uint32_t key_count, uint64_t *out) {
    QUIRE_TRY(check_keys(keys, key_count));
    if (books_.handles.full()) return no_sequence_left();
    QUIRE_TRY(tenants_.use_keys(keys, key_count, &fresh));
    Status fits = tenants_.fit_account(fresh.name_space);
    HandleType type = fresh.is_lease ? HandleType::lease : HandleType::sequence;
    uint32_t index = fits.ok() ? books_.handles.take(type) : HandleTable::kNone;
    if (index == HandleTable::kNone) {
        tenants_.end_keys(fresh);
        return fits.ok() ? no_sequence_left() : fits;
    }
    fresh.state.cursor = books_.journal.tree().root_cursor(fresh.root);
    books_.sequences[index] = fresh;
    books_.touched.touch(index);
    ++books_.namespaces[fresh.name_space].sequences;
    *out = books_.handles.handle(index);
    return Status{};
}

Status Sequences::end(uint64_t handle, uint32_t flags) {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_idle_sequence(handle, &index));
    if ((flags & ~uint32_t{QUIRE_END_DROP_PREFIX}) != 0) {
        return fail(QUIRE_E_ARG, "flags {} are not known", flags);
    }
    if ((flags & QUIRE_END_DROP_PREFIX) != 0) QUIRE_TRY(withdrawal_.drop_published(index));
    leave(index);
    return Status{};
}

void Sequences::leave(uint32_t index) {
    Sequence &s = books_.sequences[index];
    retreat_.release_from(index, 0, kNone);
    tenants_.end_keys(s);
    books_.token_pages.release(&s.tokens);
    books_.journal.buffers().give_back(&s.tree);
    books_.journal.buffers().give_back(&s.moves);
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(index, g);
        books_.journal.buffers().give_back(&t.ids);
        t.length = t.null_front = 0;  // the new epoch tells batch rows that the next one differs
        ++t.epoch;
    }
    --books_.namespaces[s.name_space].sequences;
    books_.touched.touch(index);
    books_.handles.end(index);
    s = Sequence{};
}

// Makes the child's tables name the parent's blocks, and freezes the slots that both can read. The
// namespace pays for the shared blocks as for blocks of its own, and the blocks that an abort may
// bring back to it have to fit too.
Status Sequences::share_tables(uint32_t parent, uint32_t child, uint32_t computed) {
    Sequence &s = books_.sequences[child];
    const Namespace &ns = books_.namespaces[s.name_space];
    uint64_t shared = 0;
    auto length = [&](uint32_t g) {
        return computed != 0 ? books_.geometry.table_length(g, computed, s.cross_tokens) : 0;
    };
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        uint32_t null_front = books_.journal.table(parent, g).null_front;
        if (null_front > length(g)) null_front = length(g);
        shared += books_.geometry.groups[g].held_entries(length(g), null_front);
        if (!books_.journal.buffers().grow(&books_.journal.table(child, g).ids, length(g), 0))
            return no_host_memory();
    }
    uint64_t held = ns.blocks_held + ns.returned + ns.given_up + shared;
    if (ns.quota_blocks != 0 && held > ns.quota_blocks) {
        return fail(QUIRE_E_LIMIT,
                    "the namespace's quota is {} blocks, and with the fork it would hold {}",
                    ns.quota_blocks, held);
    }
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        uint32_t blocks = length(g);
        const BlockSize size = books_.geometry.groups[g].size;
        BlockTable &from = books_.journal.table(parent, g);
        BlockTable &to = books_.journal.table(child, g);
        from.writable = kNone;
        for (uint32_t i = 0; i < blocks; ++i) {
            if (i + kForkAhead < blocks)
                books_.journal.pool(g).prefetch(from.ids.data[i + kForkAhead]);
            uint32_t block = from.ids.data[i];
            books_.journal.append_entry(&s, child, g, block);
            if (block == kNullBlock) continue;
            books_.journal.add_ref(g, block);
            if (books_.geometry.groups[g].cross) continue;
            uint32_t readable = computed - size.first_token(i);
            if (readable > size.tokens()) readable = size.tokens();
            Block &b = books_.journal.pool(g)[block];
            if (b.frozen_slots < readable) b.frozen_slots = static_cast<uint16_t>(readable);
        }
        ++to.epoch;
    }
    tenants_.charge(s, 0);
    return Status{};
}

// Gives a fork its parent's keys and state, as far as its first `token_count` tokens go, `computed`
// of which it shares.
void Sequences::inherit(uint32_t parent, uint32_t child, uint32_t token_count, uint32_t computed) {
    Sequence &p = books_.sequences[parent];
    Sequence &s = books_.sequences[child];
    s.root = p.root;
    s.scope = p.scope;
    books_.journal.tree().scopes().use(s.root);
    if (s.scope != kNone) books_.journal.tree().scopes().use(s.scope);
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
    s.state.admitted = computed != 0 ? ++books_.admissions : 0;
    prefixes_.rewind_cursor(child);
    for (uint32_t i = 0; i < kMaxUnfinished; ++i) {
        if (p.pending_step[i] != 0 && p.pending_position[i] < computed) {
            s.note_pending(p.pending_step[i], p.pending_position[i]);
        }
    }
}

Status Sequences::fork(uint64_t handle, uint32_t token_count, uint64_t *out) {
    uint32_t parent = 0;
    QUIRE_TRY(books_.find_idle_sequence(handle, &parent));
    Sequence &p = books_.sequences[parent];
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
    bool ok = books_.token_pages.share(&p.tokens, token_count, &fresh.tokens);
    uint32_t child = ok ? books_.handles.take() : HandleTable::kNone;
    if (child == HandleTable::kNone) {
        books_.token_pages.release(&fresh.tokens);
        if (!ok) return no_host_memory();
        return no_sequence_left();
    }
    uint32_t computed = p.state.computed < token_count ? p.state.computed : token_count;
    // Tokens that are still to be moved lie only where the parent will move them from.
    if (p.state.move_count != 0 && p.state.move_begin < computed) computed = p.state.move_begin;
    computed = retreat_.whole_window_length(parent, computed);
    fresh.cross_tokens = p.cross_tokens;
    fresh.name_space = p.name_space;
    books_.sequences[child] = fresh;
    Status shared = share_tables(parent, child, computed);
    if (!shared.ok()) {
        books_.token_pages.release(&fresh.tokens);
        books_.sequences[child] = Sequence{};
        books_.handles.end(child);
        return shared;
    }
    inherit(parent, child, token_count, computed);
    books_.touched.touch(child);
    ++books_.namespaces[p.name_space].sequences;
    ++books_.counts.forks;
    *out = books_.handles.handle(child);
    return Status{};
}

Status Sequences::truncate(uint64_t handle, uint32_t token_count) {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_idle_sequence(handle, &index));
    Sequence &s = books_.sequences[index];
    if (token_count > s.state.known) {
        return fail(QUIRE_E_ARG, "token_count is {}: the sequence has {} known tokens", token_count,
                    s.state.known);
    }
    uint32_t firm = s.state.known - s.state.drafts;
    s.state.drafts = token_count > firm ? token_count - firm : 0;
    s.state.known = token_count;
    s.state.lookahead = 0;
    if (s.state.first_unknown >= token_count) s.state.first_unknown = kNone;
    retreat_.lower_computed(index, token_count, kNone);
    withdrawal_.unpublish_tail(index);
    return Status{};
}

// Moves first_unknown on, now that the span is named.
inline void Sequences::find_next_unknown(const quire_token_span &span, Sequence *s) const {
    uint32_t &unknown = s->state.first_unknown;
    if (unknown == span.position) unknown += span.token_count;
    if (unknown < s->state.known)
        unknown = books_.token_pages.find_unknown_in(s->tokens, unknown, s->state.known);
    if (unknown >= s->state.known) unknown = kNone;
}

Status Sequences::set_tokens(const uint8_t *spans, uint32_t count, uint32_t stride,
                             const quire_token *tokens, uint32_t token_count) {
    CacheBooks &books = books_;  // a local one need not be read again after each write
    auto span_at = [&](uint32_t i) -> const quire_token_span & {
        return *reinterpret_cast<const quire_token_span *>(spans + uint64_t{i} * stride);
    };
    auto check_span = [&](uint32_t i, uint32_t *sequence) -> Status {
        const quire_token_span &span = span_at(i);
        *sequence = books.handles.find(span.seq);
        if (*sequence == HandleTable::kNone)
            return fail(QUIRE_E_STALE, "spans[{}]: no such sequence in this cache", i);
        if (books.sequences[*sequence].change != kNone) {
            return books.find_idle_sequence(span.seq, sequence);
        }
        const Sequence &s = books.sequences[*sequence];
        if (span.reserved0 != 0) return fail(QUIRE_E_STRUCT, "spans[{}].reserved0 is not 0", i);
        if (uint64_t{span.token_offset} + span.token_count > token_count) {
            return fail(QUIRE_E_ARG, "spans[{}] reaches past the {} tokens given", i, token_count);
        }
        if (uint64_t{span.position} + span.token_count > s.state.known) {
            return fail(QUIRE_E_ARG, "spans[{}] reaches past the {} known tokens", i,
                        s.state.known);
        }
        for (uint32_t k = 0; k < span.token_count; ++k) {
            if (*books.token_pages.at(s.tokens, span.position + k) != QUIRE_TOKEN_UNKNOWN) {
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
        if (checked.ok() &&
            !books.token_pages.prepare(&books.sequences[index].tokens, span_at(i).position,
                                       span_at(i).position + span_at(i).token_count)) {
            checked = no_host_memory();
        }
        if (!checked.ok()) {
            while (i-- > 0) {
                const quire_token_span &span = span_at(i);
                KnownTokens *own = &books.sequences[books.handles.find(span.seq)].tokens;
                books.token_pages.fill_unknown(own, span.position,
                                               span.position + span.token_count);
            }
            return checked;
        }
        const quire_token_span &span = span_at(i);
        prefixes_.forget_waiting(span.seq);
        books.token_pages.write(&books.sequences[index].tokens, span.position,
                                tokens + span.token_offset, span.token_count);
    }
    for (uint32_t i = 0; i < count; ++i) {
        const quire_token_span &span = span_at(i);
        uint32_t index = books.handles.find(span.seq);
        Sequence &s = books.sequences[index];
        find_next_unknown(span, &s);
        if (s.publishable(books.geometry.span) <= s.state.published) continue;
        prefixes_.note_named(index);
        prefixes_.publish(index, s.last_step);
    }
    return Status{};
}

Status Sequences::info(uint64_t handle, quire_seq_info *out) const {
    uint32_t index = 0;
    QUIRE_TRY(books_.find_sequence(handle, &index));
    const Sequence &s = books_.sequences[index];
    out->flags =
        (s.state.flags & ~Sequence::kLent) | (s.change != kNone ? uint32_t{QUIRE_SEQ_IN_STEP} : 0u);
    out->known_tokens = s.state.known;
    out->computed_tokens = s.state.computed;
    out->draft_tokens = s.state.drafts;
    out->lookahead_tokens = s.state.lookahead;
    out->blocks_held = (s.state.flags & Sequence::kSwapped) != 0 ? 0 : s.blocks_held;
    out->preemptions = s.state.preemptions;
    out->priority = s.priority;
    return Status{};
}

Status Sequences::blocks(uint64_t step, uint64_t seq, uint32_t group, uint32_t first, int32_t *ids,
                         uint32_t capacity, uint32_t *count) {
    StepRecord *record = nullptr;
    if (step != 0) QUIRE_TRY(books_.records.find(step, false, &record));
    uint32_t index = 0;
    QUIRE_TRY(books_.find_sequence(seq, &index));
    if (group >= books_.geometry.group_count) {
        return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group,
                    books_.geometry.group_count);
    }
    const BlockTable &t = books_.journal.table(index, group);
    bool swapped = (books_.sequences[index].state.flags & Sequence::kSwapped) != 0;
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
