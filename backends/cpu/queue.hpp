// SPDX-License-Identifier: Apache-2.0
//
// queue: commands that run in order, after the call that enqueued them has returned or, on a device
// opened INLINE, before.
//
// A queue is a list of commands and one worker thread. A command is a function and a copy of its
// arguments, so the caller may reuse everything it passed once the call returns; a long list of
// copies or fills becomes one command followed by parts that hold the rest of it. Commands are
// allocated in slabs and return to the queue's own free list, so enqueueing allocates nothing once
// a queue has reached its greatest depth.
//
// Release   waits for nothing. Commands already enqueued still run; the worker then exits.
// Closing   Closing the device ends every wait for a fence that has not been reached. The rest of
//           that queue is then dropped and its fences fail; other queues run to their end.
// Faults    A command that finds an index outside its pool stops the queue in the same way, as an
//           illegal address stops a GPU stream; every later call on the queue reports the fault.
//
// Inline    Unless the worker or another call is the runner, the thread of a call becomes it, until
//           the list is empty or a fence must be waited for; the worker takes over then.
//
// Invariants
//   (1) commands run in the order of the calls, one at a time: only the runner takes any
//   (2) the commands of one call are enqueued all together or not at all
//   (3) once failed, a queue runs nothing, and every fence that it signals gets kFenceFailed
//
// Threads: any; the queue's mutex guards its lists, and is never held while a command runs.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <new>
#include <type_traits>

#include "fence.hpp"
#include "quire/plugin/backend.h"
#include "shared/checks.hpp"
#include "shared/objects.hpp"

namespace quire::cpu {

// Why a command could not run; empty when it did.
struct Fault {
    char text[192] = {};

    [[gnu::format(printf, 2, 3)]] void set(const char *format, ...);
    bool is_set() const { return text[0] != 0; }
};

struct Device;
struct Plan;
struct Queue;

using Run = void (*)(const void *arguments, Device *device, Fault *fault);

struct Slab;  // of commands

// A part holds more arguments for the command before it and does nothing itself.
enum class CommandKind : uint32_t { run, part, signal, wait };

struct FenceStep {
    Fence *fence;
    uint64_t value;
};

// The arguments of attention are the largest: call, pool and plan.
constexpr uint32_t kArgumentBytes = 336;

struct Command {
    Command *next;
    Run run;  // for CommandKind::run
    CommandKind kind;
    uint32_t reserved0;
    Plan *plan;  // held until the command has run or was dropped; NULL if none
    alignas(8) unsigned char arguments[kArgumentBytes];

    template <typename T>
    T *hold() {
        static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kArgumentBytes);
        static_assert(alignof(T) <= 8);
        return new (static_cast<void *>(arguments)) T;
    }
    void hold_plan(Plan *used);
    FenceStep fence_step() const;
    // The command whose `arguments` these are.
    static const Command *of(const void *arguments) {
        return reinterpret_cast<const Command *>(static_cast<const unsigned char *>(arguments) -
                                                 offsetof(Command, arguments));
    }
};
static_assert(std::is_standard_layout_v<Command>);

struct Queue {
    Device *device = nullptr;
    References references{2};  // the owner's and the worker's
    bool runs_inline = false;
    Queue *next = nullptr;  // in the device's running_queues
    Queue *prev = nullptr;

    std::mutex mutex;
    std::condition_variable arrived;
    Command *first = nullptr;  // to run
    Command *last = nullptr;
    Command *spare = nullptr;
    Slab *slabs = nullptr;
    bool has_runner = false;  // the worker or a call runs commands
    bool released = false;
    std::atomic<bool> failed{false};
    Fault fault;  // written once, before `failed`

    // REQUIRES: the mutex is held. Returns `count` linked commands, or NULL and changes nothing.
    Command *take(uint32_t count);
    // REQUIRES: the mutex is held.
    void append(Command *chain, uint32_t count);
    // Runs what is enqueued, on an INLINE device that no other thread runs.
    void run_inline();
    void wake();
    void drop_reference();
    quire_status check_usable(quire_error *error);

    // Enqueues `count` commands, each filled by fill(index, command).
    template <typename Fill>
    quire_status submit(uint32_t count, quire_error *error, Fill fill) {
        {
            std::lock_guard lock(mutex);
            if (quire_status status = check_usable(error)) return status;
            Command *chain = take(count);
            if (chain == nullptr) {
                return fail(error, QUIRE_E_HOST_MEMORY, "no memory for %u commands", count);
            }
            uint32_t index = 0;
            for (Command *command = chain; command != nullptr; command = command->next) {
                command->plan = nullptr;
                fill(index++, command);
            }
            append(chain, count);
        }
        if (runs_inline) run_inline();
        return QUIRE_OK;
    }
};

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void release_queue(Queue &queue);
quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error);
quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error);

}  // namespace quire::cpu

struct quire_be_queue : quire::cpu::Queue {};
