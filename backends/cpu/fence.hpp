// SPDX-License-Identifier: Apache-2.0
//
// fence: a 64-bit value that only grows, which hosts and queues raise and wait for.
//
// Why one condition of the device and not one per fence: a wait must also end when the device is
// closed, and fences are raised once a step, so waking a few waiters too many costs nothing.
//
// A command in a queue holds a reference, so that a fence may be destroyed as soon as its owner
// enqueues no more with it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::cpu {

// What a fence shows when work before it did not run; QUIRE_FENCE_FAILED of the consumer's header.
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
    // Sets the value if it grows by that, and says whether it did.
    bool raise(uint64_t to);
    // Waits for the value; false when the device was closed first.
    bool wait_or_closing(uint64_t awaited);
};
