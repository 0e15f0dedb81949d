// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <algorithm>

#include "device.hpp"
#include "queue.hpp"

namespace quire::gpu {

void Fence::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    delete static_cast<quire_be_fence *>(this);
    owner->drop_reference();
}

uint64_t Fence::current() const {
    if (cell.host == nullptr) return value;
    auto *words = reinterpret_cast<FenceWords *>(cell.host);
    uint64_t raised = std::max(value, __atomic_load_n(&words->value, __ATOMIC_ACQUIRE));
    return device->is_lost && raised < promised ? kFenceFailed : raised;
}

void Fence::settle() {
    std::lock_guard fences(device->fence_mutex);
    value = current();
}

void Fence::promise(uint64_t to) {
    std::lock_guard fences(device->fence_mutex);
    promised = std::max(promised, to);
}

void Fence::settle_for_good() {
    uses.clear();
    std::lock_guard fences(device->fence_mutex);
    value = current();
    if (value < promised) value = kFenceFailed;
    cell = {};
}

bool Fence::fail_if_due() {
    if (failing == nullptr) return false;
    if (!device->is_closed && !device->is_lost && failing->work() == Work::some) return false;
    raise(kFenceFailed);
    return true;
}

void Fence::forget_failing() {
    if (failing != nullptr) --device->failing_fences;
    failing = nullptr;
}

void Fence::raise(uint64_t to) {
    if (to == kFenceFailed) forget_failing();
    {
        std::lock_guard fences(device->fence_mutex);
        value = std::max(value, to);
    }
    device->changed.notify_all();
    if (cell.host == nullptr) return;
    auto *words = reinterpret_cast<FenceWords *>(cell.host);
    __atomic_store_n(&words->by_host, std::max(words->by_host, to), __ATOMIC_RELEASE);
}

void Fence::reserve_use(const Queue *queue) {
    for (const Use &use : uses) {
        if (use.queue == queue) return;
    }
    uses.push_back({queue, 0});
}

void Fence::note_use(const Queue *queue, uint64_t place) {
    for (Use &use : uses) {
        if (use.queue == queue) use.place = place;
    }
}

}  // namespace quire::gpu
