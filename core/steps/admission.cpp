// SPDX-License-Identifier: Apache-2.0

#include "core/steps/admission.hpp"

namespace quire {

namespace {

// True if the item asks for nothing but that its tokens are computed, as most decode steps do.
bool is_plain(const quire_step_item &item) {
    return (item.flags | item.draft_count | item.max_compute | item.lookahead | item.mask_kind |
            item.mask_rows | item.mask_offset) == 0;
}

}  // namespace

// True if tokens of the item may be taken back after they were computed.
bool Admission::may_go_back(const quire_step_item &item) const {
    return item.draft_count != 0 || item.mask_kind != QUIRE_MASK_NONE ||
           (item.lookahead != 0 && books_.geometry.any_dense);
}

// Checks everything that a plain item lacks. known: the sequence's tokens with the item's.
Status Admission::check_wishes(const ItemList &list, uint32_t i, uint32_t known,
                               uint32_t computed) const {
    const quire_step_item &item = list.item(i);
    if ((item.flags & ~uint32_t{QUIRE_ITEM_MAY_LOAD}) != 0) {
        return fail(QUIRE_E_STRUCT, "items[{}].flags {} has a bit that this version does not know",
                    i, item.flags);
    }
    if (books_.geometry.any_recurrent && may_go_back(item)) [[unlikely]] {
        return fail(QUIRE_E_UNSUPPORTED,
                    "items[{}] has drafts, a mask, or lookahead without a state_interval: the "
                    "state of a recurrent group after a token cannot be had back",
                    i);
    }
    if (item.draft_count > item.token_count) {
        return fail(QUIRE_E_ARG, "items[{}].draft_count {} is above its token_count", i,
                    item.draft_count);
    }
    if (item.draft_count != 0 && item.max_compute != 0 && item.max_compute < known - computed) {
        return fail(QUIRE_E_ARG, "items[{}].max_compute {} would leave drafts uncomputed", i,
                    item.max_compute);
    }
    return check_mask(item, i, list.tokens, list.token_count, known, computed);
}

Status Admission::check_item(const ItemList &list, uint32_t i, uint32_t *sequence) {
    CacheBooks &books = books_;
    const quire_step_item &item = list.item(i);
    *sequence = books.handles.find(item.seq);
    if (*sequence == HandleTable::kNone) {
        return fail(QUIRE_E_STALE,
                    "items[{}]: no such sequence: it was ended, or belongs to another cache", i);
    }
    const Sequence &s = books.sequences[*sequence];
    const SequenceState &state = s.state;
    bool preempted_now =
        s.change != kNone && books.records.open().changes[s.change].kind == ChangeKind::victim;
    if (s.marked == books.call || (s.change != kNone && !preempted_now)) {
        return fail(QUIRE_E_BUSY, "items[{}]: the sequence is already in the step", i);
    }
    if (uint64_t{item.token_offset} + item.token_count > list.token_count) {
        return fail(QUIRE_E_ARG, "items[{}] reaches past the {} tokens given", i, list.token_count);
    }
    if ((state.flags & Sequence::kLent) != 0) [[unlikely]]
        return fail(QUIRE_E_BUSY, "items[{}]: the sequence is being exported or handed over", i);
    if (state.drafts != 0) {
        return fail(QUIRE_E_BUSY,
                    "items[{}]: {} drafts were not accepted: call quire_seq_accept or _accept_path",
                    i, state.drafts);
    }
    uint64_t known = uint64_t{state.known} + item.token_count;
    if (known + item.lookahead > books.geometry.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "items[{}] grows past max_sequence_tokens {}", i,
                    books.geometry.max_sequence_tokens);
    }
    if (known == state.computed) return fail(QUIRE_E_ARG, "items[{}] has nothing to compute", i);
    if (!is_plain(item))
        QUIRE_TRY(check_wishes(list, i, static_cast<uint32_t>(known), state.computed));
    if (books.is_unfinished_elsewhere(s)) {
        return fail(QUIRE_E_BUSY, "items[{}]: the sequence's step on another queue is not finished",
                    i);
    }
    return Status{};
}

[[gnu::always_inline]] inline Status Admission::mark_items(const ItemList &list) {
    CacheBooks &books = books_;
    if (list.count > books.handles.capacity()) {
        return fail(QUIRE_E_ARG, "{} items are more than the {} sequences that a cache may have",
                    list.count, books.handles.capacity());
    }
    ++books.call;
    for (uint32_t i = 0; i < list.count; ++i) {
        uint32_t sequence = 0;
        QUIRE_TRY(check_item(list, i, &sequence));
        books.sequences[sequence].marked = books.call;
    }
    return Status{};
}

// True if this is the item that had to wait last, with the same tokens.
bool Admission::has_waited(const quire_step_item &item, const Sequence &s,
                           const quire_token *tokens) const {
    const Waiting &waiting = prefixes_.waiting();
    return waiting.handle == item.seq && waiting.known == s.state.known &&
           waiting.token_count == item.token_count &&
           books_.token_pages.equal(s.tokens, s.state.known, tokens, item.token_count);
}

// Looks up what is on the device already. Called when nothing of the sequence is on the device.
Status Admission::find_prefix(Plan *plan, bool has_waited, bool may_load) {
    Sequence &s = books_.sequences[plan->sequence];
    if (books_.prefix_off || (s.state.flags & Sequence::kUnpublished) != 0 || s.cross_tokens != 0) {
        return Status{};
    }
    uint32_t settled = plan->swapped ? s.state.computed : plan->known - 1;
    if (s.state.first_unknown < settled) settled = s.state.first_unknown;
    if (plan->lookup_end < settled) settled = plan->lookup_end;
    uint32_t blocks = books_.geometry.span.block_of(settled);
    if (has_waited && prefixes_.waiting().blocks == blocks) {
        plan->found = prefixes_.waiting_lookup();
    } else {
        if (!prefixes_.hash(s, blocks, &plan->found)) return no_host_memory();
        books_.counts.bytes_hashed += uint64_t{blocks} * books_.geometry.span.tokens() * 4;
    }
    prefixes_.match(s, books_.records.open().queue, &plan->found);
    if (plan->swapped) {
        plan->hit_blocks =
            plan->found.matched;  // any of them may stand in for its copy in the host tier
        return Status{};
    }
    plan->query_tokens = settled;
    plan->hit_blocks = prefixes_.best_hit(plan->found);
    if (may_load && books_.loads.is_open()) [[unlikely]]
        find_load(blocks, plan);
    plan->position = books_.geometry.span.first_token(plan->loaded_blocks != 0 ? plan->loaded_blocks
                                                                               : plan->hit_blocks);
    if (books_.geometry.partial_hits && plan->loaded_blocks == 0 && !plan->is_loading) {
        plan->part_tokens = prefixes_.find_part(s, plan->hit_blocks, settled,
                                                books_.records.open().queue, plan->found);
        plan->position += plan->part_tokens;
        plan->hit_blocks += plan->part_tokens != 0 ? 1 : 0;
    }
    return Status{};
}

// Looks for a load that brings more than the device has, or begins one. blocks: how many of the
// item may be found.
void Admission::find_load(uint32_t blocks, Plan *plan) {
    const Sequence &s = books_.sequences[plan->sequence];
    const LoadRequest request{&s,
                              plan->sequence,
                              books_.handles.handle(plan->sequence),
                              blocks,
                              plan->hit_blocks,
                              plan->found.nodes,
                              plan->found.matched,
                              false};
    const uint64_t drops = books_.journal.drops();
    LoadAdvice advice = books_.loads.consult(request, books_.call, &plan->load);
    plan->is_loading = advice == LoadAdvice::wait;
    if (plan->is_loading) return;
    if (books_.journal.drops() != drops) {  // some of what was found made room for a load
        prefixes_.match(s, books_.records.open().queue, &plan->found);
        plan->hit_blocks = prefixes_.best_hit(plan->found);
    }
    if (advice != LoadAdvice::use) return;
    const uint32_t length = plan->load->length < blocks ? plan->load->length : blocks;
    if (length <= plan->hit_blocks) return;
    // Any of the blocks that the device has may stand in for the load's.
    plan->loaded_blocks = length;
    plan->hit_blocks = plan->found.matched < length ? plan->found.matched : length;
}

// Makes room for everything that taking the plan writes, so that it cannot fail half-way.
Status Admission::reserve(Plan *plan) {
    Sequence &s = books_.sequences[plan->sequence];
    for (uint32_t g = 0; plan->takes && g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(plan->sequence, g);
        if (!books_.journal.buffers().grow(&t.ids, plan->length[g], t.length))
            return no_host_memory();
    }
    if (!books_.journal.buffers().grow(&s.tree, plan->drafts, 0)) return no_host_memory();
    Room room = taking_.take_room(*plan) +
                prefixes_.publish_room(plan->sequence, uint64_t{plan->position} + plan->compute,
                                       plan->swapped || plan->loaded_blocks != 0);
    if (!books_.records.reserve(1, room.edits, room.copies, 0)) return no_host_memory();
    plan->reserved = books_.records.open().used() + room;
    return Status{};
}

// Adds the item's tokens to the known tokens, then works out what the item needs.
Status Admission::make_plan(const quire_step_item &item, const quire_token *tokens,
                            uint32_t sequence, Plan *plan) {
    Sequence &s = books_.sequences[sequence];
    bool waited = has_waited(item, s, tokens);
    if (waited) {
        s.state.known += item.token_count;
        s.state.first_unknown = prefixes_.waiting().first_unknown;
    } else {
        taking_.note_tokens(item, tokens, &s);
    }
    plan->sequence = sequence;
    plan->known = s.state.known;
    plan->position = s.state.computed;
    plan->lookahead = item.lookahead;
    plan->drafts = item.mask_kind != QUIRE_MASK_NONE ? item.draft_count : 0;
    // Masked tokens are computed together. Drafts found by lookup could be taken for accepted.
    plan->lookup_end = first_masked(item, plan->known);
    if (item.draft_count > plan->known - plan->lookup_end) {
        plan->lookup_end = plan->known - item.draft_count;
    }
    plan->hit_blocks = plan->part_tokens = plan->query_tokens = plan->loaded_blocks = 0;
    plan->load = nullptr;
    plan->is_loading = false;
    plan->swapped = (s.state.flags & Sequence::kSwapped) != 0;
    plan->admission = s.state.computed == 0 || plan->swapped;
    uint32_t most = item.max_hit_tokens == QUIRE_NO_HITS ? 0 : item.max_hit_tokens;
    bool is_limited = item.max_hit_tokens != 0 && !plan->swapped;
    if (is_limited && most < plan->lookup_end) plan->lookup_end = most;
    plan->reuses = false;
    bool may_load = (item.flags & QUIRE_ITEM_MAY_LOAD) != 0;
    if (plan->admission) QUIRE_TRY(find_prefix(plan, waited, may_load));
    if (plan->is_loading) return Status{};
    measure(item, plan);
    return Status{};
}

// Works out what the plan takes, from its position.
void Admission::measure(const quire_step_item &item, Plan *plan) {
    uint32_t left = plan->known - plan->position;
    plan->compute = item.max_compute != 0 && item.max_compute < left ? item.max_compute : left;
    needs_.measure(plan);
}

// True for almost every decode step: its tokens are appended in blocks that the sequence is writing
// already, and fill none. It takes nothing and publishes nothing.
bool Admission::stays_in_place(const quire_step_item &item, uint32_t sequence) const {
    const CacheBooks &books = books_;
    const SequenceState &state = books.sequences[sequence].state;
    if (state.computed == 0 || (state.flags & Sequence::kSwapped) != 0) return false;
    if ((state.move_count | item.max_compute | item.lookahead | item.mask_kind) != 0) return false;
    uint32_t end = state.known + item.token_count;
    for (uint32_t g = 0; g < books.geometry.group_count; ++g) {
        const GroupGeometry &group = books.geometry.groups[g];
        if (group.cross) continue;
        const uint32_t block = books.journal.table(sequence, g).writable;
        const uint32_t first = group.size.first_token(block);
        if (block == kNone || state.computed < first) return false;
        if (end - first >= group.size.tokens()) return false;
    }
    return true;
}

// Works out what the item needs, makes room for it if the step may, and reserves what taking it
// writes. The tokens count as known already.
Status Admission::plan_item(const ItemList &list, uint32_t i, Plan *plan, Short *missing) {
    const quire_step_item &item = list.item(i);
    uint32_t sequence = books_.handles.find(item.seq);
    bool was_computed = books_.sequences[sequence].state.computed != 0;
    QUIRE_TRY(make_plan(item, list.tokens + item.token_offset, sequence, plan));
    if (plan->is_loading) return Status{};
    if (plan->takes) *missing = needs_.shortage(*plan);
    if (missing->reason != 0 && plan->part_tokens != 0) {
        // While it is copied, a block that is found in part takes the room of two.
        plan->position -= plan->part_tokens;
        plan->part_tokens = 0;
        --plan->hit_blocks;
        measure(item, plan);
        *missing = needs_.shortage(*plan);
    }
    if (missing->reason != 0 && books_.geometry.any_window && was_computed) {
        plan->reuses = true;
        needs_.measure(plan);
        *missing = needs_.shortage(*plan);
    }
    bool may_preempt = (books_.records.open().flags & QUIRE_STEP_MAY_PREEMPT) != 0;
    if (missing->reason != 0 && !plan->admission && may_preempt)
        QUIRE_TRY(make_room(plan, missing));
    if (missing->reason == 0) QUIRE_TRY(reserve(plan));
    if (item.mask_kind == QUIRE_MASK_NONE) return Status{};
    bool ok = books_.records.reserve_mask(unfolded_words(item, list.tokens, plan->known));
    return ok ? Status{} : no_host_memory();
}

[[gnu::always_inline]] inline Status Admission::add_item(const ItemList &list, uint32_t i) {
    CacheBooks &books = books_;
    const quire_step_item &item = list.item(i);
    quire_step_result *result = &list.result(i);
    uint32_t sequence = books.handles.find(item.seq);
    Sequence &s = books.sequences[sequence];
    *result = quire_step_result{};
    if (s.change != kNone) {
        result->reason = QUIRE_WAIT_PREEMPTED;
        return Status{};
    }
    if (!books.token_pages.prepare(&s.tokens, s.state.known, s.state.known + item.token_count)) {
        return no_host_memory();
    }
    if (!stays_in_place(item, sequence)) return add_planned(list, i, sequence);
    if (!books.records.reserve_change()) return no_host_memory();
    taking_.run_in_place(item, list.tokens + item.token_offset, sequence, result);
    return Status{};
}

Status Admission::add_items(const ItemList &list) {
    Status marked = mark_items(list);
    if (!marked.ok()) {
        ++books_.call;  // unmarks whatever was marked
        return marked;
    }
    StepRecord &record = books_.records.open();
    uint64_t before = record.changes.size();
    for (uint32_t i = 0; i < list.count; ++i) {
        Status added = add_item(list, i);
        if (!added.ok()) {
            changes_.undo_to(&record, before);
            books_.loads.drop_begun(books_.call);
            return added;
        }
    }
    return Status{};
}

// Adds an item that may take, publish or move something.
Status Admission::add_planned(const ItemList &list, uint32_t i, uint32_t sequence) {
    Sequence &s = books_.sequences[sequence];
    quire_step_result *result = &list.result(i);
    SequenceState before = s.state;
    Plan plan;
    Short missing;
    Status status = plan_item(list, i, &plan, &missing);
    const quire_step_item &item = list.item(i);
    if (!status.ok() || missing.reason != 0 || plan.is_loading) {
        if (status.ok() && plan.admission && plan.found.hashed != 0) {
            prefixes_.keep(Waiting{item.seq, before.known, item.token_count, s.state.first_unknown,
                                   plan.found.hashed});
        }
        s.state = before;
        if (status.ok() && plan.is_loading) result->outcome = QUIRE_ITEM_LOADING;
        result->reason = missing.reason;
        result->blocks_short = missing.blocks;
        return status;
    }
    Change *change = books_.records.open().changes.push_uninitialized();
    change->begin(ChangeKind::item, sequence, books_.handles.handle(sequence), before);
    taking_.run_item(item, list.tokens, &plan, change, result);
    return Status{};
}

// Preempts until the plan's need is met: first what its namespace's quota lacks, of which other
// namespaces' sequences can give nothing, then what the pool lacks. If the need cannot be met, no
// sequence is preempted.
Status Admission::make_room(Plan *plan, Short *missing) {
    StepRecord &record = books_.records.open();
    uint64_t before = record.changes.size();
    Status given;
    if (needs_.quota_shortage(*plan).reason != 0) {
        given = preempt_for(plan, kOfNamespace, missing);
    }
    if (given.ok() && missing->reason == QUIRE_WAIT_POOL) {
        given = preempt_for(plan, kOfAll, missing);
    }
    if (!given.ok() || missing->reason != 0) changes_.undo_to(&record, before);
    return given;
}

// Preempts victims of the scope until the plan lacks nothing that they can give.
Status Admission::preempt_for(Plan *plan, VictimScope scope, Short *missing) {
    uint64_t for_seq = books_.handles.handle(plan->sequence);
    if (!preemption_.gather_victims(plan->sequence, scope)) return no_host_memory();
    for (;;) {
        bool any = false;
        QUIRE_TRY(preemption_.give_up_next(for_seq, &any));
        if (!any) return Status{};
        needs_.measure(plan);
        *missing = needs_.shortage(*plan);
        bool lacks = scope == kOfAll ? missing->reason == QUIRE_WAIT_POOL
                                     : needs_.quota_shortage(*plan).reason != 0;
        if (!lacks) return Status{};
    }
}

}  // namespace quire
