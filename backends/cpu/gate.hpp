// SPDX-License-Identifier: Apache-2.0
//
// gate: tracks who is inside the running kernel, so that the kernel ends when the last one leaves.
//
// Why not count the helpers that are expected: one that sleeps when a kernel begins may wake after
// the others have done all of the work. The caller should not wait for it, and it must not touch
// what the caller has already taken back; it finds the gate closed.
//
// Invariants
//   (1) enter() succeeds only between open() and close()
//   (2) close() returns once all who entered have left
//
// Threads: enter() and leave() from any; open() and close() from one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire::cpu {

// Polls `done` for at most `spin_ns`; returns whether it became true.
template <typename Done>
bool spin(uint64_t spin_ns, Done done) {
    if (done()) return true;
    if (spin_ns == 0) return false;
    auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        for (int i = 0; i < 16; ++i) {
            if (done()) return true;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();  // yields to the core's other hardware thread
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
    } while (std::chrono::steady_clock::now() < end);
    return done();
}

class Gate {
 public:
    // REQUIRES: closed and empty.
    void open() { state_.store(kOpen, std::memory_order_release); }

    bool enter() {
        uint64_t seen = state_.load(std::memory_order_relaxed);
        while ((seen & kOpen) != 0) {
            if (state_.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire,
                                             std::memory_order_relaxed)) {
                return true;
            }
        }
        return false;
    }

    void leave() {
        if (state_.fetch_sub(1, std::memory_order_release) != 1) return;  // open, or not the last
        std::lock_guard lock(mutex_);
        empty_.notify_one();
    }

    void close(uint64_t spin_ns) {
        state_.fetch_and(~kOpen, std::memory_order_relaxed);
        auto is_empty = [this] { return state_.load(std::memory_order_acquire) == 0; };
        if (spin(spin_ns, is_empty)) return;
        std::unique_lock lock(mutex_);
        empty_.wait(lock, is_empty);
    }

 private:
    static constexpr uint64_t kOpen = uint64_t{1} << 63;

    std::atomic<uint64_t> state_{0};  // kOpen, and the number inside
    std::mutex mutex_;
    std::condition_variable empty_;
};

}  // namespace quire::cpu
