// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <algorithm>
#include <cinttypes>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

quire_status take_cell(quire_be_device *device, Cell *cell, quire_error *error) {
    if (quire_status status = device->check_open(error)) return status;
    Entered entered(device->context);
    if (quire_status status = device->check_in(entered, error)) return status;
    device->sweep();
    return device->check(device->pinned.take(cell), "memory for a fence", error);
}

// Resumes the queues that the fence held up, or drops what they hold.
void pump(quire_be_device *device) {
    if (!device->has_held_queue()) return;
    Entered entered(device->context);
    device->pump(entered);
}

}  // namespace

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    std::lock_guard lock(device->mutex);
    Cell cell;
    if (quire_status status = take_cell(device, &cell, error)) return status;
    device->fences.reserve(device->fences.size() + 1);
    auto *fence = new quire_be_fence;
    device->add_reference();
    fence->device = device;
    fence->cell = cell;
    fence->value = value;
    auto *words = reinterpret_cast<FenceWords *>(cell.host);
    words->value = value;
    words->wake = std::min(value, kWakeMost);
    device->fences.push_back(fence);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = fence;
    return QUIRE_OK;
}

void fence_destroy(quire_be_fence *fence) {
    if (fence == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    quire_be_device *device = fence->device;
    device->add_reference();  // the fence may hold the last one, and the mutex with it
    {
        std::lock_guard lock(device->mutex);
        fence->is_released = true;
        if (!device->is_closed) {
            Entered entered(device->context);
            if (entered.is_in()) device->sweep();
        }
    }
    fence->drop_reference();
    device->drop_reference();
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    if (fence == nullptr || value == nullptr) {
        return fail(error, QUIRE_E_ARG, "fence or value is NULL");
    }
    std::lock_guard lock(fence->device->mutex);
    pump(fence->device);
    fence->settle();
    *value = fence->value;
    return QUIRE_OK;
}

quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    std::lock_guard lock(fence->device->mutex);
    fence->settle();
    if (value <= fence->value) {
        return fail(error, QUIRE_E_ARG,
                    "a fence only grows: it is at %" PRIu64 " and cannot be set to %" PRIu64,
                    fence->value, value);
    }
    fence->raise(value);
    pump(fence->device);
    return QUIRE_OK;
}

quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    quire_be_device *device = fence->device;
    Deadline deadline(timeout_ns);
    std::unique_lock lock(device->mutex);
    for (fence->settle(); fence->value < value; fence->settle()) {
        if (deadline.has_passed()) return QUIRE_S_TIMEOUT;
        deadline.wait(device->changed, lock);
        if (device->is_closed) continue;
        Entered entered(device->context);
        device->look(entered);
        device->pump(entered);
    }
    if (fence->value != kFenceFailed || value == kFenceFailed) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the fence failed: work before it did not run");
}

}  // namespace quire::gpu

void quire_be_fence::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    quire_be_device *owner = device;
    delete this;
    owner->drop_reference();
}

void quire_be_fence::settle() {
    if (cell.host == nullptr) return;
    auto *words = reinterpret_cast<quire::gpu::FenceWords *>(cell.host);
    value = std::max(value, __atomic_load_n(&words->value, __ATOMIC_ACQUIRE));
    if (device->is_lost && value < promised) value = quire::gpu::kFenceFailed;
}

void quire_be_fence::settle_for_good() {
    settle();
    if (value < promised) value = quire::gpu::kFenceFailed;
    cell = {};
    uses.clear();
}

void quire_be_fence::raise(uint64_t to) {
    value = std::max(value, to);
    device->changed.notify_all();
    if (cell.host == nullptr) return;
    auto *words = reinterpret_cast<quire::gpu::FenceWords *>(cell.host);
    __atomic_store_n(&words->by_host, std::max(words->by_host, to), __ATOMIC_RELEASE);
}

void quire_be_fence::reserve_use(quire_be_queue *queue) {
    for (const Use &use : uses) {
        if (use.queue == queue) return;
    }
    uses.push_back({queue, 0});
}

void quire_be_fence::note_use(quire_be_queue *queue, uint64_t place) {
    for (Use &use : uses) {
        if (use.queue == queue) use.place = place;
    }
}

bool quire_be_fence::is_out_of_reach() const {
    return held == 0 && std::all_of(uses.begin(), uses.end(), [](const Use &use) {
               return use.queue->has_passed(use.place);
           });
}
