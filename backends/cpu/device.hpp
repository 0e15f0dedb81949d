// SPDX-License-Identifier: Apache-2.0
//
// device: the machine's processor, opened: a thread pool and the list of running queues.
//
// Invariants
//   (1) the memory of a device outlives its children: each holds a reference
//   (2) device_close returns once no thread of the device is running
//   (3) unfinished == commands enqueued and not yet run or dropped, over all queues
//
// Threads: any. Lock order: device mutex, then queue mutex; attention_turn, then the pool's locks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "kernels/attend.hpp"
#include "memory.hpp"
#include "quire/plugin/backend.h"
#include "shared/deadline.hpp"
#include "shared/objects.hpp"
#include "threads.hpp"
#include "work_list.hpp"

namespace quire::cpu {

struct Queue;

struct Device {
    References references{1};
    uint32_t flags = 0;  // in effect
    ThreadPool pool;
    Pages scratch_pages;
    AttendScratch *scratch = nullptr;  // one per thread of the pool
    std::mutex attention_turn;         // held for a whole attention call
    Pages work_pages;
    WorkList *works = nullptr;  // under attention_turn

    std::mutex mutex;
    std::condition_variable changed;      // a fence grew, unfinished reached 0, a worker left
    std::atomic<bool> closing{false};     // written under the mutex
    std::atomic<uint64_t> unfinished{0};  // commands
    Queue *running_queues = nullptr;      // those with a running worker; under the mutex

    void drop_reference();
    bool is_fast_16bit() const { return (flags & QUIRE_BE_DEVICE_FAST_16BIT) != 0; }
    bool is_inline() const { return (flags & QUIRE_BE_DEVICE_INLINE) != 0; }
    void finish_commands(uint64_t count);
};

quire_status count_devices(uint32_t *device_count, quire_error *error);
quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error);
void close_device(Device &device);
quire_status describe_device(const Device &device, quire_be_device_props *props,
                             quire_error *error);
quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *error);

}  // namespace quire::cpu

struct quire_be_device : quire::cpu::Device {};
