// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <cinttypes>
#include <new>

#include "device.hpp"
#include "shared/checks.hpp"

namespace quire::cpu {

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    auto *fence = new (std::nothrow) quire_be_fence;
    if (fence == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a fence");
    device->add_reference();
    fence->device = device;
    fence->value.store(value);
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = fence;
    return QUIRE_OK;
}

void fence_destroy(quire_be_fence *fence) {
    if (fence == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    fence->drop_reference();
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    if (fence == nullptr || value == nullptr) {
        return fail(error, QUIRE_E_ARG, "fence or value is NULL");
    }
    *value = fence->value.load(std::memory_order_acquire);
    return QUIRE_OK;
}

quire_status fence_signal_host(quire_be_fence *fence, uint64_t value, quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    if (fence->raise(value)) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "a fence only grows: it is at %" PRIu64 " and cannot be set to %" PRIu64,
                fence->value.load(), value);
}

quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    if (fence->value.load(std::memory_order_acquire) < value) {
        Deadline deadline(timeout_ns);
        std::unique_lock lock(fence->device->mutex);
        bool reached = deadline.wait(fence->device->changed, lock,
                                     [&] { return fence->value.load() >= value; });
        if (!reached) return QUIRE_S_TIMEOUT;
    }
    if (fence->value.load(std::memory_order_acquire) != kFenceFailed || value == kFenceFailed) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_DEVICE_LOST, "the fence failed: work before it did not run");
}

}  // namespace quire::cpu

void quire_be_fence::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    quire_be_device *owner = device;
    delete this;
    owner->drop_reference();
}

bool quire_be_fence::raise(uint64_t to) {
    std::lock_guard lock(device->mutex);
    if (to <= value.load(std::memory_order_relaxed)) return false;
    value.store(to, std::memory_order_release);
    device->changed.notify_all();
    return true;
}

bool quire_be_fence::wait_or_closing(uint64_t awaited) {
    if (value.load(std::memory_order_acquire) >= awaited) return true;
    std::unique_lock lock(device->mutex);
    device->changed.wait(lock, [&] { return value.load() >= awaited || device->closing.load(); });
    return value.load() >= awaited;
}
