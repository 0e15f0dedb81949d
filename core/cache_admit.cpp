// SPDX-License-Identifier: Apache-2.0
//
// Admits an item: works out what it needs in every group, and adds it, all or nothing.
//
// Order: the item is checked, its prefix looked up, its need measured. Only when everything that it
// needs is available is anything changed, and from then on nothing can fail.

#include "core/cache.hpp"

namespace quire {

Status Cache::check_item(const ItemList &list, uint32_t i, uint32_t *sequence) {
    const quire_step_item &item = list.item(i);
    *sequence = sequence_handles_.find(item.seq);
    if (*sequence == HandleTable::kNone) return find_sequence(item.seq, sequence);
    const Sequence &s = sequences_[*sequence];
    const SequenceState &state = s.state;
    bool preempted_now =
        s.change != kNone && open_record().changes[s.change].kind == ChangeKind::victim;
    if (s.marked == call_ || (s.change != kNone && !preempted_now)) {
        return fail(QUIRE_E_BUSY, "items[{}]: the sequence is already in the step", i);
    }
    if (uint64_t{item.token_offset} + item.token_count > list.token_count) {
        return fail(QUIRE_E_ARG, "items[{}] reaches past the {} tokens given", i, list.token_count);
    }
    if (state.drafts != 0) {
        return fail(QUIRE_E_BUSY,
                    "items[{}]: {} drafts were not accepted: call quire_seq_accept or _accept_path",
                    i, state.drafts);
    }
    uint64_t known = uint64_t{state.known} + item.token_count;
    if (known + item.lookahead > geometry_.max_sequence_tokens) {
        return fail(QUIRE_E_LIMIT, "items[{}] grows past max_sequence_tokens {}", i,
                    geometry_.max_sequence_tokens);
    }
    if (known == state.computed) return fail(QUIRE_E_ARG, "items[{}] has nothing to compute", i);
    if (item.draft_count > item.token_count) {
        return fail(QUIRE_E_ARG, "items[{}].draft_count {} is above its token_count", i,
                    item.draft_count);
    }
    if (item.draft_count != 0 && item.max_compute != 0 &&
        item.max_compute < known - state.computed) {
        return fail(QUIRE_E_ARG, "items[{}].max_compute {} would leave drafts uncomputed", i,
                    item.max_compute);
    }
    QUIRE_TRY(check_mask(item, i, list.tokens, list.token_count, static_cast<uint32_t>(known),
                         state.computed));
    if (still_written_elsewhere(s)) {
        return fail(QUIRE_E_BUSY, "items[{}]: the sequence's step on another queue is not finished",
                    i);
    }
    return Status{};
}

Status Cache::mark_items(const ItemList &list) {
    ++call_;
    for (uint32_t i = 0; i < list.count; ++i) {
        uint32_t sequence = 0;
        QUIRE_TRY(check_item(list, i, &sequence));
        sequences_[sequence].marked = call_;
    }
    return Status{};
}

Status Cache::add_items(const ItemList &list) {
    Status marked = mark_items(list);
    if (!marked.ok()) {
        ++call_;  // unmarks whatever was marked
        return marked;
    }
    StepRecord &record = open_record();
    uint64_t before = record.changes.size();
    for (uint32_t i = 0; i < list.count; ++i) {
        Status added = add_item(list, i);
        if (!added.ok()) {
            undo_changes(&record, before);
            return added;
        }
    }
    return Status{};
}

// True if this is the item that had to wait last, with the same tokens.
bool Cache::has_waited(const quire_step_item &item, const Sequence &s,
                       const quire_token *tokens) const {
    return waiting_.handle == item.seq && waiting_.known == s.state.known &&
           waiting_.token_count == item.token_count &&
           token_pages_.equal(s.tokens, s.state.known, tokens, item.token_count);
}

// Appends the item's tokens to the known ones. REQUIRES: room for them.
void Cache::note_tokens(const quire_step_item &item, const quire_token *tokens, Sequence *s) {
    SequenceState &state = s->state;
    uint32_t count = item.token_count;
    if (waiting_.handle == item.seq) waiting_ = Waiting{};
    token_pages_.write(&s->tokens, state.known, tokens, count);
    if (state.first_unknown == kNone) {
        uint32_t unknown = find_unknown(tokens, count);
        if (unknown != count) state.first_unknown = state.known + unknown;
    }
    state.known += count;
}

// Looks up what is on the device already. Called when nothing of the sequence is on the device.
Status Cache::find_prefix(Plan *plan, bool has_waited) {
    Sequence &s = sequences_[plan->sequence];
    if (prefix_off_ || (s.state.flags & Sequence::kUnpublished) != 0 || s.cross_tokens != 0) {
        return Status{};
    }
    uint32_t settled = plan->swapped ? s.state.computed : plan->known - 1;
    if (s.state.first_unknown < settled) settled = s.state.first_unknown;
    if (plan->lookup_end < settled) settled = plan->lookup_end;
    uint32_t blocks = settled >> geometry_.block_shift;
    if (has_waited && waiting_.blocks == blocks) {
        hashed_ = blocks;
    } else {
        if (!hash_blocks(s, blocks)) return no_host_memory();
        counts_.bytes_hashed += uint64_t{blocks} * geometry_.block_tokens * 4;
    }
    uint32_t matched = match(s, blocks, open_record().queue);
    if (plan->swapped) {
        plan->hit_blocks = matched;  // any of them may stand in for its copy in the host tier
        return Status{};
    }
    plan->query_tokens = settled;
    plan->hit_blocks = best_hit(matched);
    plan->position = plan->hit_blocks << geometry_.block_shift;
    return Status{};
}

// True if the sequence may write at `position` into the block that is there.
bool Cache::tail_is_writable(uint32_t sequence, uint32_t group, uint32_t position) {
    const BlockTable &t = journal_.table(sequence, group);
    uint32_t index = position >> geometry_.block_shift;
    if (t.writable == index) return true;
    uint32_t block = t.ids.data[index];
    if (block == kNullBlock) return false;
    const Block &b = journal_.pool(group)[block];
    if (b.node != kNone) return false;
    uint32_t slot = position & (geometry_.block_tokens - 1);
    if (b.owner == sequence && slot >= b.frozen_slots) return true;
    return b.refs == 1 && b.touch < open_record().barrier;  // adopted from whoever owned it
}

// Counts the blocks that the item may give back before it takes any: those that its window or chunk
// has passed by its first position, so that none of its tokens reads them. A block that only its
// later tokens have passed is still read by the earlier ones, and stays. The step can use such a
// block if no other table names it and all work that touches it runs before the step. The
// sequence's own last step does: the step waits for it in any case (wait_for_other_queues). `touch`
// covers the work of others.
void Cache::measure_passed(Plan *plan, uint32_t group) const {
    const GroupGeometry &g = geometry_.groups[group];
    const BlockTable &t = journal_.table(plan->sequence, group);
    plan->null_front[group] = t.null_front;
    plan->passed[group] = plan->freed[group] = 0;
    if (!plan->reuses || !g.windowed) [[likely]]
        return;
    uint32_t end = g.first_visible_block(plan->position, geometry_.block_tokens);
    uint32_t i = t.null_front > g.kept_blocks ? t.null_front : g.kept_blocks;
    if (end > t.length) end = t.length;
    if (i >= end) return;
    plan->null_front[group] = end;
    plan->passed[group] = end - i;
    for (; i < end && !plan->swapped; ++i) {
        const Block &b = journal_.pool(group)[t.ids.data[i]];
        if (b.refs == 1 && b.touch < records_[open_slot_].barrier) ++plan->freed[group];
    }
}

void Cache::measure(Plan *plan) {
    plan->takes = plan->admission || sequences_[plan->sequence].state.move_count != 0;
    uint32_t end = plan->position + plan->compute;
    uint32_t reserved = end == plan->known ? end + plan->lookahead : end;
    uint32_t cross_tokens = sequences_[plan->sequence].cross_tokens;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const GroupGeometry &group = geometry_.groups[g];
        const BlockTable &t = journal_.table(plan->sequence, g);
        uint32_t length = t.length;
        plan->fresh[g] = plan->shared[g] = plan->from_cached[g] = 0;
        plan->copy_tail[g] = false;
        measure_passed(plan, g);
        if (plan->admission) [[unlikely]] {
            const BlockPool &pool = journal_.pool(g);
            uint32_t first =
                plan->swapped ? plan->null_front[g]
                              : group.first_visible_block(plan->position, geometry_.block_tokens);
            for (uint32_t i = 0; i < plan->hit_blocks; ++i) {
                uint32_t block = journal_.tree().blocks(matches_[i])[g];
                if (block == kNullBlock || group.is_null(i, first)) continue;
                ++plan->shared[g];
                const Block &b = pool[block];
                bool counted = b.state == BlockState::cached && b.touch < open_record().barrier;
                plan->from_cached[g] += counted ? 1 : 0;
            }
            if (plan->swapped) {
                plan->fresh[g] = group.held_entries(length, plan->null_front[g]) - plan->shared[g];
            } else {
                length = group.cross ? 0 : plan->hit_blocks;
            }
        } else if ((plan->position & (geometry_.block_tokens - 1)) != 0 && !group.cross) {
            plan->copy_tail[g] = !tail_is_writable(plan->sequence, g, plan->position);
        }
        uint32_t target = geometry_.table_length(g, reserved, cross_tokens);
        plan->length[g] = target > length ? target : length;
        plan->fresh[g] += plan->length[g] - length;
        // Passed blocks are recorded too, even if a victim's blocks left the item nothing to take.
        plan->takes =
            plan->takes || plan->fresh[g] != 0 || plan->copy_tail[g] || plan->passed[g] != 0;
    }
}

Cache::Short Cache::shortage(const Plan &plan) const {
    const Sequence &s = sequences_[plan.sequence];
    const Namespace &ns = namespaces_[s.name_space];
    uint64_t barrier = records_[open_slot_].barrier;
    Short out;
    uint64_t wanted = 0, returned = 0;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const BlockPool &pool = journal_.pool(g);
        uint32_t need = plan.fresh[g] + (plan.copy_tail[g] ? 1 : 0);
        wanted += plan.fresh[g] + plan.shared[g];
        returned += plan.swapped ? 0 : plan.passed[g];
        if (need == 0 && !plan.admission) continue;
        uint32_t available = pool.available(barrier) + plan.freed[g] - plan.from_cached[g];
        uint32_t reason = QUIRE_WAIT_POOL;
        if (need <= available && plan.admission && pool.held_count() != 0) {
            // Newcomers must leave what running sequences will need soon.
            available = available > watermark_ ? available - watermark_ : 0;
            reason = QUIRE_WAIT_WATERMARK;
        }
        if (need > available && need - available > out.blocks) {
            out = Short{need - available, reason};
        }
    }
    // Blocks that other items of the step gave back return if those items are dropped.
    uint64_t held = ns.blocks_held + wanted - returned, kept = held + ns.returned;
    if (out.reason == 0 && ns.quota_blocks != 0 && kept > ns.quota_blocks) {
        // The commit frees what is only kept, so that is not missing for good.
        uint64_t over = held > ns.quota_blocks ? held - ns.quota_blocks : 1;
        out = Short{static_cast<uint32_t>(over), QUIRE_WAIT_QUOTA};
    }
    return out;
}

// Makes room in the open step's record. All records grow together, so that each step finds the room
// that any earlier step needed.
bool Cache::reserve_record(uint64_t changes, uint64_t edits, uint64_t copies,
                           uint64_t preemptions) {
    const StepRecord &open = open_record();
    changes += open.changes.size();
    edits += open.edits.size();
    copies += open.copies.size();
    preemptions += open.preemptions.size();
    if (open.has_room(changes, edits, copies, preemptions)) [[likely]]
        return true;
    // Comes first, because it is needed only where the records have to grow.
    if (!shards_.reserve(copies)) return false;
    for (StepRecord &record : records_) {
        bool grown = record.changes.reserve(changes) && record.edits.reserve(edits) &&
                     record.copies.reserve(copies) && record.preemptions.reserve(preemptions);
        if (!grown) return false;
    }
    return true;
}

// Makes room for an unfolded mask, in all records as above.
bool Cache::reserve_mask(uint64_t words) {
    words += open_record().mask_words.size();
    if (open_record().mask_words.capacity() >= words) [[likely]]
        return true;
    for (StepRecord &record : records_) {
        if (!record.mask_words.reserve(words)) return false;
    }
    return true;
}

// Makes room for everything that taking the plan writes, so that it cannot fail half-way.
Status Cache::reserve(const Plan &plan) {
    Sequence &s = sequences_[plan.sequence];
    for (uint32_t g = 0; plan.takes && g < geometry_.group_count; ++g) {
        BlockTable &t = journal_.table(plan.sequence, g);
        if (!journal_.buffers().grow(&t.ids, plan.length[g], t.length)) return no_host_memory();
    }
    if (!journal_.buffers().grow(&s.tree, plan.drafts, 0)) return no_host_memory();
    Room room = take_room(plan) + publish_room(plan);
    if (!reserve_record(1, room.edits, room.copies, 0)) return no_host_memory();
    reserved_ = open_record().used() + room;
    return Status{};
}

// Adds the item's tokens to the known tokens, then works out what the item needs.
Status Cache::make_plan(const quire_step_item &item, const quire_token *tokens, uint32_t sequence,
                        Plan *plan) {
    Sequence &s = sequences_[sequence];
    bool waited = has_waited(item, s, tokens);
    if (waited) {
        s.state.known += item.token_count;
        s.state.first_unknown = waiting_.first_unknown;
    } else {
        note_tokens(item, tokens, &s);
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
    plan->hit_blocks = plan->query_tokens = 0;
    plan->swapped = (s.state.flags & Sequence::kSwapped) != 0;
    plan->admission = s.state.computed == 0 || plan->swapped;
    plan->reuses = false;
    if (plan->admission) QUIRE_TRY(find_prefix(plan, waited));
    uint32_t left = plan->known - plan->position;
    plan->compute = item.max_compute != 0 && item.max_compute < left ? item.max_compute : left;
    measure(plan);
    return Status{};
}

// True for almost every decode step: its tokens are appended in blocks that the sequence is writing
// already, and fill none. It takes nothing and publishes nothing.
bool Cache::stays_in_place(const quire_step_item &item, uint32_t sequence) const {
    const SequenceState &state = sequences_[sequence].state;
    if (state.computed == 0 || (state.flags & Sequence::kSwapped) != 0) return false;
    if (state.move_count != 0) return false;
    if (item.max_compute != 0 || item.lookahead != 0 || item.mask_kind != 0) return false;
    uint32_t end = state.known + item.token_count;
    uint32_t index = state.computed >> geometry_.block_shift;
    if (end >> geometry_.block_shift != index) return false;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        if (journal_.table(sequence, g).writable != index && !geometry_.groups[g].cross)
            return false;
    }
    return true;
}

Status Cache::add_item(const ItemList &list, uint32_t i) {
    const quire_step_item &item = list.item(i);
    const quire_token *tokens = list.tokens + item.token_offset;
    quire_step_result *result = &list.result(i);
    uint32_t sequence = sequence_handles_.find(item.seq);
    Sequence &s = sequences_[sequence];
    StepRecord &record = open_record();
    *result = quire_step_result{};
    if (s.change != kNone) {
        result->reason = QUIRE_WAIT_PREEMPTED;
        return Status{};
    }
    if (!token_pages_.prepare(&s.tokens, s.state.known, s.state.known + item.token_count)) {
        return no_host_memory();
    }
    if (stays_in_place(item, sequence)) {
        if (!reserve_record(1, 0, 0, 0)) return no_host_memory();
        run_in_place(item, tokens, sequence, result);
        return Status{};
    }
    SequenceState before = s.state;
    Plan plan;
    Short missing;
    Status status = make_plan(item, tokens, sequence, &plan);
    if (status.ok() && plan.takes) missing = shortage(plan);
    if (missing.reason != 0 && geometry_.any_window && before.computed != 0) {
        plan.reuses = true;
        measure(&plan);
        missing = shortage(plan);
    }
    if (status.ok() && missing.reason == QUIRE_WAIT_POOL && !plan.admission &&
        (record.flags & QUIRE_STEP_MAY_PREEMPT) != 0) {
        status = make_room(&plan, &missing);
    }
    if (status.ok() && missing.reason == 0) status = reserve(plan);
    if (status.ok() && item.mask_kind != QUIRE_MASK_NONE &&
        !reserve_mask(unfolded_words(item, list.tokens, plan.known))) {
        status = no_host_memory();
    }
    if (!status.ok() || missing.reason != 0) {
        if (status.ok() && plan.admission && hashed_ != 0) {
            waiting_ =
                Waiting{item.seq, before.known, item.token_count, s.state.first_unknown, hashed_};
        }
        hashed_ = 0;
        s.state = before;
        result->reason = missing.reason;
        result->blocks_short = missing.blocks;
        return status;
    }
    Change *change = record.changes.push_uninitialized();
    change->begin(ChangeKind::item, sequence, sequence_handles_.handle(sequence), before);
    run_item(item, list.tokens, &plan, change, result);
    return Status{};
}

}  // namespace quire
