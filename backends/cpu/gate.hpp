// SPDX-License-Identifier: Apache-2.0
//
// gate: who is inside the kernel that runs, so that it ends when the last of them has left.
//
// Why not a count of those who are to come: who sleeps when a kernel begins may wake after the
// others have done all of it. Nobody should wait for that one, and it must not touch what the
// kernel's caller has already taken back: it finds the gate closed.
//
// Invariants
//   (1) enter() succeeds between open() and close() alone
//   (2) close() returns when all who entered have left
//
// Threads: enter() and leave() from any; open() and close() from one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire::cpu {

// Looks again and again, for `spin_ns` at most; returns whether `done` came true.
template <typename Done>
bool spin(uint64_t spin_ns, Done done) {
    if (done()) return true;
    if (spin_ns == 0) return false;
    auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(spin_ns);
    do {
        for (int i = 0; i < 16; ++i) {
            if (done()) return true;
#if defined(__x86_64__) || defined(__i386__)
            __builtin_ia32_pause();  // leaves the core to its other thread
#elif defined(__aarch64__)
            asm volatile("yield");
#endif
        }
    } while (std::chrono::steady_clock::now() < end);
    return done();
}

class Gate {
 public:
    // REQUIRES: closed, and nobody inside.
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

    std::atomic<uint64_t> state_{0};  // kOpen, and how many are inside
    std::mutex mutex_;
    std::condition_variable empty_;
};

}  // namespace quire::cpu
