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
#include <chrono>
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

// How long to wait until the next look at the device. We run no thread that watches it, so waiters
// poll: at once for 50 us, which is what waking from a sleep takes, and then after a sixteenth of
// the time waited so far. So a wait is a sixteenth too long at most, and never more than 100 us,
// at the cost of a few per cent of a processor. A driver's own wait for an event would be no
// longer, but it knows no deadline, and does not end when the host raises the fence.
class Pause {
 public:
    // 0 until 50 us have passed.
    uint64_t next_ns() {
        constexpr uint64_t kShortNs = 50'000, kLeastNs = 10'000, kMostNs = 100'000;
        std::chrono::nanoseconds waited = std::chrono::steady_clock::now() - begin_;
        auto waited_ns = static_cast<uint64_t>(waited.count());
        is_short_ = waited_ns < kShortNs;
        return is_short_ ? 0 : std::clamp(waited_ns / 16, kLeastNs, kMostNs);
    }
    // True if the last one was 0: too early to ask the driver whether the device still works.
    bool is_short() const { return is_short_; }

 private:
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    bool is_short_ = true;
};

}  // namespace quire::gpu
