// SPDX-License-Identifier: Apache-2.0
//
// turnstile: a lock that can be given up for good: then all who wait for it, and all who come
// later, are turned away, while the one who holds it may hold it for ever.
//
// Why no std::mutex: a call that hangs inside a driver would keep every thread that waits for it.
//
// States: free, held, or held while others may wait; and for good, whichever of these it is in,
// abandoned. A waiter marks the state before it sleeps, and takes the lock with the mark, so that
// leaving wakes the next one. Taking and leaving a free one is one atomic operation each.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace quire {

class Turnstile {
 public:
    // False: it was abandoned, and is not held.
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
    // Waits for nobody. False: it was abandoned before.
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
