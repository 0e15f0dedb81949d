// SPDX-License-Identifier: Apache-2.0
//
// device: an adapter, opened: its context, its memory and the queues that run on it.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) when device_close returns, nothing of the device runs and its Vulkan objects are gone
//   (3) no submitted work waits for a fence that has not been submitted or reached: whatever runs
//       finishes on its own, except work after an engine's own semaphores and recordings, whose
//       completion is up to the engine
//
// Threads: any. Lock order: a queue's recorder_mutex, then the device's mutex, then those of memory
// and kernels.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "context.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "quire/plugin/backend.h"
#include "shared/deadline.hpp"
#include "shared/objects.hpp"
#include "staging.hpp"

namespace quire::vulkan {

struct Queue;

// How often a waiter polls the device for failed queues: we run no thread that watches it.
constexpr uint64_t kPollNs = 5'000'000;

struct Device {
    References references{1};
    Context context;
    Memory memory;
    Kernels kernels;

    std::mutex mutex;
    Staging staging;                  // for imported memory that the device cannot reach
    Queue *setup = nullptr;           // our own, to zero new memory; a reference
    std::condition_variable changed;  // a fence, a queue or a waiter changed
    bool is_closed = false;           // nothing more is enqueued
    bool is_lost = false;             // reported by Vulkan
    uint32_t waiters = 0;             // threads inside a wait of Vulkan
    std::vector<Queue *> queues;      // those with a timeline

    void drop_reference();
    // Writes zeros and waits for them. If the driver refuses, only this call fails.
    quire_status zero(uint64_t address, uint64_t size_bytes, quire_error *error);

    // A reference to our own queue, replaced if the driver stopped the last one.
    quire_status hold_setup(Queue **out, quire_error *error);

    // REQUIRES, for all below: the mutex is held.
    // Submits held recordings whose waits allow it, over all queues.
    void pump();
    // Those that anything was submitted to.
    std::vector<VkQueue> vulkan_queues() const;
    // Nothing will run any more: queues stop, and fences that wait for them fail.
    void lose();
    // Waits, without the lock, until the queue's timeline reaches the turn. False: timed out.
    bool wait_for(Queue *queue, uint64_t turn, const Deadline &deadline,
                  std::unique_lock<std::mutex> &lock);
};

quire_status count_devices(uint32_t *device_count, quire_error *error);
quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error);
void close_device(Device &device);
quire_status describe_device(Device &device, quire_be_device_props *props, quire_error *error);
quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *error);

}  // namespace quire::vulkan

struct quire_be_device : quire::vulkan::Device {};
