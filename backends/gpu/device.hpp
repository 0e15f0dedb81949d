// SPDX-License-Identifier: Apache-2.0
//
// device: a GPU, opened: its context, its kernels, its memory and the queues that run on it.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) device_close returns when nothing of the device runs, and its driver's objects are gone
//   (3) calls of the driver that may wait are made by opening, quiesce, fence_wait_host, memory and
//       closing, and where more memory is needed for cells, for a queue's scratch
//       (reserve_scratch()) or for its lists of pieces (take_pieces())
//
// Threads: any. Whatever enqueues holds the mutex from its checks to its last driver call; the
// driver's contexts are pushed inside it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "border.hpp"
#include "cells.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "memory.hpp"
#include "profile.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

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

// A point in time, or never.
class Deadline {
 public:
    explicit Deadline(uint64_t timeout_ns);

    bool has_passed() const { return left_ns() == 0; }
    uint64_t left_ns() const;
    // Gives the lock up for a moment, a longer one each time. No thread of ours watches the device,
    // so whoever waits looks.
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
    quire::gpu::Borders borders;  // constant once it is open
    quire::gpu::ProfileMemory profile_memory;
    bool takes_batches = true;  // the driver has not refused a batch of copies yet
    char name[64] = {};

    std::mutex mutex;
    std::condition_variable changed;  // a fence did, by the host
    quire::gpu::Cells pinned{quire::gpu::CellKind::pinned};
    quire::gpu::Cells words{quire::gpu::CellKind::device};
    quire::gpu::Memory memory;
    bool is_closed = false;             // nothing is enqueued any more
    bool is_lost = false;               // the driver said so
    uint64_t scratch_bytes = 0;         // the most that a call of any plan wants
    quire_be_queue *service = nullptr;  // our own, urgent, which never waits: zeros
    std::vector<quire_be_queue *> queues;
    std::vector<quire_be_fence *> fences;  // released ones too, while a queue may reach them

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();

    // REQUIRES, of all below: the mutex is held, and the context is current.
    // Looks at what a driver call returned: after a fatal error the device is lost.
    bool is_good(quire::gpu::Result result);
    quire_status check(quire::gpu::Result result, const char *what, quire_error *error);
    quire_status check_in(const quire::gpu::Entered &entered, quire_error *error);
    quire_status check_open(quire_error *error) const;
    void lose();
    // Asks the driver whether it still works.
    void look(const quire::gpu::Entered &entered);
    // Gives streams what queues hold, as far as nothing stands against it.
    void pump(const quire::gpu::Entered &entered);
    // Gives back what was released and has run.
    void sweep();
    // Does a queue wait for somebody's signal?
    bool has_held_queue() const;
};
