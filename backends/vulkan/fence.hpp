// SPDX-License-Identifier: Apache-2.0
//
// fence: a 64-bit value that only grows; hosts and queues raise it and wait for it.
//
// A fence is a value that the host knows, and marks: "this value, once that queue's timeline has
// reached that place". Why not a timeline semaphore per fence: Vulkan forbids signalling one with a
// value that does not grow, or below a pending one, and several queues and hosts may give our
// fences such values at once; timelines of queues only ever count up.
//
// A mark becomes part of the value when a call checks it: we run no thread that waits for the
// device.
//
// Threads: any; all fields belong to the device's mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "quire/plugin/backend.h"

namespace quire::vulkan {

// The value of a fence if work before it did not run; QUIRE_FENCE_FAILED in the consumer's header.
constexpr uint64_t kFenceFailed = UINT64_MAX;

// A value that a fence will have.
struct Mark {
    uint64_t value;
    quire_be_queue *queue;  // a reference is held
    uint64_t place;
};

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error);
void fence_destroy(quire_be_fence *fence);
quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error);
quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error);
quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error);

}  // namespace quire::vulkan

struct quire_be_fence {
    quire_be_device *device = nullptr;
    std::atomic<uint32_t> references{1};
    uint64_t value = 0;
    std::vector<quire::vulkan::Mark> marks;

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    // REQUIRES: the device's mutex is held.
    void drop_reference();

    // REQUIRES, for all below: the device's mutex is held.
    // Takes over marks that were reached.
    void settle();
    void raise(uint64_t to);
    // Records that the queue has submitted what raises the fence.
    void add_mark(uint64_t to, quire_be_queue *queue, uint64_t place);
    // A mark of at least this value; NULL: none was submitted.
    const quire::vulkan::Mark *find_mark(uint64_t wanted) const;
};
