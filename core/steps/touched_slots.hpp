// SPDX-License-Identifier: Apache-2.0
//
// touched_slots: which sequences may differ from what a leader's last log said; each listed once.
//
// Why here and not with the log: whatever changes a sequence notes it, and knows no log.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/host_memory.hpp"

namespace quire {

class TouchedSlots {
 public:
    explicit TouchedSlots(const HostAllocator *host) : slots_(host), is_touched_(host) {}

    // Only a cache that leads calls this; otherwise nothing is noted. False: no memory.
    [[nodiscard]] bool create(uint32_t max_sequences) {
        if (!slots_.create(max_sequences) || !is_touched_.create(max_sequences)) return false;
        slots_.shrink(0);
        active_ = true;
        return true;
    }
    void touch(uint32_t slot) {
        if (!active_ || is_touched_[slot] != 0) [[likely]]
            return;
        is_touched_[slot] = 1;
        slots_.push(slot);
    }
    const Array<uint32_t> &slots() const { return slots_; }
    void clear() {
        for (uint32_t slot : slots_) is_touched_[slot] = 0;
        slots_.shrink(0);
    }

 private:
    bool active_ = false;
    Array<uint32_t> slots_;
    Array<uint8_t> is_touched_;  // by slot
};

}  // namespace quire
