// SPDX-License-Identifier: Apache-2.0
//
// timeline: which steps may still be running, and what that allows.
//
// Steps are numbered in the order of their commits. A block remembers the last step that may touch
// it. A queue may reuse the block when every step up to that one is done or runs on the same queue,
// where later work waits anyway. Steps count as done in their order, so the highest number is
// enough.
//
// Invariants: (1) oldest_ <= next_ <= oldest_ + kMaxUnfinished;  (2) numbers below oldest_ are
// done.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/status.hpp"
#include "quire/step.h"

namespace quire {

constexpr uint32_t kMaxUnfinished = QUIRE_UNFINISHED_STEPS;
constexpr uint64_t kNoBarrier = UINT64_MAX;
constexpr uint64_t kAnyQueue = UINT64_MAX;     // no queue has this number
constexpr uint64_t kNoQueue = UINT64_MAX - 1;  // nor this: of a step that nothing was enqueued for

class Timeline {
 public:
    // Number of the step that is open or will be opened next.
    uint64_t next() const { return next_; }
    uint64_t oldest() const { return oldest_; }
    bool full() const { return next_ - oldest_ == kMaxUnfinished; }
    bool idle() const { return next_ == oldest_; }
    static uint32_t ring_index(uint64_t step) {
        return static_cast<uint32_t>(step % kMaxUnfinished);
    }

    // Everything up to the step has run.
    bool done(uint64_t step) const { return step < oldest_; }
    // The step itself has run, whatever older ones on other queues do.
    bool has_run(uint64_t step) const {
        return done(step) || (step < next_ && complete_[ring_index(step)]);
    }

    // The open step is now committed.
    void commit(uint64_t queue) {
        QUIRE_ASSERT(!full());
        queues_[ring_index(next_)] = queue;
        complete_[ring_index(next_)] = false;
        ++next_;
    }

    // REQUIRES: step is committed and not done.
    void complete(uint64_t step) {
        QUIRE_ASSERT(step >= oldest_ && step < next_);
        complete_[ring_index(step)] = true;
        while (oldest_ < next_ && complete_[ring_index(oldest_)]) ++oldest_;
    }

    // The first step that `queue` would have to wait for; kNoBarrier if it need not wait.
    uint64_t barrier(uint64_t queue) const {
        for (uint64_t step = oldest_; step < next_; ++step) {
            if (queues_[ring_index(step)] != queue) return step;
        }
        return kNoBarrier;
    }

    // True if work on `queue` may read what `step` wrote.
    bool visible(uint64_t step, uint64_t queue) const {
        return step < oldest_ || step >= next_ || queue == kAnyQueue ||
               queues_[ring_index(step)] == queue;
    }

    uint64_t queue_of(uint64_t step) const { return queues_[ring_index(step)]; }

 private:
    uint64_t next_ = 1;
    uint64_t oldest_ = 1;
    uint64_t queues_[kMaxUnfinished] = {};
    bool complete_[kMaxUnfinished] = {};
};

}  // namespace quire
