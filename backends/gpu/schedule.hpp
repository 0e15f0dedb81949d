// SPDX-License-Identifier: Apache-2.0
//
// schedule: what happens among a device's queues and fences.
//
// A signal lets held queues go on, whose own signals let others go on (queue.hpp). Cells and memory
// that were released are taken back once no queue uses them.
//
// device.hpp, fence.hpp and queue.hpp lie below this file, in this order; calls lie above it.
//
// Threads: any. REQUIRES, for all below: the device's mutex is held and its context is current.
#pragma once

#include <algorithm>
#include <cstdint>

#include "context.hpp"
#include "device.hpp"
#include "queue.hpp"

namespace quire::gpu {

// How much work the device has: that of its busiest queue.
Work work_of(const Device &device);
// Asks the driver whether it still works.
void look(Device &device, const Entered &entered);
// Submits held commands to their streams as far as their waits allow, and lets fences fail.
void pump(Device &device, const Entered &entered);
// Returns cells and memory that were released and are no longer in use.
void sweep(Device &device);
// True if pump() may have something to do.
bool needs_pump(const Device &device);
// True if a queue is held, waiting for a signal.
bool has_held_queue(const Device &device);

// How long to wait until the next look at the device, longer each time. We run no thread that
// watches it, so waiters poll.
class Pause {
 public:
    uint64_t next_ns() {
        constexpr uint64_t kMostNs = 500'000;
        uint64_t now_ns = next_ns_;
        next_ns_ = std::min(now_ns * 2, kMostNs);
        return now_ns;
    }

 private:
    uint64_t next_ns_ = 10'000;
};

}  // namespace quire::gpu
