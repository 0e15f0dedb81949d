// SPDX-License-Identifier: Apache-2.0
//
// objects: how many objects the plugin has handed out, and how many references each has.
//
// Why both: a caller that releases an object gives back one reference. Queues, commands and other
// objects may hold more, so that memory lives as long as it is used.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

// Devices, queues, fences, plans and memories created and not yet released, over all devices.
inline std::atomic<uint64_t> live_objects{0};

class References {
 public:
    explicit References(uint32_t count) : count_(count) {}

    void add() { count_.fetch_add(1, std::memory_order_relaxed); }
    // True if this was the last one: the caller deletes the object.
    [[nodiscard]] bool drop() { return count_.fetch_sub(1, std::memory_order_acq_rel) == 1; }
    bool is_single() const { return count_.load() == 1; }

 private:
    std::atomic<uint32_t> count_;
};

}  // namespace quire
