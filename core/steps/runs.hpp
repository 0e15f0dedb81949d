// SPDX-License-Identifier: Apache-2.0
//
// runs: steps on the devices: their queues, copies and uploads, and the fences that say when their
// work has run. It knows no tokens: what a failure means is decided above.
//
// Ownership: refers to the books; owns the names of queue sets. A queue stays the engine's, which
// may not destroy it while it has unfinished steps.
// Threads: none; Cache holds its lock, and takes each queue's lock around what it enqueues.
#pragma once

#include "core/device/queue_set.hpp"
#include "core/steps/cache_books.hpp"

namespace quire {

struct StepOptions {
    uint32_t flags = 0;
    uint32_t preempt = 0;
    uint64_t queue_tag = 0;  // for a bookkeeping-only cache
    uint32_t queue_count = 0;
    Queue *queues[kMaxShards];  // one per shard
};

class Runs {
 public:
    explicit Runs(CacheBooks *books) : books_(*books) {}

    // Holds the step's queues, and gives them their name on the timeline.
    void hold_queues(StepRecord *record, const StepOptions &options);
    // Gives the step a handle. Comes last, so that a refused call uses up no number.
    Status name_step(StepRecord *record);
    // Ends the open step. REQUIRES: its changes are undone.
    void close(StepRecord *record);

    // An engine's own stream accepts nothing while the engine captures it. A call that cannot go
    // back once it has begun checks for this first, by a wait for a value that is already reached.
    // Any other fault of a queue shows up when the work is enqueued.
    Status check_queues(const StepRecord &record, quire_error *error);
    // The unfinished steps of other queues, as a set of ring indices, that the step must run after:
    // those in which its sequences last ran.
    uint32_t steps_to_wait_for(const StepRecord &record) const;
    // The unfinished steps on a queue.
    uint32_t unfinished_on(uint64_t queue) const;
    // Makes the step's queues wait for these steps' fences, and notes them in the record.
    Status wait_for_other_queues(StepRecord *record, quire_error *error);
    // Makes the step's queues wait on the devices for another step's fences.
    Status wait_for_step(const StepRecord &record, const StepRecord &other, quire_error *error);
    // The step takes its place on the timeline with nothing enqueued, because a device refused its
    // part before. It has no queue there: what comes after it on its queues must still wait for
    // what it should have waited for: its queue's order too, by which an item may have found what
    // an unfinished step computes. Comes before commit().
    void leave_unordered(StepRecord *record);

    // The step is final: takes its place on the timeline.
    void commit(StepRecord *record, Batch *batch);
    // Enqueues its copies and the batch's tables. REQUIRES: commit().
    Status enqueue(const StepRecord &record, Batch *batch, quire_error *error);
    // A device failed at commit. Whether the step was final or not, it is gone, and the caller gets
    // one code for both. The backend's own code is in native_code.
    static Status lost_at_commit(const Status &why, quire_error *error);

    // Finds a committed step for finish, and checks its outcome.
    Status find_committed(uint64_t step, uint32_t outcome, StepRecord **out) {
        QUIRE_TRY(books_.records.find(step, false, out));
        if ((*out)->phase != StepPhase::committed) {
            return fail(QUIRE_E_BUSY, "the step is not committed: commit or abort it");
        }
        if (outcome == QUIRE_STEP_OK || outcome == QUIRE_STEP_FAILED) [[likely]]
            return Status{};
        return fail(QUIRE_E_ARG, "outcome {} is not known", outcome);
    }
    // Inserts the step's fences. native: may be nullptr.
    Status finish(StepRecord *record, const quire_native *native, quire_error *error);
    // The step's queue waits for the engine's signal first. native: may be nullptr.
    Status wait_for_native(StepRecord *record, const quire_native *native, quire_error *error) {
        if (native == nullptr || native->kind == QUIRE_NATIVE_NONE) [[likely]]
            return Status{};
        return wait_for_signal(record, *native, error);
    }
    // Ends a committed step that is undone, because the engine says so or a device refused its
    // part. The part that was enqueued may still run: the blocks wait for fences as after finish. A
    // fence that a device refuses is asked for again at each poll, until it is accepted or nothing
    // runs on the device. False if none of the step can run; then complete() comes next.
    bool abandon(StepRecord *record);
    // Called when the work of the step has run.
    void complete(StepRecord *record);

    // Reads fences; steps whose work has run become done. Calls fail(record) for each that a device
    // failed, unless a step is open: then at the next begin.
    template <typename Fail>
    Status poll(quire_error *error, Fail fail);
    // The fence that must be reached before what steps wrote is read; if there is none, fence is
    // NULL. Errors  QUIRE_E_BUSY: a step is not finished.
    struct Awaited {
        const quire_backend_api *api = nullptr;
        quire_be_fence *fence = nullptr;
        uint64_t value = 0;
    };
    Status await_writes(Awaited *out, quire_error *error);
    // The same for one step and all before it.
    Status await_step(uint64_t step, Awaited *out, quire_error *error);
    // The open step is neither undone nor enqueued; its handle is dropped, and its record stays for
    // a dump. Committed steps can still be finished.
    void stop();

 private:
    Status await_up_to(uint64_t end, Awaited *out, quire_error *error);
    Status wait_for_signal(StepRecord *record, const quire_native &native, quire_error *error);
    void release_queues(StepRecord *record);
    Status enqueue_on(uint32_t shard, const StepRecord &record, Batch *batch, quire_error *error);
    void begin_batch(StepRecord *record, Batch *batch);
    void end_batch(StepRecord *record);
    Status signal(StepRecord *record, uint32_t shard, quire_error *error);
    uint32_t unmet_waits(const StepRecord &record) const;
    void track_again(StepRecord *record, uint32_t shard);
    Status read_fences(StepRecord *record, bool *passed, bool *failed, quire_error *error);

    CacheBooks &books_;
    QueueSets queue_sets_;
};

template <typename Fail>
Status Runs::poll(quire_error *error, Fail fail) {
    if (!books_.has_memory) return Status{};
    for (uint64_t step = books_.timeline.oldest(); step < books_.timeline.next(); ++step) {
        StepRecord &record = books_.records[Timeline::ring_index(step)];
        if (record.phase != StepPhase::finished) continue;
        bool passed = false, failed = false;
        QUIRE_TRY(read_fences(&record, &passed, &failed, error));
        if (!passed) continue;
        if (failed && !record.failed) {
            if (books_.records.is_open()) continue;  // rolled back at the next begin
            fail(&record);
        }
        complete(&record);
    }
    return Status{};
}

}  // namespace quire
