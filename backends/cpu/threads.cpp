// SPDX-License-Identifier: Apache-2.0

#include "threads.hpp"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstdio>
#include <new>

namespace quire::cpu {

namespace {

// About the time the system takes to wake a thread: spinning for longer costs more than sleeping.
constexpr uint64_t kSpinNs = 20'000;

// The core for thread number `thread`, as a set of one core.
cpu_set_t core_of(const cpu_set_t &allowed, uint32_t thread) {
    auto place = thread % static_cast<uint32_t>(CPU_COUNT(&allowed));
    cpu_set_t only;
    CPU_ZERO(&only);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &allowed) && place-- == 0) {
            CPU_SET(core, &only);
            break;
        }
    }
    return only;
}

}  // namespace

uint32_t core_count() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    // Fails if the machine has more cores than the set holds; then all cores online count.
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        return static_cast<uint32_t>(std::max(1, CPU_COUNT(&allowed)));
    }
    return static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
}

ThreadPool::Turn::Turn(ThreadPool *pool) : pool_(pool) {
    std::unique_lock lock(pool_->turn_mutex_);
    uint64_t number = pool_->turns_asked_++;
    pool_->turn_ended_.wait(lock, [&] { return pool_->turns_ended_ == number; });
}

ThreadPool::Turn::~Turn() {
    std::lock_guard lock(pool_->turn_mutex_);
    ++pool_->turns_ended_;
    if (pool_->turns_ended_ != pool_->turns_asked_) pool_->turn_ended_.notify_all();
}

int ThreadPool::start_thread(const char *name, uint32_t thread, void *(*body)(void *),
                             void *argument, pthread_t *out) {
    pthread_attr_t attributes;
    if (int result = pthread_attr_init(&attributes)) return result;
    int result = 0;
    if (options_.is_pinned) {
        cpu_set_t core = core_of(cores_, thread);
        result = pthread_attr_setaffinity_np(&attributes, sizeof core, &core);
    }
    if (result == 0) {
        // A new thread inherits the mask, so no signal can reach it before it has blocked them.
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        result = pthread_create(out, &attributes, body, argument);
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    pthread_attr_destroy(&attributes);
    if (result == 0) pthread_setname_np(*out, name);
    return result;
}

int ThreadPool::start_queue(void *(*body)(void *), void *argument, pthread_t *out) {
    return start_thread("quire-cpu-queue", 0, body, argument, out);
}

int ThreadPool::start(const ThreadOptions &options) {
    options_ = options;
    if (options.is_pinned && sched_getaffinity(0, sizeof cores_, &cores_) != 0) return errno;
    uint32_t thread_count = options.thread_count;
    if (options.run_tasks != nullptr) {
        task_has_run_ = new (std::nothrow) std::atomic<bool>[thread_count];
        return task_has_run_ != nullptr ? 0 : ENOMEM;
    }
    if (thread_count == 1) return 0;
    spin_ns_ = thread_count <= core_count() ? kSpinNs : 0;
    helpers_ = new (std::nothrow) Helper[thread_count - 1];
    if (helpers_ == nullptr) return ENOMEM;
    for (uint32_t i = 0; i < thread_count - 1; ++i) {
        helpers_[i].pool = this;
        helpers_[i].thread = i + 1;
        char name[16];  // the system's limit
        std::snprintf(name, sizeof name, "quire-cpu-%u", (i + 1) % 10000);
        if (int result =
                start_thread(name, i + 1, &ThreadPool::help, &helpers_[i], &helpers_[i].id)) {
            stop();
            return result;
        }
        ++helper_count_;
    }
    return 0;
}

void ThreadPool::stop() {
    {
        std::lock_guard lock(mutex_);
        stopping_.store(true);
    }
    begun_.notify_all();
    for (uint32_t i = 0; i < helper_count_; ++i) pthread_join(helpers_[i].id, nullptr);
    delete[] helpers_;
    delete[] task_has_run_;
    helpers_ = nullptr;
    task_has_run_ = nullptr;
    helper_count_ = 0;
}

void ThreadPool::run(uint32_t item_count, Task task, const void *context) {
    Turn turn(this);
    if (options_.thread_count == 1 || item_count <= 1) {
        for (uint32_t i = 0; i < item_count; ++i) task(context, i, 0);
        return;
    }
    task_ = task;
    context_ = context;
    item_count_ = item_count;
    next_item_.store(0, std::memory_order_relaxed);
    if (options_.run_tasks != nullptr) return run_on_host(item_count);
    gate_.open();
    wake_helpers(item_count - 1);
    take_items(0);
    gate_.close(spin_ns_);
}

void ThreadPool::run_on_host(uint32_t item_count) {
    task_count_ = std::min(options_.thread_count, item_count);
    for (uint32_t i = 0; i < task_count_; ++i) task_has_run_[i].store(false);
    gate_.open();
    options_.run_tasks(options_.run_tasks_user, task_count_, &ThreadPool::run_host_task, this);
    // The gate should be empty: a task still inside would otherwise run the next kernel's items.
    gate_.close(0);
    for (uint32_t i = 0; i < task_count_; ++i) {
        if (!task_has_run_[i].load()) ++left_out_;
    }
}

void ThreadPool::run_host_task(void *context, uint32_t index) {
    auto *pool = static_cast<ThreadPool *>(context);
    if (!pool->gate_.enter()) {
        ++pool->late_;
        return;
    }
    if (index >= pool->task_count_ || pool->task_has_run_[index].exchange(true)) {
        ++pool->repeated_;
    } else {
        std::fenv_t theirs;
        std::fegetenv(&theirs);
        std::fesetenv(FE_DFL_ENV);
        pool->take_items(index);
        std::fesetenv(&theirs);
    }
    pool->gate_.leave();
}

HostMisuse ThreadPool::misuse() const {
    return {left_out_.load(std::memory_order_relaxed), repeated_.load(std::memory_order_relaxed),
            late_.load(std::memory_order_relaxed)};
}

void ThreadPool::wake_helpers(uint32_t count) {
    // Either this thread sees the sleeper, or the helper about to sleep sees the new number: each
    // writes before it reads, in one total order.
    kernel_number_.fetch_add(1);
    uint32_t sleepers = sleeper_count_.load();
    if (sleepers == 0) return;
    std::lock_guard lock(mutex_);
    if (count >= sleepers) begun_.notify_all();
    for (uint32_t i = 0; count < sleepers && i < count; ++i) begun_.notify_one();
}

void ThreadPool::take_items(uint32_t thread) {
    for (;;) {
        uint64_t item = next_item_.fetch_add(1, std::memory_order_relaxed);
        if (item >= item_count_) return;
        task_(context_, static_cast<uint32_t>(item), thread);
    }
}

void *ThreadPool::help(void *argument) {
    std::fesetenv(FE_DFL_ENV);
    auto *helper = static_cast<Helper *>(argument);
    helper->pool->help_until_stopped(helper->thread);
    return nullptr;
}

bool ThreadPool::wait_for_kernel(uint64_t seen) {
    auto is_over = [&] { return stopping_.load() || kernel_number_.load() != seen; };
    if (!spin(spin_ns_, is_over)) {
        std::unique_lock lock(mutex_);
        ++sleeper_count_;
        begun_.wait(lock, is_over);
        --sleeper_count_;
    }
    return !stopping_.load();
}

void ThreadPool::help_until_stopped(uint32_t thread) {
    uint64_t seen = 0;
    while (wait_for_kernel(seen)) {
        seen = kernel_number_.load();
        if (!gate_.enter()) continue;
        take_items(thread);
        gate_.leave();
    }
}

}  // namespace quire::cpu
