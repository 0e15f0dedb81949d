// SPDX-License-Identifier: Apache-2.0
//
// deadline: when a wait of the host ends.
//
// Threads: any; constant once made.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire {

class Deadline {
 public:
    // Counts from now. UINT64_MAX, or more than the clock can count, never passes.
    explicit Deadline(uint64_t timeout_ns);

    bool has_passed() const { return left_ns() == 0; }
    // UINT64_MAX: it never passes.
    uint64_t left_ns() const;

    // Waits until notified, until the deadline, or for `most_ns`: for a waiter that polls a device.
    void wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock,
              uint64_t most_ns) const;

    // Waits until `is_reached()`; false: the deadline passed first.
    template <typename IsReached>
    bool wait_until(std::condition_variable &changed, std::unique_lock<std::mutex> &lock,
                    IsReached is_reached) const {
        if (is_never_) {
            changed.wait(lock, is_reached);
            return true;
        }
        return changed.wait_until(lock, end_, is_reached);
    }

 private:
    bool is_never_ = false;
    std::chrono::steady_clock::time_point end_{};
};

}  // namespace quire
