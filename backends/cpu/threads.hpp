// SPDX-License-Identifier: Apache-2.0
//
// threads: the threads of a device, its own or the engine's, and the pool that shares out one
// kernel's items among them.
//
// Every thread blocks all signals, so the process's handlers run on the process's own threads, and
// starts with the default rounding: a creator compiled for fast mathematics would hand down
// flush-to-zero, and results would depend on who opened the device.
//
// Invariants of ThreadPool
//   (1) one kernel runs at a time, in the order in which they came; each item runs exactly once
//   (2) run() returns when all items have run and no helper looks at the kernel any more
// Which thread runs an item is chance, so an item's result must not depend on it.
//
// Why helpers look around for kSpinNs before they sleep: waking one takes the system as long as a
// small kernel runs, and a decode step is a row of small kernels, a few for each layer. Only where
// each thread of the pool has a core: else they would keep from it whom they wait for.
//
// The engine's threads come as a callback that runs tasks. Task i of a kernel is its thread i, and
// takes items like a helper. What a callback does wrong is counted, and cannot reach beyond the
// gate; misuse() then says that results are not to be had from this device any more.
//
// Threads: run() from any queue's worker; start() and stop() from one thread.
#pragma once

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "gate.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

// Cores this process may run on.
uint32_t core_count();

struct ThreadOptions {
    uint32_t thread_count = 1;
    bool is_pinned = false;               // thread i to the i-th core
    quire_run_tasks run_tasks = nullptr;  // NULL: threads of the pool's own
    void *run_tasks_user = nullptr;
};

// Tasks, of all kernels, with which run_tasks broke its promise.
struct HostMisuse {
    uint32_t left_out = 0;
    uint32_t repeated = 0;  // or of an index that no task has
    uint32_t late = 0;      // began when run_tasks had returned

    bool is_any() const { return (left_out | repeated | late) != 0; }
};

class ThreadPool {
 public:
    using Task = void (*)(const void *context, uint32_t item, uint32_t thread);

    ThreadPool() = default;
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;
    ~ThreadPool() { stop(); }

    // Starts thread_count - 1 helpers: who calls run() is the first of the threads. None where the
    // engine has threads. Returns 0 or an error number, and then no helper is left.
    // REQUIRES: thread_count is not 0.
    [[nodiscard]] int start(const ThreadOptions &options);
    void stop();

    // Starts the thread of a queue, who will call run(). Returns 0 or an error number.
    [[nodiscard]] int start_queue(void *(*body)(void *), void *argument, pthread_t *out);

    // Runs task(context, item, thread) for each item of [0, item_count); thread < thread_count().
    void run(uint32_t item_count, Task task, const void *context);

    uint32_t thread_count() const { return options_.thread_count; }
    HostMisuse misuse() const;

 private:
    // The caller's turn, in the order of asking: a mutex would let who has just left in again.
    class Turn {
     public:
        explicit Turn(ThreadPool *pool);
        ~Turn();

     private:
        ThreadPool *pool_;
    };

    int start_thread(const char *name, uint32_t thread, void *(*body)(void *), void *argument,
                     pthread_t *out);
    static void *help(void *argument);
    void help_until_stopped(uint32_t thread);
    // Waits for a kernel that is not number `seen`; false when the pool is stopped.
    bool wait_for_kernel(uint64_t seen);
    void wake_helpers(uint32_t count);
    void take_items(uint32_t thread);
    void run_on_host(uint32_t item_count);
    static void run_host_task(void *context, uint32_t index);

    struct Helper {
        ThreadPool *pool = nullptr;
        uint32_t thread = 0;
        pthread_t id{};
    };

    ThreadOptions options_;
    cpu_set_t cores_{};  // that the process might use at the start; where threads are pinned

    std::mutex turn_mutex_;
    std::condition_variable turn_ended_;
    uint64_t turns_asked_ = 0;
    uint64_t turns_ended_ = 0;

    std::mutex mutex_;  // of those who sleep
    std::condition_variable begun_;
    std::atomic<uint32_t> sleeper_count_{0};
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> kernel_number_{0};  // counts kernels that asked for helpers
    Helper *helpers_ = nullptr;
    uint32_t helper_count_ = 0;
    uint64_t spin_ns_ = 0;

    // What is run; written before the gate opens.
    Gate gate_;
    Task task_ = nullptr;
    const void *context_ = nullptr;
    uint32_t item_count_ = 0;
    std::atomic<uint64_t> next_item_{0};  // 64 bits: each thread runs past the end once

    // With run_tasks.
    uint32_t task_count_ = 0;                    // of the kernel that runs
    std::atomic<bool> *task_has_run_ = nullptr;  // [thread_count]
    std::atomic<uint32_t> left_out_{0};
    std::atomic<uint32_t> repeated_{0};
    std::atomic<uint32_t> late_{0};
};

}  // namespace quire::cpu
