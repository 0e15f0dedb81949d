// SPDX-License-Identifier: Apache-2.0
//
// The end of steps: finish, reading fences, and the rollback of steps that failed.
//
// A failed step takes *computed* back in every sequence that it computed, and in those that shared
// or forked what depends on it: exactly the tokens that depend on it. A sequence notes from which
// position on it depends on which unfinished step. A published block has the set of steps that its
// content depends on, and a sequence that finds the block takes that set over. So the sets are
// transitive.

#include "core/cache.hpp"
#include "core/device/backend_call.hpp"
#include "quire/queue.h"

namespace quire {

namespace {

constexpr uint64_t kNeverReached = QUIRE_FENCE_FAILED - 1;

}  // namespace

Status Cache::finish(uint64_t step, const quire_native *native, uint32_t outcome,
                     quire_error *error) {
    StepRecord *record = nullptr;
    QUIRE_TRY(find_step(step, false, &record));
    if (record->phase != StepPhase::committed) {
        return fail(QUIRE_E_BUSY, "the step is not committed: commit or abort it");
    }
    if (outcome != QUIRE_STEP_OK && outcome != QUIRE_STEP_FAILED) {
        return fail(QUIRE_E_ARG, "outcome {} is not known", outcome);
    }
    if (follower_.active() && outcome == QUIRE_STEP_FAILED) {
        return fail(QUIRE_E_UNSUPPORTED, "a follower cannot fail a step: fail it on the leader");
    }
    if (step_open() && outcome == QUIRE_STEP_FAILED) {
        return fail(QUIRE_E_BUSY, "a step is open: abort or commit it before failing another");
    }
    // The enqueued part of a failed step still runs, and its blocks wait for fences after it.
    if (has_memory_ && outcome == QUIRE_STEP_FAILED) QUIRE_TRY(check_queues(*record, error));
    bool has_native = native != nullptr && native->kind != QUIRE_NATIVE_NONE;
    if (has_native) QUIRE_TRY(wait_for_native(record, *native, error));
    if (outcome == QUIRE_STEP_FAILED) {
        abandon(record);
        return Status{};
    }
    // If a later shard refuses its fence, the earlier shards' fences count for nothing and get a
    // higher value next time.
    for (uint32_t i = 0; i < record->shard_count; ++i) QUIRE_TRY(signal(record, i, error));
    record->phase = StepPhase::finished;
    end_batch(record);
    record->handle = 0;
    if (!has_memory_) complete(record);
    return Status{};
}

// The batch takes this step and forgets an earlier one, which may end after the batch is destroyed.
void Cache::begin_batch(StepRecord *record, Batch *batch) {
    for (StepRecord &other : records_) {
        if (batch != nullptr && other.batch == batch) other.batch = nullptr;
    }
    record->batch = batch;
}

void Cache::end_batch(StepRecord *record) {
    if (record->batch != nullptr) record->batch->end(record->number);
    record->batch = nullptr;
}

// The step's fence is then inserted after the engine's own work, wherever that runs.
Status Cache::wait_for_native(StepRecord *record, const quire_native &native, quire_error *error) {
    if (!has_memory_) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "a native signal: a cache without memory waits for no device; pass NULL");
    }
    if (record->shard_count != 1) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "a native signal belongs to one device, but the cache has {} shards: call "
                    "quire_queue_after_native for each, and pass NULL",
                    record->shard_count);
    }
    Queue *queue = record->queues[0];
    const quire_backend_api &api = *queue->device->api;
    if (api.native_wait == nullptr) {
        return fail(QUIRE_E_UNSUPPORTED, "the device's backend does not support native semaphores");
    }
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    return ask<&quire_backend_api::native_wait>(api, error, queue->handle, &native);
}

Status Cache::signal(StepRecord *record, uint32_t shard, quire_error *error) {
    Queue *queue = record->queues[shard];
    QueueUse use(queue);
    QUIRE_TRY(use.status());
    QUIRE_TRY(ask<&quire_backend_api::fence_signal>(*queue->device->api, error, queue->handle,
                                                    queue->fence, queue->signalled + 1));
    record->fence_values[shard] = ++queue->signalled;
    return Status{};
}

// Undoes a committed step, because the engine says so or a device refused its part. The part that
// was enqueued may still run: the blocks wait for fences as after finish.
void Cache::abandon(StepRecord *record) {
    quire_error ignored{};
    ignored.struct_size = sizeof ignored;
    bool running = false;
    for (uint32_t i = 0; i < record->shard_count; ++i) {
        record->fence_values[i] = 0;  // a device that refuses even a fence is taken for dead
        // On an abandoned queue any work may still run, and no fence will tell when it has.
        bool is_abandoned = record->queues[i]->lock.is_abandoned();
        if (is_abandoned) record->fence_values[i] = kNeverReached;
        bool is_tracked = is_abandoned || signal(record, i, &ignored).ok();
        if (!is_tracked) shards_.note_untracked(i);
        running |= is_tracked;
    }
    record->handle = 0;
    record->phase = StepPhase::finished;
    end_batch(record);
    fail_step(record);
    if (!running) complete(record);
}

// Called when the work of the step has run.
void Cache::complete(StepRecord *record) {
    for (uint32_t i = 0; i < record->shard_count; ++i) --record->queues[i]->unfinished_steps;
    uint64_t old_oldest = timeline_.oldest();
    timeline_.complete(record->number);
    record->handle = 0;
    record->phase = StepPhase::unused;
    if (is_stopped_) return;  // its blocks are given to no one any more
    if (timeline_.oldest() != old_oldest) journal_.retire(old_oldest);
    if (step_open()) open_record().barrier = timeline_.barrier(open_record().queue);
}

// *passed: every shard reached its value. *failed: a shard's fence failed.
Status Cache::read_fences(const StepRecord &record, bool *passed, bool *failed,
                          quire_error *error) {
    *passed = true;
    *failed = false;
    for (uint32_t i = 0; i < record.shard_count && *passed; ++i) {
        if (record.fence_values[i] == 0) continue;  // none of its work can run there, see abandon
        uint64_t value = 0;
        Queue *queue = record.queues[i];
        if (queue->lock.is_abandoned()) {
            *passed = false;
            return Status{};
        }
        QUIRE_TRY(
            ask<&quire_backend_api::fence_read>(*queue->device->api, error, queue->fence, &value));
        *passed = value >= record.fence_values[i];
        *failed |= value == QUIRE_FENCE_FAILED;
    }
    return Status{};
}

Status Cache::poll(quire_error *error) {
    if (!has_memory_) return Status{};
    for (uint64_t step = timeline_.oldest(); step < timeline_.next(); ++step) {
        StepRecord &record = records_[Timeline::slot(step)];
        if (record.phase != StepPhase::finished) continue;
        bool passed = false, failed = false;
        QUIRE_TRY(read_fences(record, &passed, &failed, error));
        if (!passed) continue;
        if (failed && !record.failed) {
            if (step_open()) continue;  // rolled back at the next begin
            fail_step(&record);
        }
        complete(&record);
    }
    return Status{};
}

// Withdraws published blocks whose content depends on the step, no matter when they were published
// and by which sequence.
void Cache::withdraw_published(uint64_t step) {
    for (uint32_t g = 0; g < geometry_.group_count; ++g) {
        BlockPool &pool = journal_.pool(g);
        for (uint32_t b = 1; b < pool.block_count(); ++b) {
            if (pool[b].node != kNone && depends_on(pool[b], step)) journal_.forget(pool[b].node);
        }
    }
}

// Keeps only the first valid_tokens computed tokens. Drafts are forgotten: none was accepted yet.
void Cache::lose(uint32_t sequence, uint32_t valid_tokens) {
    Sequence &s = sequences_[sequence];
    SequenceState &state = s.state;
    if (state.computed <= valid_tokens) return;
    state.flags |= Sequence::kLost;
    state.known -= state.drafts;
    state.drafts = state.lookahead = 0;
    if (state.first_unknown >= state.known) state.first_unknown = kNone;
    lower_computed(sequence, valid_tokens < state.known ? valid_tokens : state.known, valid_tokens);
}

// Marks the blocks that may still hold what the failed step's copies should have overwritten, and
// those that later steps copied it to. Each is zeroed when it is next taken. True if there are any.
bool Cache::suspect_copies(const StepRecord &failed) {
    bool any = false;
    auto is_whole = [](const quire_block_copy &copy) {
        return copy.kind == QUIRE_COPY_ZERO || copy.kind == QUIRE_COPY_ON_WRITE ||
               copy.kind == QUIRE_COPY_SWAP_IN || copy.kind == QUIRE_COPY_SWAP_OUT;
    };
    for (const quire_block_copy &copy : failed.copies) {
        if (!is_whole(copy)) continue;
        journal_.target(copy).is_suspect = true;
        any = true;
    }
    if (!any) return false;
    for (uint64_t step = failed.number + 1; step < timeline_.next(); ++step) {
        const StepRecord &later = records_[Timeline::slot(step)];
        if (later.number != step) continue;
        for (const quire_block_copy &copy : later.copies) {
            if (!is_whole(copy)) continue;
            bool zeroes = copy.kind == QUIRE_COPY_ZERO;
            journal_.target(copy).is_suspect = !zeroes && journal_.source(copy).is_suspect;
        }
    }
    journal_.distrust_suspects();
    return true;
}

// A suspect block whose slots a sequence has all written, in steps that did not fail, shows nothing
// of other tenants. That stays so when the sequence gives tokens up, until one of the steps fails.
void Cache::cover_suspects() {
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        if (!sequence_handles_.is_live(i)) continue;
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            if (!geometry_.groups[g].cross) cover_table(i, g);
        }
    }
}

void Cache::cover_table(uint32_t sequence, uint32_t group) {
    const Sequence &s = sequences_[sequence];
    const BlockTable &t = journal_.table(sequence, group);
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    uint32_t full = s.state.computed >> geometry_.block_shift;
    for (uint32_t i = 0; i < full && i < t.length; ++i) {
        if (t.ids.data[i] == kNullBlock) continue;
        Block &b = swapped ? (*journal_.host_pool(group))[t.ids.data[i]]
                           : journal_.pool(group)[t.ids.data[i]];
        if (!b.is_suspect || b.is_covered) continue;
        b.is_covered = true;
        b.ready = timeline_.next() - 1;
        b.depends = depends(s, (i + 1) << geometry_.block_shift);
    }
}

// The table's first block that is suspect and not completely written: its unwritten slots may hold
// another tenant's content. kNone if there is no such block. REQUIRES: cover_suspects().
uint32_t Cache::first_suspect(uint32_t sequence, uint32_t group) const {
    const Sequence &s = sequences_[sequence];
    const BlockTable &t = journal_.table(sequence, group);
    bool swapped = (s.state.flags & Sequence::kSwapped) != 0;
    const BlockPool &pool = swapped ? *journal_.host_pool(group) : journal_.pool(group);
    uint32_t written =
        geometry_.groups[group].cross && s.state.computed != 0 ? s.cross_tokens : s.state.computed;
    for (uint32_t i = written >> geometry_.block_shift; i < t.length; ++i) {
        uint32_t block = t.ids.data[i];
        if (block == kNullBlock) continue;
        if (pool[block].is_suspect && !pool[block].is_covered) return i;
    }
    return kNone;
}

// A later step may have handed out a block that the failed one should have zeroed. Zeroing it now
// would destroy what its holder has written since, so the holder computes that again, in a block
// that is zeroed.
void Cache::lose_suspects() {
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        Sequence &s = sequences_[i];
        if (!sequence_handles_.is_live(i)) continue;
        for (uint32_t g = 0; g < geometry_.group_count; ++g) {
            if ((s.state.flags & Sequence::kSwapped) != 0 && journal_.table(i, g).length == 0)
                continue;
            uint32_t first = first_suspect(i, g);
            if (first == kNone) continue;
            uint32_t valid = geometry_.groups[g].cross ? 0 : first << geometry_.block_shift;
            // Tokens that are still to be moved may lie there.
            bool moves_away = s.state.move_count != 0 && s.covered() > valid;
            if (moves_away && s.state.move_begin < valid) valid = s.state.move_begin;
            if (s.state.computed > valid) {
                counts_.sequences_lost += s.marked != call_;
                lose(i, valid);
                continue;
            }
            uint32_t room = valid > s.state.known ? valid - s.state.known : 0;
            if (s.state.lookahead > room) s.state.lookahead = room;
            release_from(i, valid >> geometry_.block_shift, kNone);
            leader_.touch(i);
        }
    }
}

void Cache::fail_step(StepRecord *failed) {
    const StepRecord &record = *failed;
    failed->failed = true;
    if (is_stopped_) return;  // nothing that it holds is used any more
    if (follower_.active()) {
        return follower_.stop(fail(QUIRE_E_DEVICE_LOST,
                                   "a device of this follower failed in log number {}: the "
                                   "follower stopped, and all ranks must be restarted",
                                   record.number));
    }
    bool any_suspect = suspect_copies(record);
    any_suspect |= journal_.uncover(record.number);
    uint32_t slot = Timeline::slot(record.number);
    ++call_;
    for (const Change &change : record.changes) {
        if (sequence_handles_.handle(change.sequence) == change.handle)
            sequences_[change.sequence].marked = call_;
    }
    for (uint32_t i = 0; i < sequences_.size(); ++i) {
        const Sequence &s = sequences_[i];
        if (!sequence_handles_.is_live(i) || s.pending_step[slot] != record.number) continue;
        bool of_the_step = s.marked == call_;
        if (s.state.computed <= s.pending_position[slot]) continue;
        counts_.sequences_lost += !of_the_step;
        lose(i, s.pending_position[slot]);
    }
    if (any_suspect) {
        cover_suspects();
        if (journal_.may_show_others()) lose_suspects();
        journal_.clear_suspects();
    }
    withdraw_published(record.number);
}

}  // namespace quire
