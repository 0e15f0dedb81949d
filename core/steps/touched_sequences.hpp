// SPDX-License-Identifier: Apache-2.0
//
// touched_sequences: which sequences may differ from what a leader's last log said, by index; each
// listed once.
//
// Why here and not with the log: whatever changes a sequence notes it, and knows no log.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"

namespace quire {

class TouchedSequences {
 public:
    explicit TouchedSequences(const HostAllocator *host) : indices_(host), is_touched_(host) {}

    // Only a cache that leads calls this; otherwise nothing is noted. False: no memory.
    [[nodiscard]] bool create(uint32_t max_sequences) {
        if (!indices_.create(max_sequences) || !is_touched_.create(max_sequences)) return false;
        indices_.shrink(0);
        active_ = true;
        return true;
    }
    void touch(uint32_t index) {
        if (!active_ || is_touched_[index] != 0) [[likely]]
            return;
        is_touched_[index] = 1;
        indices_.push(index);
    }
    const Array<uint32_t> &indices() const { return indices_; }
    void clear() {
        for (uint32_t index : indices_) is_touched_[index] = 0;
        indices_.shrink(0);
    }

 private:
    bool active_ = false;
    Array<uint32_t> indices_;
    Array<uint8_t> is_touched_;  // by index
};

}  // namespace quire
