// SPDX-License-Identifier: Apache-2.0
//
// threads: the threads of a device, and the pool that shares out one kernel's items among them.
//
// Every thread blocks all signals, so the process's handlers run on the process's own threads, and
// starts with the default rounding: a creator compiled for fast mathematics would hand down
// flush-to-zero, and results would depend on who opened the device.
//
// Invariants of ThreadPool
//   (1) one kernel runs at a time; each of its items runs exactly once
//   (2) run() returns when all items have run and no helper looks at the kernel any more
// Which thread runs an item is chance, so an item's result must not depend on it.
//
// Threads: run() from any queue's worker; start() and stop() from one thread.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace quire::cpu {

// Cores this process may run on.
uint32_t core_count();

// Starts body(argument) on a thread of that name (15 bytes at most). Returns 0 or an error number.
[[nodiscard]] int start_thread(const char *name, void *(*body)(void *), void *argument,
                               pthread_t *out);

class ThreadPool {
 public:
    using Task = void (*)(const void *context, uint32_t item, uint32_t thread);

    ThreadPool() = default;
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;
    ~ThreadPool() { stop(); }

    // Starts thread_count - 1 helpers: who calls run() is the last of the threads. Returns 0 or an
    // error number, and then no helper is left.
    [[nodiscard]] int start(uint32_t thread_count);
    void stop();

    // Runs task(context, item, thread) for each item of [0, item_count); thread < thread_count().
    void run(uint32_t item_count, Task task, const void *context);

    uint32_t thread_count() const { return helper_count_ + 1; }

 private:
    static void *help(void *argument);
    void help_until_stopped(uint32_t thread);
    void take_items(uint32_t thread);

    struct Helper {
        ThreadPool *pool = nullptr;
        uint32_t thread = 0;
        pthread_t id{};
    };

    std::mutex turn_;  // held for a whole run()
    std::mutex mutex_;
    std::condition_variable begun_;
    std::condition_variable ended_;
    Helper *helpers_ = nullptr;
    uint32_t helper_count_ = 0;
    bool stopping_ = false;
    uint64_t kernel_number_ = 0;   // counts run() calls that woke helpers
    uint32_t helpers_inside_ = 0;  // that have not yet finished with this kernel
    Task task_ = nullptr;
    const void *context_ = nullptr;
    uint32_t item_count_ = 0;
    std::atomic<uint64_t> next_item_{0};  // 64 bits: each thread runs past the end once
};

}  // namespace quire::cpu
