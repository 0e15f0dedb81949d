// SPDX-License-Identifier: Apache-2.0
//
// device: a GPU, opened: its context, its kernels, its memory, and whether it still works.
//
// It lists its queues and fences, but only schedule.hpp and the files above it look inside them.
//
// Invariants
//   (1) the memory of a device object outlives its children: each holds a reference
//   (2) when device_close returns, nothing of the device runs and its driver objects are gone
//   (3) driver calls that may wait are made only by opening, quiesce, fence_wait_host, memory and
//       closing, and where a call needs more memory for cells, for a queue's scratch
//       (reserve_scratch()) or for its piece lists (take_pieces())
//
// Threads: any. A call that enqueues holds the mutex from its checks to its last driver call; the
// driver's context is pushed and popped inside that section. A driver's launch may wait, as long as
// its queue of launches is full, and then no other call of the device enqueues. Whoever reads a
// fence or waits for one does not wait for that: it needs only fence_mutex, under which no call of
// the driver is made. The mutex comes before fence_mutex. Fields that belong to both are written
// while both are held, and read while either is.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "allocations.hpp"
#include "cells.hpp"
#include "context.hpp"
#include "kernels.hpp"
#include "quire/plugin/backend.h"
#include "shared/deadline.hpp"
#include "shared/objects.hpp"

namespace quire::gpu {

struct Queue;
struct Fence;

struct Device {
    References references{1};
    Context context;
    Kernels kernels;
    uint64_t dma_bytes = 0;     // copies from here on use the driver; constant once open
    bool decodes = false;       // attention may use the kernels of kernels/decode.cu; likewise
    bool takes_batches = true;  // the driver has not refused a batch of copies yet
    char name[64] = {};

    std::mutex mutex;
    std::mutex fence_mutex;
    std::condition_variable changed;  // of fence_mutex: the host changed a fence
    Cells pinned{CellKind::pinned};
    Cells words{CellKind::device};
    Allocations allocations;
    bool is_closed = false;      // of both mutexes: nothing more is enqueued
    bool is_lost = false;        // of both mutexes: reported by the driver
    uint64_t scratch_bytes = 0;  // the most that a call of any plan needs
    Queue *service = nullptr;    // our own urgent queue, which never waits; zeroes memory
    std::vector<Queue *> queues;
    std::vector<Fence *> fences;  // including released ones that a queue may still reach
    uint32_t failing_fences = 0;  // of these: those that fail once a queue's work is over

    void drop_reference();

    // REQUIRES, for all below: the mutex is held and the context is current.
    // Checks the result of a driver call; after a fatal error the device is lost.
    bool is_good(Result result);
    quire_status check(Result result, const char *what, quire_error *error);
    quire_status check_in(const Entered &entered, quire_error *error);
    quire_status check_open(quire_error *error) const;
    void lose();

    // Waits as Deadline::wait() does. REQUIRES: `lock` holds the mutex; it is released meanwhile.
    void wait(const Deadline &deadline, std::unique_lock<std::mutex> &lock, uint64_t most_ns);
};

}  // namespace quire::gpu

struct quire_be_device : quire::gpu::Device {};
