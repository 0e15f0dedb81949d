// SPDX-License-Identifier: Apache-2.0
//
// batch_list: the batches of a cache that are alive. They are the engine's; this only links them.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/device/batch.hpp"

namespace quire {

class BatchList {
 public:
    void add(Batch *batch) {
        batch->next = first_;
        first_ = batch;
        ++count_;
    }
    void remove(Batch *batch) {
        Batch **link = &first_;
        while (*link != batch) link = &(*link)->next;
        *link = batch->next;
        --count_;
    }
    uint32_t count() const { return count_; }
    void add_memory(DeviceMemory *sum) const {
        for (const Batch *batch = first_; batch != nullptr; batch = batch->next) {
            batch->add_memory(sum);
        }
    }
    // The cache leaves the devices that hold them.
    void invalidate() {
        for (Batch *batch = first_; batch != nullptr; batch = batch->next) batch->invalidate();
    }

 private:
    Batch *first_ = nullptr;
    uint32_t count_ = 0;
};

}  // namespace quire
