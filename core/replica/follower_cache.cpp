// SPDX-License-Identifier: Apache-2.0

#include "core/replica/follower_cache.hpp"

namespace quire {

// Checks that the log leads to the state that its leader's digest says. If not, the follower stops,
// and this is the last log that it reads.
Status FollowerCache::check_digest(const LogReader &log) {
    log_check_.each_change(log, [&](const SequenceChange &change) { follower_.count(change); });
    if (follower_.digest() == log.header().digest) return Status{};
    log_check_.each_change(log, [&](const SequenceChange &change) { follower_.uncount(change); });
    Status wrong = fail(QUIRE_E_INTERNAL,
                        "log number {} leads to a state that differs from its leader's: this "
                        "follower stopped, and all ranks must be restarted",
                        log.header().number);
    stop(wrong);
    return wrong;
}

// Reserves memory for everything that applying the log writes.
Status FollowerCache::reserve(const LogReader &log, StepRecord *record) {
    uint64_t copies = log.header().copy_count;
    bool ok = books_.shards.reserve(copies);
    if (record->copies.capacity() < copies) {
        for (StepRecord &other : books_.records) ok = ok && other.copies.reserve(copies);
    }
    uint64_t words = log.header().mask_word_count;
    if (record->mask_words.capacity() < words) {
        for (StepRecord &other : books_.records) ok = ok && other.mask_words.reserve(words);
    }
    Status grown =
        log.each_sequence([&](const LogSequence &after, const TableChange *tables) -> Status {
            for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
                BlockTable &t = books_.journal.table(after.index, g);
                if (!books_.journal.buffers().grow(&t.ids, tables[g].shape.length, t.length))
                    return no_host_memory();
            }
            return Status{};
        });
    return ok ? grown : no_host_memory();
}

// If the leader knew that an earlier step comes before this one, and that step may still run here,
// this step's queues wait for it. It must be finished, or there is no fence to wait for.
Status FollowerCache::order_after(const StepRecord &record, uint32_t order, quire_error *error) {
    for (uint32_t pass = 0; pass < 2; ++pass) {
        for (uint32_t back = 0; back < kLogOrderBits; ++back) {
            if ((order >> back & 1) == 0 || record.number <= back + 1) continue;
            uint64_t step = record.number - 1 - back;
            if (books_.timeline.has_run(step) || books_.timeline.queue_of(step) == record.queue)
                continue;
            const StepRecord &other = books_.records[Timeline::ring_index(step)];
            if (other.phase != StepPhase::finished) {
                return fail(QUIRE_E_BUSY,
                            "log number {} comes after number {}, which runs on another queue: "
                            "finish that step first",
                            record.number, step);
            }
            if (pass == 1) QUIRE_TRY(runs_.wait_for_step(record, other, error));
        }
    }
    return Status{};
}

void FollowerCache::apply_end(uint32_t index) {
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(index, g);
        t.length = t.null_front = 0;
        ++t.epoch;
    }
    books_.handles.abandon(index);
    books_.sequences[index] = Sequence{};
}

void FollowerCache::apply_change(const SequenceChange &change) {
    uint32_t index = change.after.index;
    if (change.after.handle != change.before.handle) {
        if (change.before.handle != 0) apply_end(index);
        books_.handles.give(index, change.after.handle);
    }
    Sequence &s = books_.sequences[index];
    s.blocks_held = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        BlockTable &t = books_.journal.table(index, g);
        const TableChange &table = change.tables[g];
        const LogTable &shape = table.shape;
        bool grows = change.continues() && shape.first >= t.length;
        uint32_t nulled = shape.first < shape.null_front ? shape.first : shape.null_front;
        uint32_t from = t.null_front > table.kept ? t.null_front : table.kept;
        for (uint32_t i = from; i < nulled; ++i) t.ids.data[i] = kNullBlock;
        for (uint32_t i = shape.first; i < shape.length; ++i) t.ids.data[i] = kNullBlock;
        table.each_told([&](uint32_t i) { t.ids.data[i] = table.id(i); });
        t.length = shape.length;
        t.null_front = shape.null_front;
        if (!grows) ++t.epoch;
        s.blocks_held += books_.geometry.groups[g].held_entries(t.length, t.null_front);
    }
    s.cross_tokens = change.after.cross_tokens;
    s.state.known = change.after.known;
    s.state.computed = change.after.computed;
    s.state.drafts = change.after.drafts;
    s.state.lookahead = change.after.lookahead;
    s.state.flags = change.after.flags;
    s.state.preemptions = change.after.preemptions;
    s.priority = change.after.priority;
}

void FollowerCache::stop(const Status &why) {
    follower_.stop(why);
    orders_.stop();
}

// Says which blocks the log's step may write: those that its copies fill, and those that tables
// name anew, unless the table's row begins after the block, which was then found and not taken.
// Comes before the tables change.
void FollowerCache::note_overwritten(const LogReader &log) {
    for (uint32_t i = 0; i < log.header().copy_count; ++i) {
        const quire_block_copy copy = log.copy(i);
        orders_.overwrite(copy.group, static_cast<uint32_t>(copy.dst),
                          copy.kind == QUIRE_COPY_SWAP_OUT);
    }
    log_check_.each_change(log, [&](const SequenceChange &change) {
        if (change.after.handle == 0 || change.after.swapped()) return;
        const uint32_t first = follower_.at(change.after.index).first_written;
        walk_entries(
            change, books_.geometry.group_count, [](uint32_t, uint32_t, uint32_t) {},
            [&](uint32_t group, uint32_t index, uint32_t id) {
                const BlockSize size = books_.geometry.groups[group].size;
                if (first == kNone || index >= size.block_of(first))
                    orders_.overwrite(group, id, false);
            });
    });
}

// The same for what rows compute. A table that shrank and grew again since the log before may name
// a block where it did, which another sequence published meanwhile. Comes after the tables changed.
void FollowerCache::note_computed(const LogReader &log) {
    for (uint32_t i = 0; i < log.header().row_count; ++i) {
        const LogRow row = log.row(i);
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const BlockTable &t = books_.journal.table(row.index, g);
            const BlockSize size = books_.geometry.groups[g].size;
            for (uint32_t k = size.block_of(row.first_position); k < t.length; ++k)
                if (t.ids.data[k] != kNullBlock) orders_.overwrite(g, t.ids.data[k], false);
        }
    }
}

void FollowerCache::apply_orders(const LogReader &log, uint64_t step) {
    Status taken = log.each_order([&](const TierOrder &order, const uint8_t *tokens) -> Status {
        orders_.take(order, tokens, step);
        return Status{};
    });
    QUIRE_ASSERT(taken.ok());
    if (orders_.awaits_content()) note_overwritten(log);
}

// From here on nothing fails.
void FollowerCache::apply(const LogReader &log, StepRecord *record, Batch *batch) {
    apply_orders(log, record->number);
    log_check_.each_change(log, [&](const SequenceChange &change) {
        change.after.handle == 0 ? apply_end(change.before.index) : apply_change(change);
    });
    if (orders_.awaits_content()) note_computed(log);
    for (uint32_t i = 0; i < log.header().copy_count; ++i) record->copies.push(log.copy(i));
    follower_.applied(log.header());
    if (batch == nullptr) return;
    uint64_t words = log.header().mask_word_count;
    record->mask_words.resize_within(words);
    if (words != 0) std::memcpy(record->mask_words.data(), log.mask_words(), words * 4);
    batch->turn();
    batch->begin_write();
    for (uint32_t i = 0; i < log.header().row_count; ++i) {
        LogRow row = log.row(i);
        MaskView mask{record->mask_words.data() + row.mask_at, row.mask_rows, row.mask_first,
                      row.mask_stride};
        batch->add_row(
            BatchRow{books_.handles.handle(row.index), row.first_position, row.compute_count,
                     books_.sequences[row.index].cross_tokens, row.cross_tokens, mask},
            &books_.journal.table(row.index, 0));
    }
    batch->end_write(record->number);
}

Status FollowerCache::apply_log(const uint8_t *bytes, uint64_t size_bytes,
                                const StepOptions &options, Batch *batch, uint64_t *out,
                                quire_error *error) {
    if (!follower_.active()) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache is not a follower: create it with QUIRE_CACHE_FOLLOWER");
    }
    QUIRE_TRY(poll(error));
    QUIRE_TRY(follower_.stopped());
    LogHeader header;
    LogReader log;
    QUIRE_TRY(check_sealed(bytes, size_bytes, &header));
    QUIRE_TRY(follower_.check_header(header));
    QUIRE_TRY(log.open(bytes, header, books_.geometry));
    QUIRE_TRY(log_check_.check(log));
    QUIRE_TRY(log_check_.check_batch(log, batch));
    if (books_.timeline.full()) {
        return fail(QUIRE_E_BUSY, "{} steps are unfinished or still running: wait for the oldest",
                    kMaxUnfinished);
    }
    StepRecord &record = books_.records[Timeline::ring_index(books_.timeline.next())];
    record.clear();
    QUIRE_TRY(reserve(log, &record));
    record.phase = StepPhase::open;
    record.number = books_.timeline.next();
    runs_.hold_queues(&record, options);
    Status ready =
        batch != nullptr ? batch->check_writable(books_.timeline, record.queue) : Status{};
    if (ready.ok()) ready = order_after(record, header.order, error);
    if (ready.ok()) ready = runs_.name_step(&record);
    if (ready.ok()) ready = check_digest(log);
    if (!ready.ok()) {
        runs_.close(&record);
        return ready;
    }
    apply(log, &record, batch);
    ++books_.counts.steps;
    *out = record.handle;
    return commit(&record, batch, error);
}

// If a device refuses its part, this rank lacks what the log wrote: the rank stops.
Status FollowerCache::commit(StepRecord *record, Batch *batch, quire_error *error) {
    runs_.commit(record, batch);
    if (!books_.has_memory) return Status{};
    Status enqueued = runs_.enqueue(*record, batch, error);
    if (enqueued.ok()) return enqueued;
    bool may_run = runs_.abandon(record);
    fail_step(record);
    if (!may_run) runs_.complete(record);
    return Runs::lost_at_commit(enqueued, error);
}

Status FollowerCache::check() {
    uint64_t held = 0, counted = 0;
    for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
        counted += follower_.held()[g] + follower_.host_held()[g];
    }
    uint64_t sum = 0;
    const BlockTable none[kMaxGroups] = {};
    for (uint32_t index = 0; index < books_.sequences.size(); ++index) {
        if (!books_.handles.is_live(index)) continue;
        SequenceChange change{};
        change.after =
            describe_sequence(books_.sequences[index], books_.handles.handle(index), index);
        change.old_tables = none;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const BlockTable &t = books_.journal.table(index, g);
            change.tables[g] = TableChange{{t.length, t.null_front, 0},
                                           books_.geometry.groups[g].kept_blocks,
                                           false,
                                           t.ids.data};
        }
        sum += digest_change(change, books_.geometry.group_count);
        held += books_.sequences[index].blocks_held;
    }
    if (sum != follower_.sum() || counted > held) {
        return fail(QUIRE_E_INTERNAL, "follower: tables name {} blocks, but {} were counted", held,
                    counted);
    }
    return Status{};
}

Status FollowerCache::finish(uint64_t step, const quire_native *native, uint32_t outcome,
                             quire_error *error) {
    StepRecord *record = nullptr;
    QUIRE_TRY(runs_.find_committed(step, outcome, &record));
    if (outcome == QUIRE_STEP_FAILED) {
        return fail(QUIRE_E_UNSUPPORTED, "a follower cannot fail a step: fail it on the leader");
    }
    return runs_.finish(record, native, error);
}

Status FollowerCache::poll(quire_error *error) {
    return runs_.poll(error, [this](StepRecord *failed) { fail_step(failed); });
}

// This rank lacks what the step wrote, and cannot compute it again by itself.
void FollowerCache::fail_step(StepRecord *record) {
    record->failed = true;
    if (books_.is_stopped) return;  // nothing that it holds is used any more
    stop(fail(QUIRE_E_DEVICE_LOST,
              "a device of this follower failed in log number {}: the "
              "follower stopped, and all ranks must be restarted",
              record->number));
}

}  // namespace quire
