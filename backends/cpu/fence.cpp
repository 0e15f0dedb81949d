// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <new>

#include "device.hpp"
#include "shared/checks.hpp"

namespace quire::cpu {

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *error) {
    auto *fence = new (std::nothrow) quire_be_fence;
    if (fence == nullptr) return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a fence");
    device.references.add();
    fence->device = &device;
    fence->value.store(value);
    *out = fence;
    return QUIRE_OK;
}

uint64_t read_fence(const Fence &fence) { return fence.value.load(std::memory_order_acquire); }

uint64_t raise_fence(Fence &fence, uint64_t to) { return fence.raise(to); }

uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline) {
    if (read_fence(fence) < awaited) {
        std::unique_lock lock(fence.device->mutex);
        deadline.wait_until(fence.device->changed, lock,
                            [&] { return fence.value.load() >= awaited; });
    }
    return read_fence(fence);
}

void Fence::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    delete static_cast<quire_be_fence *>(this);
    owner->drop_reference();
}

uint64_t Fence::raise(uint64_t to) {
    std::lock_guard lock(device->mutex);
    uint64_t before = value.load(std::memory_order_relaxed);
    if (to <= before) return before;
    value.store(to, std::memory_order_release);
    device->changed.notify_all();
    return before;
}

bool Fence::wait_or_closing(uint64_t awaited) {
    if (read_fence(*this) >= awaited) return true;
    std::unique_lock lock(device->mutex);
    device->changed.wait(lock, [&] { return value.load() >= awaited || device->closing.load(); });
    return value.load() >= awaited;
}

}  // namespace quire::cpu
