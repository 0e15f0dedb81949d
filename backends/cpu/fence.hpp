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
#include "shared/deadline.hpp"
#include "shared/fence_value.hpp"
#include "shared/objects.hpp"

namespace quire::cpu {

struct Device;

struct Fence {
    Device *device = nullptr;
    References references{1};
    std::atomic<uint64_t> value{0};  // grows under the device's mutex

    void drop_reference();
    // Sets the value if it is greater than the current one, which is returned.
    uint64_t raise(uint64_t to);
    // Waits for the value; returns false if the device was closed first.
    bool wait_or_closing(uint64_t awaited);
};

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *error);
inline void release_fence(Fence &fence) { fence.drop_reference(); }
uint64_t read_fence(const Fence &fence);
// Both return the value: before it was raised; after the wait, which a deadline may end.
uint64_t raise_fence(Fence &fence, uint64_t to);
uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline);

}  // namespace quire::cpu

struct quire_be_fence : quire::cpu::Fence {};
