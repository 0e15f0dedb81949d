// SPDX-License-Identifier: Apache-2.0
//
// device: an adapter, opened: its context, its memory and the queues that run on it.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) device_close returns when nothing of the device runs, and its Vulkan objects are gone
//   (3) no work is submitted to Vulkan that waits for a fence which has not been submitted or
//       reached: whatever runs comes to its end by itself, but for what stands behind an engine's
//       own semaphores and submissions, whose end is the engine's affair
//
// Threads: any. Order of locks: a queue's recording, then the device's mutex, then those of memory
// and kernels.
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

// Devices, queues, fences, plans and memories that were made and not released, over all devices.
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
    // Waits until told, or the end, or long enough to look at the device again.
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
    quire::vulkan::Staging staging;        // of imported memory that the device cannot reach
    quire_be_queue *setup = nullptr;       // our own, for memory that is made; a reference
    std::condition_variable changed;       // a fence, a queue or a waiter did
    bool is_closed = false;                // nothing is enqueued any more
    bool is_lost = false;                  // Vulkan said so
    uint32_t waiters = 0;                  // threads inside a wait of Vulkan's
    std::vector<quire_be_queue *> queues;  // those that have a timeline

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();
    // Writes zeros and waits for that. What the driver refuses fails this call alone.
    quire_status zero(uint64_t address, uint64_t size_bytes, quire_error *error);

    // A reference to our own queue, made anew where the driver stopped the last one.
    quire_status hold_setup(quire_be_queue **out, quire_error *error);

    // REQUIRES, of all below: the mutex is held.
    // Submits what no longer waits, over all queues.
    void pump();
    // Those that anything was submitted to.
    std::vector<VkQueue> vulkan_queues() const;
    // Nothing will run any more: queues stop, and fences that wait for them fail.
    void lose();
    // Waits until the queue's timeline is there, without the lock. False: time ran out.
    bool wait_for(quire_be_queue *queue, uint64_t place, const quire::vulkan::Deadline &deadline,
                  std::unique_lock<std::mutex> &lock);
};
