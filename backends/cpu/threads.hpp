// SPDX-License-Identifier: Apache-2.0
//
// threads: a device's threads, its own or the engine's, and the pool that distributes the items of
// one kernel among them.
//
// Every thread blocks all signals, so the process's handlers run on the process's own threads.
// Every thread also starts in the default floating-point environment: it would otherwise inherit
// flush-to-zero from a creator compiled with fast math, and results would depend on who opened the
// device.
//
// Invariants of ThreadPool
//   (1) kernels run one at a time, in order of arrival; each item runs exactly once
//   (2) run() returns when all items have run and no helper is looking at the kernel any more
// Any thread may run any item, so an item's result must not depend on the thread.
//
// Why helpers spin for kSpinNs before they sleep: waking one takes the system as long as a small
// kernel runs, and a decode step is a series of small kernels, a few per layer. They spin only if
// each thread of the pool has a core: otherwise they would take it from the thread they wait for.
//
// The engine provides its threads as a callback that runs tasks. Task i of a kernel acts as thread
// i and takes items like a helper. Violations by the callback are counted and cannot get past the
// gate; misuse() then reports that the device's results are no longer valid.
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

// Cores that this process may run on.
uint32_t core_count();

struct ThreadOptions {
    uint32_t thread_count = 1;
    bool is_pinned = false;               // thread i to the i-th core
    quire_run_tasks run_tasks = nullptr;  // NULL: threads of the pool's own
    void *run_tasks_user = nullptr;
};

// How often, over all kernels, run_tasks broke its contract, in tasks.
struct HostMisuse {
    uint32_t left_out = 0;
    uint32_t repeated = 0;  // or called with an index out of range
    uint32_t late = 0;      // began after run_tasks had returned

    bool is_any() const { return (left_out | repeated | late) != 0; }
};

class ThreadPool {
 public:
    using Task = void (*)(const void *context, uint32_t item, uint32_t thread);

    ThreadPool() = default;
    ThreadPool(const ThreadPool &) = delete;
    ThreadPool &operator=(const ThreadPool &) = delete;
    ~ThreadPool() { stop(); }

    // Starts thread_count - 1 helpers; the caller of run() is the first thread. Starts none if the
    // engine provides the threads. Returns 0 or an error number; after an error no helper is left.
    // REQUIRES: thread_count is not 0.
    [[nodiscard]] int start(const ThreadOptions &options);
    void stop();

    // Starts the thread of a queue, which will call run(). Returns 0 or an error number.
    [[nodiscard]] int start_queue(void *(*body)(void *), void *argument, pthread_t *out);

    // Runs task(context, item, thread) for each item in [0, item_count); thread < thread_count().
    void run(uint32_t item_count, Task task, const void *context);

    uint32_t thread_count() const { return options_.thread_count; }
    HostMisuse misuse() const;

 private:
    // The caller's turn, first come, first served: a mutex could readmit the thread that just left.
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
    // Waits for a kernel with a number other than `seen`; returns false if the pool is stopped.
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
    cpu_set_t cores_{};  // available to the process at start(); only if pinned

    std::mutex turn_mutex_;
    std::condition_variable turn_ended_;
    uint64_t turns_asked_ = 0;
    uint64_t turns_ended_ = 0;

    std::mutex mutex_;  // for sleeping helpers
    std::condition_variable begun_;
    std::atomic<uint32_t> sleeper_count_{0};
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> kernel_number_{0};  // counts kernels that asked for helpers
    Helper *helpers_ = nullptr;
    uint32_t helper_count_ = 0;
    uint64_t spin_ns_ = 0;

    // The running kernel; written before the gate opens.
    Gate gate_;
    Task task_ = nullptr;
    const void *context_ = nullptr;
    uint32_t item_count_ = 0;
    std::atomic<uint64_t> next_item_{0};  // 64 bits: each thread increments it once past the end

    // Used only with run_tasks.
    uint32_t task_count_ = 0;                    // of the running kernel
    std::atomic<bool> *task_has_run_ = nullptr;  // [thread_count]
    std::atomic<uint32_t> left_out_{0};
    std::atomic<uint32_t> repeated_{0};
    std::atomic<uint32_t> late_{0};
};

}  // namespace quire::cpu
