// SPDX-License-Identifier: Apache-2.0
//
// Steps: begin, add, drop, abort, commit.

#include "core/cache.hpp"

#include "core/device/backend_call.hpp"

namespace quire {

Status Cache::begin(const StepOptions &options, const ItemList &list, uint64_t *out,
                    quire_error *error) {
    QUIRE_TRY(poll(error));
    if (step_open()) return fail(QUIRE_E_BUSY, "a step is open: commit or abort it first");
    if (timeline_.full()) {
        return fail(QUIRE_E_BUSY, "{} steps are unfinished or still running: wait for the oldest",
                    kMaxUnfinished);
    }
    uint32_t slot = Timeline::slot(timeline_.next());
    StepRecord &record = records_[slot];
    record.clear();
    record.phase = StepPhase::open;
    record.number = timeline_.next();
    hold_queues(&record, options);
    record.barrier = timeline_.barrier(record.queue);
    record.flags = options.flags;
    record.preempt = options.preempt;
    open_slot_ = slot;
    Status added = add_items(list);
    if (added.ok()) added = name_step(&record);
    if (!added.ok()) {
        undo_changes(&record, 0);
        close(&record);
        return added;
    }
    *out = record.handle;
    return Status{};
}

// Gives the step a handle. Comes last, so that a refused call uses up no number.
Status Cache::name_step(StepRecord *record) {
    uint64_t number = g_step_numbers.take(1);
    if (number == 0) return fail(QUIRE_E_LIMIT, "the process has used up its 2^56 step handles");
    record->handle = make_handle(HandleType::step, number);
    return Status{};
}

// Holds the step's queues, and gives them their name on the timeline.
void Cache::hold_queues(StepRecord *record, const StepOptions &options) {
    record->shard_count = options.queue_count;
    for (uint32_t i = 0; i < options.queue_count; ++i) {
        record->queues[i] = options.queues[i];
        record->fence_values[i] = 0;
        ++record->queues[i]->unfinished_steps;
    }
    record->queue = has_memory_ ? queue_sets_.name(options.queues, options.queue_count, timeline_)
                                : options.queue_tag;
}

Status Cache::add(uint64_t step, const ItemList &list) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, true, &record));
    return add_items(list);
}

void Cache::release_queues(StepRecord *record) {
    for (uint32_t i = 0; i < record->shard_count; ++i) --record->queues[i]->unfinished_steps;
    record->shard_count = 0;
}

// Ends the open step. REQUIRES: its changes are undone.
void Cache::close(StepRecord *record) {
    release_queues(record);
    record->clear();
    open_slot_ = kNone;
}

void Cache::undo_change(StepRecord *record, Change *change) {
    if (change->kind == ChangeKind::dropped) return;
    Sequence &s = sequences_[change->sequence];
    if (change->kind == ChangeKind::item) --record->rows;
    settle_returned(*change);
    uint32_t charged_before = charged(s);
    journal_.undo(record, *change, &s);
    s.state = change->before;
    s.change = kNone;
    change->kind = ChangeKind::dropped;
    change->edit_end = change->first_edit;
    charge(s, charged_before);
}

// Undoes the newest changes down to the first `keep`.
void Cache::undo_changes(StepRecord *record, uint64_t keep) {
    while (record->changes.size() > keep) {
        Change &last = *(record->changes.end() - 1);
        if (last.kind == ChangeKind::victim) {
            record->preemptions.shrink(record->preemptions.size() - 1);
        }
        bool dropped = last.kind == ChangeKind::dropped;
        uint32_t first_edit = last.first_edit, first_copy = last.first_copy;
        uint64_t mask_at = last.mask_at;
        undo_change(record, &last);
        record->changes.shrink(record->changes.size() - 1);
        if (dropped) continue;
        record->edits.shrink(first_edit);
        record->copies.shrink(first_copy);
        record->mask_words.shrink(mask_at);
    }
}

Status Cache::abort(uint64_t step) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, true, &record));
    undo_step(record);
    return Status{};
}

void Cache::undo_step(StepRecord *record) {
    uint64_t edit_count = record->edits.size();
    undo_changes(record, 0);
    if (record->dropped) journal_.undo_displaced(record, edit_count);
    close(record);
    settle_named(true);
}

// Marks the changes that `first` dooms. False if one of them is a preemption.
bool Cache::mark_doomed(StepRecord *record, uint32_t first) {
    bool possible = true;
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        Change &change = record->changes[i];
        if (change.kind == ChangeKind::dropped) continue;
        change.doomed = i == first || journal_.rests_on_doomed(*record, change);
        if (!change.doomed) continue;
        journal_.mark_doomed(*record, change, true);
        possible = possible && change.kind == ChangeKind::item;
    }
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        const Change &change = record->changes[i];
        if (change.doomed) journal_.mark_doomed(*record, change, false);
    }
    return possible;
}

Status Cache::drop(uint64_t step, uint64_t seq, uint64_t *dropped, uint32_t capacity,
                   uint32_t *count) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, true, &record));
    uint32_t index = 0;
    QUIRE_TRY(find_sequence(seq, &index));
    uint32_t first = sequences_[index].change;
    if (first == kNone || record->changes[first].kind != ChangeKind::item) {
        return fail(QUIRE_E_ARG, "the sequence has no item in the step");
    }
    bool possible = mark_doomed(record, first);
    *count = 0;
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        Change &change = record->changes[i];
        if (!change.doomed) continue;
        if (*count < capacity) dropped[*count] = sequence_handles_.handle(change.sequence);
        ++*count;
    }
    bool fits = *count <= capacity;
    for (uint64_t i = record->changes.size(); i-- > first;) {
        Change &change = record->changes[i];
        bool doomed = change.doomed;
        change.doomed = false;
        if (doomed && fits && possible) undo_change(record, &change);
    }
    if (!possible) {
        *count = 0;
        return fail(QUIRE_E_BUSY,
                    "a later preemption uses blocks that the item gave up: abort the step, or drop "
                    "the later items first");
    }
    record->dropped = record->dropped || fits;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

BatchNeed Cache::need_of(const StepRecord &record) const {
    BatchNeed need;
    for (const Change &change : record.changes) {
        if (change.kind != ChangeKind::item) continue;
        ++need.rows;
        need.query_tokens += change.compute_count;
        need.context_tokens += uint64_t{change.first_position} + change.compute_count;
        need.cross_context_tokens += sequences_[change.sequence].cross_tokens;
        need.cross_tokens += change.cross_tokens;
        need.mask_words += uint64_t{change.mask_rows} * change.mask_stride;
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            uint32_t length = journal_.table(change.sequence, g).length;
            if (length > need.longest_table) need.longest_table = length;
        }
    }
    return need;
}

Status Cache::check_batch(const StepRecord &record, Batch *batch) const {
    if (batch == nullptr) return Status{};
    QUIRE_TRY(batch->check_fresh());
    QUIRE_TRY(batch->fits(need_of(record)));
    return batch->check_writable(timeline_, record.queue);
}

// Gives back the blocks that the window has passed; the queue's later work may use them.
void Cache::pass_windows(const Change &change) {
    Sequence &s = sequences_[change.sequence];
    uint32_t charged_before = charged(s);
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const GroupGeometry &group = geometry_.groups[g];
        if (!group.windowed) continue;
        BlockTable &t = journal_.table(change.sequence, g);
        uint32_t first = group.first_visible_block(change.first_position, geometry_.block_tokens);
        uint32_t i = t.null_front > group.kept_blocks ? t.null_front : group.kept_blocks;
        for (; i < first && i < t.length; ++i) {
            journal_.drop_ref(g, t.ids.data[i], timeline_.next());
            journal_.disown(g, t.ids.data[i], change.sequence);
            t.ids.data[i] = kNullBlock;
            t.null_front = i + 1;
            --s.blocks_held;
        }
    }
    charge(s, charged_before);
}

// Takes the sequences out of the step, notes on them that they ran in it, and writes their rows.
void Cache::settle_items(StepRecord *record, Batch *batch) {
    for (const Change &change : record->changes) {
        if (change.kind == ChangeKind::dropped) continue;
        Sequence &s = sequences_[change.sequence];
        settle_returned(change);
        s.change = kNone;
        s.last_step = record->number;
        leader_.touch(change.sequence);
        if (change.kind == ChangeKind::victim) {
            s.trim_pending(s.state.computed);
            // If the step fails, the sequence's host blocks were never written.
            if ((s.state.flags & Sequence::kSwapped) != 0) s.note_pending(record->number, 0);
            continue;
        }
        if (change.found_tokens != 0) {
            s.raise_pending(change.found_tokens);
            s.trim_pending(change.first_position);
        }
        s.note_pending(record->number, change.valid_tokens);
        for (uint64_t step = timeline_.oldest(); change.has_pending && step < record->number;
             ++step) {
            uint32_t position = change.pending_position[Timeline::slot(step)];
            if (position != UINT32_MAX) s.note_pending(step, position);
        }
        counts_.prefix_cache_queries += change.query_tokens;
        counts_.prefix_cache_hits += change.hit_tokens;
        namespaces_[s.name_space].queries += change.query_tokens;
        namespaces_[s.name_space].hits += change.hit_tokens;
        if (geometry_.any_window) pass_windows(change);
        if (batch != nullptr) {
            batch->add_row(BatchRow{sequence_handles_.handle(change.sequence),
                                    change.first_position, change.compute_count, s.cross_tokens,
                                    change.cross_tokens, record->mask(change)},
                           &journal_.table(change.sequence, 0));
        }
    }
}

// Publishes the sequence's blocks from the root on, if its place in the tree no longer exists.
void Cache::republish(uint32_t sequence, uint64_t ready) {
    PrefixTree &tree = journal_.tree();
    Sequence &s = sequences_[sequence];
    const TreeCursor &at = s.state.cursor;
    if (tree.alive(at) && tree.reachable(at.node)) return;
    if ((s.state.flags & Sequence::kSwapped) != 0) return;
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        const BlockTable &t = journal_.table(sequence, g);
        for (uint32_t i = 0; i < t.length; ++i) {
            if (t.ids.data[i] == kNullBlock) continue;
            uint32_t node = journal_.pool(g)[t.ids.data[i]].node;
            if (node != kNone && !tree.reachable(node)) journal_.forget(node);
        }
    }
    s.state.published = 0;
    s.state.cursor = tree.root_cursor(s.root);
    publish(sequence, ready);
}

// A dropped item may have published a block that a later item has too, or a parent of what a later
// item published. The later item's blocks are then published in their place, from the root on.
void Cache::publish_again(const StepRecord &record) {
    for (const Change &change : record.changes) {
        if (change.kind == ChangeKind::item) republish(change.sequence, record.number);
    }
}

// Notes a sequence that published something outside the step while the step was open. It may have
// found what an item of the step published, and built on that.
void Cache::note_named(uint32_t sequence) {
    if (!step_open() || is_named_[sequence] != 0) return;
    is_named_[sequence] = 1;
    named_.push(sequence);
}

// Called when the step is over. undone: items of it are gone, and so is what they published.
void Cache::settle_named(bool undone) {
    for (uint32_t sequence : named_) {
        is_named_[sequence] = 0;
        if (undone && sequence_handles_.is_live(sequence))
            republish(sequence, sequences_[sequence].last_step);
    }
    named_.shrink(0);
}

void Cache::count_copies(const StepRecord &record) {
    for (const quire_block_copy &copy : record.copies) {
        counts_.copies_on_write += copy.kind == QUIRE_COPY_ON_WRITE ? 1 : 0;
        counts_.blocks_swapped_out += copy.kind == QUIRE_COPY_SWAP_OUT ? 1 : 0;
        counts_.blocks_swapped_in += copy.kind == QUIRE_COPY_SWAP_IN ? 1 : 0;
    }
    for (const quire_preemption &p : record.preemptions) {
        if (p.how == QUIRE_PREEMPT_SWAP) {
            ++counts_.preemptions_swap;
        } else {
            ++counts_.preemptions_recompute;
            counts_.tokens_preempted += p.computed_tokens;
        }
    }
    ++counts_.steps;
}

// A sequence that last ran on another queue runs here only after that step's fence.
Status Cache::wait_for_other_queues(StepRecord *record, quire_error *error) {
    if (timeline_.idle()) return Status{};
    for (const Change &change : record->changes) {
        if (change.kind == ChangeKind::dropped) continue;
        uint64_t last = sequences_[change.sequence].last_step;
        if (timeline_.done(last) || timeline_.queue_of(last) == record->queue) continue;
        uint32_t slot = Timeline::slot(last);
        if ((record->waited >> slot & 1) != 0) continue;
        record->waited |= 1u << slot;
        const StepRecord &other = records_[slot];
        if (other.phase == StepPhase::unused)
            continue;  // its work has run, and its queue may be gone
        QUIRE_TRY(wait_for_step(*record, other, error));
    }
    return Status{};
}

// Makes the step's queues wait on the devices for another step's fences.
Status Cache::wait_for_step(const StepRecord &record, const StepRecord &other, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        Queue *queue = record.queues[i];
        if (queue == other.queues[i]) continue;
        if (other.queues[i]->lock.is_abandoned()) {
            return fail(QUIRE_E_DEVICE_LOST,
                        "a sequence of the step last ran in step {}, on a queue that was abandoned",
                        other.number);
        }
        QueueUse use(queue);
        QUIRE_TRY(use.status());
        QUIRE_TRY(ask<&quire_backend_api::fence_wait>(*queue->device->api, error, queue->handle,
                                                      other.queues[i]->fence,
                                                      other.fence_values[i]));
    }
    return Status{};
}

// An engine's own stream accepts nothing while the engine captures it. A call that cannot go back
// once it has begun checks for this first, by a wait for a value that is already reached. Any other
// fault of a queue shows up when the work is enqueued.
Status Cache::check_queues(const StepRecord &record, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        Queue *queue = record.queues[i];
        if (!queue->is_engines) continue;
        QueueUse use(queue);
        QUIRE_TRY(use.status());
        Status asked = ask<&quire_backend_api::fence_wait>(*queue->device->api, error,
                                                           queue->handle, queue->fence, 0);
        if (asked.code == QUIRE_E_BUSY) return asked;
    }
    return Status{};
}

Status Cache::enqueue_on(uint32_t shard, const StepRecord &record, Batch *batch,
                         quire_error *error) {
    Queue *queue = record.queues[shard];
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    QUIRE_TRY(shards_.enqueue(shard, queue, record.copies, &journal_, error));
    return batch != nullptr ? batch->upload(shard, queue, error) : Status{};
}

Status Cache::enqueue(const StepRecord &record, Batch *batch, quire_error *error) {
    for (uint32_t i = 0; i < record.shard_count; ++i) {
        QUIRE_TRY(enqueue_on(i, record, batch, error));
    }
    return Status{};
}

namespace {

bool is_lost(const Status &status) {
    return status.code == QUIRE_E_DEVICE_LOST || status.code == QUIRE_E_BACKEND;
}

}  // namespace

// The part of a commit that can fail with the step still open.
Status Cache::prepare_commit(StepRecord *record, Batch *batch, quire_error *error) {
    QUIRE_TRY(poll(error));
    QUIRE_TRY(check_batch(*record, batch));
    uint64_t left_count = journal_.left_count();
    if (left_count != 0 && !reserve_record(0, 0, left_count, 0)) return no_host_memory();
    QUIRE_TRY(reserve_log(record));
    if (audits_ && !reserve_witness(*record, left_count)) return no_host_memory();
    record->waited = 0;
    if (has_memory_) {
        QUIRE_TRY(check_queues(*record, error));
        QUIRE_TRY(wait_for_other_queues(record, error));
    }
    return Status{};
}

Status Cache::commit(uint64_t step, Batch *batch, quire_error *error) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, true, &record));
    Status prepared = prepare_commit(record, batch, error);
    if (!prepared.ok()) {
        if (!is_lost(prepared)) return prepared;
        undo_step(record);
        return lost_at_commit(prepared, error);
    }
    // From here on only the device can fail.
    if (batch != nullptr) {
        batch->turn();
        batch->begin_write();
    }
    journal_.scrub(record);
    for (const Change &change : record->changes) {
        if (change.kind != ChangeKind::dropped) journal_.settle(*record, change);
    }
    record->edits.shrink(0);
    settle_items(record, batch);
    if (audits_) witness_step(*record);
    if (record->dropped) publish_again(*record);
    settle_named(record->dropped);
    if (batch != nullptr) batch->end_write(record->number);
    begin_batch(record, batch);
    count_copies(*record);
    record->phase = StepPhase::committed;
    open_slot_ = kNone;
    timeline_.commit(record->queue);
    if (has_memory_) {
        queue_sets_.commit(record->queue, record->number);
        Status enqueued = enqueue(*record, batch, error);
        if (!enqueued.ok()) {
            abandon(record);
            return lost_at_commit(enqueued, error);
        }
    }
    write_log(record);
    make_node_room();
    return Status{};
}

// A device failed, before or after the step was final. Either way the step is gone, and the caller
// gets one code for both. The backend's own code is in native_code.
Status Cache::lost_at_commit(const Status &why, quire_error *error) {
    if (error->native_code == 0) error->native_code = why.code;
    return Status{QUIRE_E_DEVICE_LOST, why.text, why.first, why.second};
}

Status Cache::copies(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                     uint32_t *count) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, false, &record));
    *count = 0;
    for (const quire_block_copy &copy : record->copies) {
        if (copy.kind == kVoidCopy) continue;
        if (*count < capacity) std::memcpy(out + uint64_t{*count} * stride, &copy, sizeof copy);
        ++*count;
    }
    bool fits = *count <= capacity;
    return Status{fits ? quire_status{QUIRE_OK} : quire_status{QUIRE_S_INCOMPLETE}, nullptr, 0, 0};
}

}  // namespace quire
