// SPDX-License-Identifier: Apache-2.0
//
// fence: a 64-bit value that only grows; hosts and queues raise it and wait for it.
//
// Why one condition variable per device, not one per fence: a wait must also end when the device is
// closed, and fences are raised only once per step, so a few needless wake-ups cost nothing.
//
// A command in a queue holds a reference, so a fence may be destroyed once its owner has enqueued
// its last command for it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

// Value of a fence if work before it did not run; QUIRE_FENCE_FAILED in the consumer's header.
constexpr uint64_t kFenceFailed = UINT64_MAX;

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error);
void fence_destroy(quire_be_fence *fence);
quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error);
quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error);
quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error);

}  // namespace quire::cpu

struct quire_be_fence {
    quire_be_device *device = nullptr;
    std::atomic<uint32_t> references{1};
    std::atomic<uint64_t> value{0};  // grows under the device's mutex

    void add_reference() { references.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference();
    // Sets the value if it is greater than the current one; returns whether it was.
    bool raise(uint64_t to);
    // Waits for the value; returns false if the device was closed first.
    bool wait_or_closing(uint64_t awaited);
};
