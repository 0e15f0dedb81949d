// SPDX-License-Identifier: Apache-2.0
//
// fence_functions: what hosts do with fences.
//
// Threads: any.

#include "fence.hpp"

#include <algorithm>

#include "functions.hpp"
#include "schedule.hpp"

namespace quire::gpu {

namespace {

quire_status take_cell(Device &device, Cell *cell, quire_error *error) {
    if (quire_status status = device.check_open(error)) return status;
    Entered entered(device.context);
    if (quire_status status = device.check_in(entered, error)) return status;
    sweep(device);
    return device.check(device.pinned.take(cell), "memory for a fence", error);
}

// Resumes the queues that a fence held up, or drops what they hold. REQUIRES: the mutex is held.
void resume(Device &device) {
    if (!needs_pump(device)) return;
    Entered entered(device.context);
    pump(device, entered);
}

uint64_t current_value(const Fence &fence) {
    std::lock_guard fences(fence.device->fence_mutex);
    return fence.current();
}

}  // namespace

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *error) {
    std::lock_guard lock(device.mutex);
    Cell cell;
    if (quire_status status = take_cell(device, &cell, error)) return status;
    device.fences.reserve(device.fences.size() + 1);
    auto *fence = new quire_be_fence;
    device.references.add();
    fence->device = &device;
    fence->cell = cell;
    fence->value = value;
    auto *words = reinterpret_cast<FenceWords *>(cell.host);
    words->value = value;
    device.fences.push_back(fence);
    *out = fence;
    return QUIRE_OK;
}

void release_fence(Fence &fence) {
    Device &device = *fence.device;
    device.references.add();  // the fence may hold the last one, and the mutex with it
    {
        std::lock_guard lock(device.mutex);
        fence.is_released = true;
        if (!device.is_closed) {
            Entered entered(device.context);
            if (entered.is_in()) sweep(device);
        }
    }
    fence.drop_reference();
    device.drop_reference();
}

// If another call has the mutex, its driver may be waiting; a later call resumes queues then.
uint64_t read_fence(Fence &fence) {
    std::unique_lock lock(fence.device->mutex, std::try_to_lock);
    if (lock.owns_lock()) resume(*fence.device);
    return current_value(fence);
}

uint64_t raise_fence(Fence &fence, uint64_t to) {
    std::lock_guard lock(fence.device->mutex);
    fence.settle();
    uint64_t before = fence.value;
    if (to <= before) return before;
    fence.raise(to);
    resume(*fence.device);
    return before;
}

uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline) {
    Device &device = *fence.device;
    Pause pause;
    for (;;) {
        std::unique_lock fences(device.fence_mutex);
        uint64_t value = fence.current();
        if (value >= awaited || deadline.has_passed()) return value;
        deadline.wait(device.changed, fences, pause.next_ns());
        if (pause.is_short()) continue;
        fences.unlock();
        // As read_fence(): a call whose driver waits also learns if the device is lost.
        std::unique_lock lock(device.mutex, std::try_to_lock);
        if (!lock.owns_lock() || device.is_closed) continue;
        Entered entered(device.context);
        look(device, entered);
        pump(device, entered);
    }
}

}  // namespace quire::gpu
