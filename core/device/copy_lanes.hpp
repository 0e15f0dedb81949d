// SPDX-License-Identifier: Apache-2.0
//
// copy_lanes: one queue of the library's own per shard, for copies to the host beside a step.
//
// A copy runs after what a step has enqueued so far, while the step's queue goes on. The step is
// then finished only after the copy, so that its blocks stay what they are until they were read.
//
// A mark is a value that the lanes' fences reach when all before it has run. Values only grow, also
// when lanes are made anew; one that a device refused is not used again.
//
// Threads: none; Cache holds its lock, and the queue's lock is taken around what is enqueued there.
#pragma once

#include <memory>

#include "core/device/counted_queue.hpp"
#include "core/device/shards.hpp"

namespace quire {

class CopyLanes {
 public:
    // Makes the lanes if there are none, or if a copy on those before has failed.
    Status create(const Shards &shards, quire_error *error);
    // Gives up the lanes, because the cache leaves their devices. Waits for what runs on them.
    void drop();

    // Work that is enqueued on the shard's lane from now on runs after all that `queue` has now.
    Status follow(uint32_t shard, Queue *queue, quire_error *error);
    Status copy(uint32_t shard, const quire_be_copy *copies, uint32_t count, quire_error *error) {
        return lanes_->of[shard].copy(copies, count, error);
    }
    // *value: the mark that all lanes reach when everything enqueued so far has run.
    Status mark(uint64_t *value, quire_error *error);
    // The value of the next mark.
    uint64_t next_mark() const { return last_ + 1; }
    // *reached: true if everything before the mark has run. Fails if a copy did.
    Status look(uint64_t value, bool *reached, quire_error *error);
    // True if nothing from before the mark runs any more, whatever came of it.
    bool has_ended(uint64_t value);
    // The queue goes on after the mark has been reached on the shard's lane. REQUIRES: the queue's
    // lock is held.
    Status hold(uint32_t shard, Queue *queue, uint64_t value, quire_error *error);

 private:
    struct Lanes {
        CountedQueue of[kMaxShards];
        uint32_t count = 0;
    };

    std::unique_ptr<Lanes> lanes_;
    uint64_t before_ = 0;  // the last mark of earlier lanes
    uint64_t last_ = 0;    // that was given, or refused
};

}  // namespace quire
