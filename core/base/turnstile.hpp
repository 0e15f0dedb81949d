// SPDX-License-Identifier: Apache-2.0
//
// turnstile: a lock that can be abandoned for good: then all threads that wait for it, and all that
// come later, are turned away, while the thread that holds it may hold it for ever.
//
// Why not std::mutex: a call that hangs inside a driver would block every waiting thread.
//
// States: free, held, or held while others may wait; each of these may also be abandoned, which is
// final. A waiter marks the state before it sleeps and takes the lock with the mark, so that
// leaving wakes the next one. Taking and leaving a free lock is one atomic operation each.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

class Turnstile {
 public:
    // False: the lock was abandoned, and this thread does not hold it.
    [[nodiscard]] bool enter() {
        uint32_t now = kFree;
        if (state_.compare_exchange_strong(now, kHeld, std::memory_order_acquire)) [[likely]]
            return true;
        return wait();
    }
    // REQUIRES: this thread holds it.
    void leave() {
        uint32_t before = state_.fetch_and(kAbandoned, std::memory_order_release);
        if ((before & kWaitedFor) != 0) state_.notify_one();
    }
    // Does not wait. False: it was abandoned before.
    bool abandon() {
        uint32_t before = state_.fetch_or(kAbandoned, std::memory_order_acq_rel);
        state_.notify_all();
        return (before & kAbandoned) == 0;
    }
    bool is_abandoned() const { return (state_.load(std::memory_order_acquire) & kAbandoned) != 0; }

 private:
    static constexpr uint32_t kFree = 0, kHeld = 1, kWaitedFor = 2, kAbandoned = 4;

    bool wait() {
        for (;;) {
            uint32_t now = state_.load(std::memory_order_acquire);
            if ((now & kAbandoned) != 0) return false;
            if (now == kFree) {
                if (state_.compare_exchange_weak(now, kWaitedFor, std::memory_order_acquire))
                    return true;
                continue;
            }
            if (now == kHeld && !state_.compare_exchange_weak(now, kWaitedFor)) continue;
            state_.wait(kWaitedFor, std::memory_order_acquire);
        }
    }

    std::atomic<uint32_t> state_{kFree};
};

}  // namespace quire
