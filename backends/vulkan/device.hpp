// SPDX-License-Identifier: Apache-2.0
//
// device: an adapter, opened: its context, its memory and the queues that run on it.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) when device_close returns, nothing of the device runs and its Vulkan objects are gone
//   (3) no submitted work waits for a fence that has not been submitted or reached: whatever runs
//       finishes on its own, except work after an engine's own semaphores and submissions, whose
//       completion is up to the engine
//
// Threads: any. Lock order: a queue's recording, then the device's mutex, then those of memory and
// kernels.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "context.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "quire/plugin/backend.h"
#include "staging.hpp"

namespace quire::vulkan {

// Devices, queues, fences, plans and memories created and not yet released, over all devices.
extern std::atomic<uint64_t> live_objects;

quire_status probe(uint32_t *device_count, quire_error *error);
quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error);
void device_close(quire_be_device *device);
quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error);
quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error);
quire_status shutdown(uint64_t *live_object_count, quire_error *error);

// The end of a wait that begins now.
class Deadline {
 public:
    explicit Deadline(uint64_t timeout_ns);

    bool has_passed() const { return left_ns() == 0; }
    // UINT64_MAX: it never ends.
    uint64_t left_ns() const;
    // Waits until notified, until the deadline, or until it is time to poll the device again.
    void wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock) const;

 private:
    bool never_ = false;
    std::chrono::steady_clock::time_point end_;
};

}  // namespace quire::vulkan

struct quire_be_device {
    std::atomic<uint32_t> references{1};
    quire::vulkan::Context context;
    quire::vulkan::Memory memory;
    quire::vulkan::Kernels kernels;

    std::mutex mutex;
    quire::vulkan::Staging staging;        // for imported memory that the device cannot reach
    quire_be_queue *setup = nullptr;       // our own, to zero new memory; a reference
    std::condition_variable changed;       // a fence, a queue or a waiter changed
    bool is_closed = false;                // nothing more is enqueued
    bool is_lost = false;                  // reported by Vulkan
    uint32_t waiters = 0;                  // threads inside a wait of Vulkan
    std::vector<quire_be_queue *> queues;  // those with a timeline

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();
    // Writes zeros and waits for them. If the driver refuses, only this call fails.
    quire_status zero(uint64_t address, uint64_t size_bytes, quire_error *error);

    // A reference to our own queue, replaced if the driver stopped the last one.
    quire_status hold_setup(quire_be_queue **out, quire_error *error);

    // REQUIRES, for all below: the mutex is held.
    // Submits held batches whose waits allow it, over all queues.
    void pump();
    // Those that anything was submitted to.
    std::vector<VkQueue> vulkan_queues() const;
    // Nothing will run any more: queues stop, and fences that wait for them fail.
    void lose();
    // Waits, without the lock, until the queue's timeline reaches the place. False: timed out.
    bool wait_for(quire_be_queue *queue, uint64_t place, const quire::vulkan::Deadline &deadline,
                  std::unique_lock<std::mutex> &lock);
};
