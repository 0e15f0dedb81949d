// SPDX-License-Identifier: Apache-2.0
//
// queue_set: gives the queues of a step, one per shard, one number for the timeline.
//
// Why a table and not a hash: work on "the same queue" is ordered without a fence, so two tuples
// that are not equal must never share a name. A tuple is forgotten when no step of it can still
// run, and gets a new name when it is used again.
//
// Invariant: a tuple with a step that is not done keeps its name. At most kMaxUnfinished - 1 steps
// are not done when a step begins, so that one place is always free.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/geometry.hpp"
#include "core/blocks/timeline.hpp"
#include "core/device/device.hpp"

namespace quire {

class QueueSets {
 public:
    // REQUIRES: no step is open, and the timeline is not full.
    uint64_t name(Queue *const *queues, uint32_t count, const Timeline &timeline) {
        if (count == 1) [[likely]]
            return queues[0]->number;
        Tuple *free = nullptr;
        for (Tuple &tuple : tuples_) {
            bool equal = tuple.name != 0;
            for (uint32_t i = 0; i < count && equal; ++i) {
                equal = tuple.queues[i] == queues[i]->number;
            }
            if (equal) return tuple.name;
            if (timeline.done(tuple.last_step)) free = &tuple;
        }
        QUIRE_ASSERT(free != nullptr);
        for (uint32_t i = 0; i < count; ++i) free->queues[i] = queues[i]->number;
        free->last_step = 0;
        return free->name = ++named_;
    }

    // A step of the tuple was committed.
    void commit(uint64_t name, uint64_t step) {
        for (Tuple &tuple : tuples_) {
            if (tuple.name == name) tuple.last_step = step;
        }
    }

 private:
    struct Tuple {
        uint64_t name = 0;       // 0: unused
        uint64_t last_step = 0;  // committed; 0 is done
        uint64_t queues[kMaxShards] = {};
    };

    Tuple tuples_[kMaxUnfinished];
    uint64_t named_ = 0;
};

}  // namespace quire
