// SPDX-License-Identifier: Apache-2.0
//
// fence: a 64-bit value that only grows; hosts and queues raise it and wait for it.
//
// A fence is a value that the host knows, and marks: "this value, once that queue's timeline has
// reached that turn". Why not a timeline semaphore per fence: Vulkan forbids signalling one with a
// value that does not grow, or below a pending one, and several queues and hosts may give our
// fences such values at once; timelines of queues only ever count up.
//
// A mark becomes part of the value when a call checks it: we run no thread that waits for the
// device.
//
// Threads: any; all fields belong to the device's mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/plugin/backend.h"
#include "shared/deadline.hpp"
#include "shared/fence_value.hpp"
#include "shared/objects.hpp"

namespace quire::vulkan {

struct Device;
struct Queue;

// A value that a fence will have.
struct Mark {
    uint64_t value;
    Queue *queue;  // a reference is held
    uint64_t turn;
};

struct Fence {
    Device *device = nullptr;
    References references{1};
    uint64_t value = 0;
    std::vector<Mark> marks;

    // REQUIRES: the device's mutex is held.
    void drop_reference();

    // REQUIRES, for all below: the device's mutex is held.
    // Takes over marks that were reached.
    void settle();
    void raise(uint64_t to);
    // Records that the queue has submitted what raises the fence.
    void add_mark(uint64_t to, Queue *queue, uint64_t turn);
    // A mark of at least this value; NULL: none was submitted.
    const Mark *find_mark(uint64_t wanted) const;
};

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *error);
void release_fence(Fence &fence);
uint64_t read_fence(Fence &fence);
// Both return the value: before it was raised; after the wait, which a deadline may end.
uint64_t raise_fence(Fence &fence, uint64_t to);
uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline);

}  // namespace quire::vulkan

struct quire_be_fence : quire::vulkan::Fence {};
