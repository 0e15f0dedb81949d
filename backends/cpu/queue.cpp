// SPDX-License-Identifier: Apache-2.0

#include "queue.hpp"

#include <cfenv>
#include <cstdarg>
#include <cstdio>

#include "device.hpp"
#include "plan.hpp"
#include "threads.hpp"

namespace quire::cpu {

struct Slab {
    static constexpr uint32_t kCommands = 64;  // 21 KiB
    Slab *next;
    Command commands[kCommands];
};

void Fault::set(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
}

void Command::hold_plan(Plan *used) {
    used->references.add();
    plan = used;
}

FenceStep Command::fence_step() const {
    FenceStep step;
    std::memcpy(&step, arguments, sizeof step);
    return step;
}

namespace {

void stop_queue(Queue *queue, const Fault &fault) {
    queue->fault = fault;
    queue->failed.store(true, std::memory_order_release);
}

// If the engine's threads ran a kernel in part, or twice, it has no valid result.
void find_misuse(const ThreadPool &pool, Fault *fault) {
    HostMisuse misuse = pool.misuse();
    if (fault->is_set() || !misuse.is_any()) return;
    fault->set(
        "run_tasks skipped %u tasks, ran %u twice, and ran %u after it had returned; it must run "
        "each task once before it returns",
        misuse.left_out, misuse.repeated, misuse.late);
}

void run_command(Queue *queue, const Command &command) {
    bool failed = queue->failed.load(std::memory_order_relaxed);
    if (command.kind == CommandKind::run) {
        Fault fault;
        if (!failed) {
            command.run(command.arguments, queue->device, &fault);
            find_misuse(queue->device->pool, &fault);
        }
        if (fault.is_set()) stop_queue(queue, fault);
        if (command.plan != nullptr) command.plan->drop_reference();
        return;
    }
    if (command.kind == CommandKind::part) return;
    FenceStep step = command.fence_step();
    if (command.kind == CommandKind::signal) {
        // A value that would not grow is ignored: no caller is left to report it to.
        step.fence->raise(failed ? kFenceFailed : step.value);
    } else if (!failed && !step.fence->wait_or_closing(step.value)) {
        Fault fault;
        fault.set("the device was closed while the queue waited for a fence");
        stop_queue(queue, fault);
    }
    step.fence->drop_reference();
}

// REQUIRES: the mutex is held; there is a command.
Command *pop(Queue *queue) {
    Command *command = queue->first;
    queue->first = command->next;
    if (queue->first == nullptr) queue->last = nullptr;
    return command;
}

// REQUIRES: the mutex is held.
void recycle(Queue *queue, Command *finished) {
    finished->next = queue->spare;
    queue->spare = finished;
}

bool has_work_or_end(const Queue *queue) {
    return queue->first != nullptr || queue->released || queue->device->closing.load();
}

// Takes the next command for the worker; NULL if the queue is finished.
Command *next_command(Queue *queue, Command *finished) {
    std::unique_lock lock(queue->mutex);
    if (finished != nullptr) {
        recycle(queue, finished);
        queue->has_runner = false;
    }
    queue->arrived.wait(lock, [queue] { return !queue->has_runner && has_work_or_end(queue); });
    if (queue->first == nullptr) {
        queue->released = true;  // a closing device takes no more either
        return nullptr;
    }
    queue->has_runner = true;
    return pop(queue);
}

// The default floating-point environment, as on the device's own threads, and then the caller's.
class DefaultEnvironment {
 public:
    DefaultEnvironment() {
        std::fegetenv(&callers_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultEnvironment() { std::fesetenv(&callers_); }
    DefaultEnvironment(const DefaultEnvironment &) = delete;
    DefaultEnvironment &operator=(const DefaultEnvironment &) = delete;

 private:
    std::fenv_t callers_;
};

bool must_wait(const Command &command) {
    if (command.kind != CommandKind::wait) return false;
    FenceStep step = command.fence_step();
    return read_fence(*step.fence) < step.value;
}

void leave_running_queues(Queue *queue) {
    Device *device = queue->device;
    std::lock_guard lock(device->mutex);
    if (queue->prev != nullptr) queue->prev->next = queue->next;
    if (queue->prev == nullptr) device->running_queues = queue->next;
    if (queue->next != nullptr) queue->next->prev = queue->prev;
    device->changed.notify_all();
}

void *serve(void *argument) {
    std::fesetenv(FE_DFL_ENV);
    auto *queue = static_cast<Queue *>(argument);
    Command *command = nullptr;
    while ((command = next_command(queue, command)) != nullptr) {
        run_command(queue, *command);
        queue->device->finish_commands(1);
    }
    leave_running_queues(queue);
    queue->drop_reference();
    return nullptr;
}

quire_status enqueue_fence_step(Queue &queue, Fence &fence, uint64_t value, CommandKind kind,
                                quire_error *error) {
    return queue.submit(1, error, [&](uint32_t, Command *command) {
        fence.references.add();
        command->kind = kind;
        *command->hold<FenceStep>() = {&fence, value};
    });
}

}  // namespace

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    if (native != nullptr && native->kind != QUIRE_NATIVE_NONE) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "native kind %u is unknown: the cpu backend binds no queue of another API; use "
                    "QUIRE_NATIVE_NONE",
                    native->kind);
    }
    auto *queue = new (std::nothrow) quire_be_queue;
    if (queue == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a queue");
    queue->device = &device;
    queue->runs_inline = device.is_inline();
    std::lock_guard lock(device.mutex);
    pthread_t thread;
    // The worker leaves the list under this lock, so it cannot do so before it has been added.
    if (int error_number = device.pool.start_queue(serve, queue, &thread)) {
        delete queue;
        return fail_os(error, QUIRE_E_OS, error_number, "cannot start the queue's thread (%s)",
                       std::strerror(error_number));
    }
    pthread_detach(thread);
    device.references.add();
    queue->next = device.running_queues;
    if (queue->next != nullptr) queue->next->prev = queue;
    device.running_queues = queue;
    *out = queue;
    return QUIRE_OK;
}

void release_queue(Queue &queue) {
    {
        std::lock_guard lock(queue.mutex);
        queue.released = true;
        queue.arrived.notify_one();
    }
    queue.drop_reference();
}

quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    return enqueue_fence_step(queue, fence, value, CommandKind::signal, error);
}

quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    return enqueue_fence_step(queue, fence, value, CommandKind::wait, error);
}

Command *Queue::take(uint32_t count) {
    uint32_t available = 0;
    for (Command *command = spare; command != nullptr && available < count;
         command = command->next) {
        ++available;
    }
    while (available < count) {
        auto *slab = new (std::nothrow) Slab;
        if (slab == nullptr) return nullptr;
        slab->next = slabs;
        slabs = slab;
        for (Command &command : slab->commands) {
            command.next = spare;
            spare = &command;
        }
        available += Slab::kCommands;
    }
    Command *chain = spare;
    Command *end = chain;
    for (uint32_t i = 1; i < count; ++i) end = end->next;
    spare = end->next;
    end->next = nullptr;
    return chain;
}

void Queue::append(Command *chain, uint32_t count) {
    device->unfinished.fetch_add(count);
    Command *end = chain;
    while (end->next != nullptr) end = end->next;
    if (last != nullptr) last->next = chain;
    if (last == nullptr) first = chain;
    last = end;
    if (!runs_inline) arrived.notify_one();
}

void Queue::run_inline() {
    DefaultEnvironment environment;
    std::unique_lock lock(mutex);
    if (has_runner) return;
    has_runner = true;
    while (first != nullptr && !must_wait(*first)) {
        Command *command = pop(this);
        lock.unlock();
        run_command(this, *command);
        device->finish_commands(1);
        lock.lock();
        recycle(this, command);
    }
    has_runner = false;
    if (has_work_or_end(this)) arrived.notify_one();
}

void Queue::wake() {
    std::lock_guard lock(mutex);
    arrived.notify_one();
}

void Queue::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    while (slabs != nullptr) {
        Slab *slab = slabs;
        slabs = slab->next;
        delete slab;
    }
    delete static_cast<quire_be_queue *>(this);
    owner->drop_reference();
}

quire_status Queue::check_usable(quire_error *error) {
    if (failed.load(std::memory_order_acquire)) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the queue stopped: %s; release it", fault.text);
    }
    if (released || device->closing.load()) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the device of this queue is closed");
    }
    return QUIRE_OK;
}

}  // namespace quire::cpu
