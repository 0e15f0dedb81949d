// SPDX-License-Identifier: Apache-2.0

#include "core/steps/steps.hpp"

namespace quire {

namespace {

bool is_lost(const Status &status) {
    return status.code == QUIRE_E_DEVICE_LOST || status.code == QUIRE_E_BACKEND;
}

// Notes on the sequence which steps it depends on, now that its change is final.
void settle_pending(const StepRecord &record, const Change &change, uint64_t oldest, Sequence *s) {
    if (change.kind == ChangeKind::lease) return;  // it has no tokens
    if (change.kind == ChangeKind::victim) {
        s->trim_pending(s->state.computed);
        // If the step fails, the sequence's host blocks were never written.
        if ((s->state.flags & Sequence::kSwapped) != 0) s->note_pending(record.number, 0);
        return;
    }
    if (change.found_tokens != 0) {
        s->raise_pending(change.found_tokens);
        s->trim_pending(change.first_position);
    }
    s->note_pending(record.number, change.valid_tokens);
    for (uint64_t step = oldest; change.has_pending && step < record.number; ++step) {
        uint32_t position = change.pending_position[Timeline::ring_index(step)];
        if (position != UINT32_MAX) s->note_pending(step, position);
    }
}

}  // namespace

Status Steps::begin(const StepOptions &options, const ItemList &list, uint64_t *out,
                    quire_error *error) {
    QUIRE_TRY(poll(error));
    if (books_.records.is_open())
        return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    if (books_.timeline.full()) {
        return fail(QUIRE_E_BUSY, "{} steps are unfinished or still running: wait for the oldest",
                    kMaxUnfinished);
    }
    uint32_t index = Timeline::ring_index(books_.timeline.next());
    StepRecord &record = books_.records[index];
    record.clear();
    record.phase = StepPhase::open;
    record.number = books_.timeline.next();
    runs_.hold_queues(&record, options);
    record.barrier = books_.timeline.barrier(record.queue);
    record.flags = options.flags;
    record.preempt = options.preempt;
    books_.records.set_open(index);
    books_.journal.tree().hold_touched();
    Status added = admission_.add_items(list);
    if (added.ok()) added = runs_.name_step(&record);
    if (!added.ok()) {
        books_.loads.drop_begun(books_.call);
        changes_.undo_to(&record, 0);
        runs_.close(&record);
        return added;
    }
    *out = record.handle;
    return Status{};
}

Status Steps::add(uint64_t step, const ItemList &list) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, true, &record));
    return admission_.add_items(list);
}

Status Steps::abort(uint64_t step) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, true, &record));
    undo_step(record);
    return Status{};
}

void Steps::undo_step(StepRecord *record) {
    uint64_t edit_count = record->edits.size();
    changes_.undo_to(record, 0);
    if (record->dropped) books_.journal.undo_displaced(record, edit_count);
    books_.journal.free_bare(*record, edit_count);
    runs_.close(record);
    prefixes_.settle_named(true);
}

Status Steps::drop(uint64_t step, uint64_t seq, uint64_t *dropped, uint32_t capacity,
                   uint32_t *count) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, true, &record));
    uint32_t index = 0;
    QUIRE_TRY(books_.find_sequence(seq, &index));
    uint32_t first = books_.sequences[index].change;
    if (first == kNone || record->changes[first].kind != ChangeKind::item) {
        return fail(QUIRE_E_ARG, "the sequence has no item in the step");
    }
    bool possible = changes_.mark_doomed(record, first);
    *count = 0;
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        Change &change = record->changes[i];
        if (!change.doomed) continue;
        if (*count < capacity) dropped[*count] = books_.handles.handle(change.sequence);
        ++*count;
    }
    bool fits = *count <= capacity;
    for (uint64_t i = record->changes.size(); i-- > first;) {
        Change &change = record->changes[i];
        bool doomed = change.doomed;
        change.doomed = false;
        if (doomed && fits && possible) changes_.undo(record, &change);
    }
    if (!possible) {
        *count = 0;
        return fail(QUIRE_E_BUSY,
                    "a later preemption or lease uses blocks that the item published or gave up: "
                    "abort the step, or drop the later items first");
    }
    record->dropped = record->dropped || fits;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

BatchNeed Steps::need_of(const StepRecord &record) const {
    const CacheBooks &books = books_;
    BatchNeed need;
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item) continue;
        ++need.rows;
        need.query_tokens += change.compute_count;
        need.context_tokens += uint64_t{change.first_position} + change.compute_count;
        need.cross_context_tokens += books.sequences[change.sequence].cross_tokens;
        need.cross_tokens += change.cross_tokens;
        need.mask_words += uint64_t{change.mask_rows} * change.mask_stride;
        for (uint32_t g = 0; g < books.geometry.group_count; ++g) {
            uint32_t length = books.journal.table(change.sequence, g).length;
            if (length > need.longest_table) need.longest_table = length;
        }
    }
    return need;
}

Status Steps::check_batch(const StepRecord &record, Batch *batch) const {
    if (batch == nullptr) return Status{};
    QUIRE_TRY(batch->check_fresh());
    QUIRE_TRY(batch->fits(need_of(record)));
    return batch->check_writable(books_.timeline, record.queue);
}

// Gives back the blocks that the window has passed; the queue's later work may use them.
void Steps::pass_windows(const Change &change) {
    Sequence &s = books_.sequences[change.sequence];
    uint32_t charged_before = s.charged();
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        const GroupGeometry &group = books_.geometry.groups[g];
        if (!group.windowed) continue;
        BlockTable &t = books_.journal.table(change.sequence, g);
        uint32_t first = group.first_visible_block(change.first_position);
        uint32_t i = t.null_front > group.kept_blocks ? t.null_front : group.kept_blocks;
        for (; i < first && i < t.length; ++i) {
            books_.journal.drop_ref(g, t.ids.data[i], books_.timeline.next());
            books_.journal.disown(g, t.ids.data[i], change.sequence);
            t.ids.data[i] = kNullBlock;
            t.null_front = i + 1;
            --s.blocks_held;
        }
    }
    tenants_.charge(s, charged_before);
}

// The item's sequence is computed now, with its load or without. Blocks that were found prove that
// they are used again.
void Steps::settle_load(const Change &change) {
    if (change.load != nullptr) books_.loads.settle(change.load);
    books_.loads.note_computed(change.sequence, change.handle);
    if (!books_.unsaved.takes_found() || change.hit_tokens == 0) return;
    const PrefixTree &tree = books_.journal.tree();
    for (uint32_t i = 0; i < books_.geometry.span.block_of(change.hit_tokens); ++i) {
        uint32_t node = kNone;
        for (uint32_t g = 0; g < books_.geometry.group_count && node == kNone; ++g) {
            const BlockTable &t = books_.journal.table(change.sequence, g);
            uint32_t block = i < t.length ? t.ids.data[i] : kNullBlock;
            if (block != kNullBlock) node = books_.journal.pool(g)[block].node;
        }
        if (node != kNone) books_.unsaved.note(node, tree.generation(node));
    }
}

void Steps::count_lookup(const Change &change, uint32_t name_space) {
    books_.counts.prefix_cache_queries += change.query_tokens;
    books_.counts.prefix_cache_hits += change.hit_tokens;
    books_.namespaces[name_space].queries += change.query_tokens;
    books_.namespaces[name_space].hits += change.hit_tokens;
}

// Makes the edits final, takes the sequences out of the step, and writes their rows.
void Steps::settle_changes(StepRecord *record, Batch *batch) {
    CacheBooks &books = books_;  // a local one need not be read again after each write
    for (const Change &change : record->changes) {
        bool has_edits = change.first_edit != change.edit_end;
        if (has_edits && change.kind != ChangeKind::dropped) books.journal.settle(*record, change);
    }
    if (record->dropped) books.journal.free_bare(*record, record->edits.size());
    record->edits.shrink(0);
    const bool may_load = books.loads.is_open();
    const bool any_window = books.geometry.any_window;
    for (const Change &change : record->changes) {
        if (change.kind == ChangeKind::dropped) continue;
        Sequence &s = books.sequences[change.sequence];
        tenants_.settle_returned(change);
        s.change = kNone;
        s.last_step = record->number;
        books.touched.touch(change.sequence);
        settle_pending(*record, change, books.timeline.oldest(), &s);
        if (change.kind == ChangeKind::victim) continue;
        if (may_load && change.kind == ChangeKind::item) [[unlikely]]
            settle_load(change);
        if ((change.query_tokens | change.hit_tokens) != 0) count_lookup(change, s.name_space);
        if (change.kind != ChangeKind::item) continue;
        if (any_window) pass_windows(change);
        if (batch == nullptr) continue;
        batch->add_row(BatchRow{books.handles.handle(change.sequence), change.first_position,
                                change.compute_count, s.cross_tokens, change.cross_tokens,
                                record->mask(change)},
                       &books.journal.table(change.sequence, 0));
    }
}

void Steps::count_copies(const StepRecord &record) {
    for (const quire_block_copy &copy : record.copies) {
        books_.counts.copies_on_write += copy.kind == QUIRE_COPY_ON_WRITE ? 1 : 0;
        books_.counts.blocks_swapped_out += copy.kind == QUIRE_COPY_SWAP_OUT ? 1 : 0;
        books_.counts.blocks_swapped_in += copy.kind == QUIRE_COPY_SWAP_IN ? 1 : 0;
    }
    for (const quire_preemption &p : record.preemptions) {
        if (p.how == QUIRE_PREEMPT_SWAP) {
            ++books_.counts.preemptions_swap;
        } else {
            ++books_.counts.preemptions_recompute;
            books_.counts.tokens_preempted += p.computed_tokens;
        }
    }
    ++books_.counts.steps;
}

Status Steps::reserve(const StepRecord &record) {
    uint64_t unscrubbed_count = books_.journal.unscrubbed_count();
    if (unscrubbed_count != 0 && !books_.records.reserve(0, 0, unscrubbed_count, 0))
        return no_host_memory();
    if (books_.audits && !witness_.reserve(record, unscrubbed_count)) return no_host_memory();
    return Status{};
}

Status Steps::prepare(StepRecord *record, Batch *batch, quire_error *error) {
    QUIRE_TRY(poll(error));
    QUIRE_TRY(check_batch(*record, batch));
    return reserve(*record);
}

Status Steps::order(StepRecord *record, quire_error *error) {
    record->waited = 0;
    if (!books_.has_memory) return Status{};
    QUIRE_TRY(runs_.check_queues(*record, error));
    return runs_.wait_for_other_queues(record, error);
}

Status Steps::refuse_commit(StepRecord *record, const Status &why, quire_error *error) {
    if (!is_lost(why)) return why;
    QUIRE_TRY(reserve(*record));
    runs_.leave_unordered(record);
    make_final(record, nullptr);
    abandon(record);
    return Runs::lost_at_commit(why, error);
}

void Steps::make_final(StepRecord *record, Batch *batch) {
    if (batch != nullptr) {
        batch->turn();
        batch->begin_write();
    }
    books_.journal.scrub(record);
    settle_changes(record, batch);
    bool will_run = record->queue != kNoQueue;
    if (books_.audits && will_run) witness_.note_step(*record);
    if (record->dropped) prefixes_.publish_again(*record);
    prefixes_.settle_named(record->dropped);
    if (batch != nullptr) batch->end_write(record->number);
    count_copies(*record);
    books_.records.set_closed();
    books_.journal.tree().release_touched();
    runs_.commit(record, batch);
}

Status Steps::commit(StepRecord *record, Batch *batch, quire_error *error) {
    make_final(record, batch);
    if (!books_.has_memory) return Status{};
    Status enqueued = runs_.enqueue(*record, batch, error);
    if (enqueued.ok()) [[likely]]
        return enqueued;
    abandon(record);
    return Runs::lost_at_commit(enqueued, error);
}

Status Steps::copies(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                     uint32_t *count) {
    StepRecord *record = nullptr;
    QUIRE_TRY(books_.records.find(step, false, &record));
    *count = 0;
    for (const quire_block_copy &copy : record->copies) {
        if (copy.kind == kVoidCopy) continue;
        if (*count < capacity) std::memcpy(out + uint64_t{*count} * stride, &copy, sizeof copy);
        ++*count;
    }
    bool fits = *count <= capacity;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

Status Steps::finish(uint64_t step, const quire_native *native, uint32_t outcome,
                     quire_error *error) {
    StepRecord *record = nullptr;
    QUIRE_TRY(runs_.find_committed(step, outcome, &record));
    if (outcome == QUIRE_STEP_OK) return runs_.finish(record, native, error);
    if (books_.records.is_open()) {
        return fail(QUIRE_E_BUSY, "a step is open: abort or commit it before failing another");
    }
    // The enqueued part of a failed step still runs, and its blocks wait for fences after it.
    if (books_.has_memory) QUIRE_TRY(runs_.check_queues(*record, error));
    QUIRE_TRY(runs_.wait_for_native(record, native, error));
    abandon(record);
    return Status{};
}

void Steps::abandon(StepRecord *record) {
    bool may_run = runs_.abandon(record);
    rollback_.fail_step(record);
    if (!may_run) runs_.complete(record);
}

Status Steps::poll_fences(quire_error *error) {
    return runs_.poll(error, [this](StepRecord *failed) { rollback_.fail_step(failed); });
}

}  // namespace quire
