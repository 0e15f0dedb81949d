// SPDX-License-Identifier: Apache-2.0
//
// device: a GPU, opened: its context, its kernels, its memory and the queues that run on it.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) when device_close returns, nothing of the device runs and its driver objects are gone
//   (3) driver calls that may wait are made only by opening, quiesce, fence_wait_host, memory and
//       closing, and where a call needs more memory for cells, for a queue's scratch
//       (reserve_scratch()) or for its piece lists (take_pieces())
//
// Threads: any. A call that enqueues holds the mutex from its checks to its last driver call; the
// driver's context is pushed and popped inside that section.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cells.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

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

// A point in time, or never.
class Deadline {
 public:
    explicit Deadline(uint64_t timeout_ns);

    bool has_passed() const { return left_ns() == 0; }
    uint64_t left_ns() const;
    // Releases the lock for a moment, longer each time. We run no thread that watches the device,
    // so waiters poll.
    void wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock);

 private:
    bool never_ = false;
    std::chrono::steady_clock::time_point end_{};
    uint64_t moment_ns_ = 10'000;
};

}  // namespace quire::gpu

struct quire_be_device {
    std::atomic<uint32_t> references{1};
    quire::gpu::Context context;
    quire::gpu::Kernels kernels;
    uint64_t dma_bytes = 0;     // copies from here on use the driver; constant once open
    bool takes_batches = true;  // the driver has not refused a batch of copies yet
    char name[64] = {};

    std::mutex mutex;
    std::condition_variable changed;  // the host changed a fence
    quire::gpu::Cells pinned{quire::gpu::CellKind::pinned};
    quire::gpu::Cells words{quire::gpu::CellKind::device};
    quire::gpu::Memory memory;
    bool is_closed = false;             // nothing more is enqueued
    bool is_lost = false;               // reported by the driver
    uint64_t scratch_bytes = 0;         // the most that a call of any plan needs
    quire_be_queue *service = nullptr;  // our own urgent queue, which never waits; zeroes memory
    std::vector<quire_be_queue *> queues;
    std::vector<quire_be_fence *> fences;  // including released ones that a queue may still reach

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();

    // REQUIRES, for all below: the mutex is held and the context is current.
    // Checks the result of a driver call; after a fatal error the device is lost.
    bool is_good(quire::gpu::Result result);
    quire_status check(quire::gpu::Result result, const char *what, quire_error *error);
    quire_status check_in(const quire::gpu::Entered &entered, quire_error *error);
    quire_status check_open(quire_error *error) const;
    void lose();
    // Asks the driver whether it still works.
    void look(const quire::gpu::Entered &entered);
    // Submits held commands to their streams as far as their waits allow.
    void pump(const quire::gpu::Entered &entered);
    // Returns cells and memory that were released and are no longer in use.
    void sweep();
    // True if a queue is held, waiting for a signal.
    bool has_held_queue() const;
};
