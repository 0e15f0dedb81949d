// SPDX-License-Identifier: Apache-2.0
//
// fence: a 64-bit value that only grows; hosts and queues raise it and wait for it.
//
// Its words lie in pinned memory (FenceWords). A queue raises them with a kernel of one thread,
// which writes all ones if the queue has failed. A stream waits, for an event after that kernel
// (marks), only after another stream was given the command that raises the fence far enough; a
// kernel after the wait checks whether the fence failed. All other waits are the host's
// (queue.hpp), and so are its signals: no stream ever waits for the host.
//
// Invariants
//   (1) no kernel that writes a cell is still to run when the cell is given back: a released fence
//       stays with its device until its queues have passed their last use of it
//
// Threads: any; all fields belong to the device's mutex. The cell, the value and what was promised
// belong to its fence_mutex too (device.hpp), so that a fence can be read while a launch waits.
#pragma once

#include <cstdint>
#include <vector>

#include "cells.hpp"
#include "kernels/calls.hpp"
#include "marks.hpp"
#include "quire/plugin/backend.h"
#include "shared/objects.hpp"

namespace quire::gpu {

struct Device;
struct Queue;

struct Fence {
    // The last place of a queue that uses this fence.
    struct Use {
        const Queue *queue;  // of the same device, which keeps it alive
        uint64_t place;
    };

    Device *device = nullptr;
    References references{2};  // the caller's, and the device's
    Cell cell;
    uint64_t value = 0;        // known to the host
    uint64_t promised = 0;     // the most that calls on queues will raise it to
    uint64_t enqueued = 0;     // the most that marked commands of streams will raise it to
    uint64_t held = 0;         // commands still held by queues
    Queue *failing = nullptr;  // the queue after whose work it fails
    bool is_released = false;
    std::vector<Use> uses;
    Marks marks;

    void drop_reference();

    // The value now, with what queues have raised. REQUIRES: a mutex of the device is held.
    uint64_t current() const;

    // REQUIRES, for all below: the device's mutex is held, and fence_mutex is not.
    // Takes over what queues have raised.
    void settle();
    void promise(uint64_t to);
    // Nothing runs any more: a promised value that was not reached has failed.
    void settle_for_good();
    void raise(uint64_t to);
    // Fails it if it is to fail and the work before that is over; true if it failed. REQUIRES: the
    // context is current.
    bool fail_if_due();
    void forget_failing();
    // True if submitted work or past signals bring it to at least `wanted` with no further call.
    bool is_coming(uint64_t wanted) const { return value >= wanted || enqueued >= wanted; }
    // Makes room so that note_use() cannot fail. May throw.
    void reserve_use(const Queue *queue);
    // REQUIRES: reserve_use() was called for the queue.
    void note_use(const Queue *queue, uint64_t place);
};

}  // namespace quire::gpu

struct quire_be_fence : quire::gpu::Fence {};
