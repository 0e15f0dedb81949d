// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <algorithm>
#include <cinttypes>

#include "device.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

quire_status fence_create(quire_be_device *device, uint64_t value, quire_be_fence **out,
                          quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    auto *fence = new quire_be_fence;
    device->add_reference();
    fence->device = device;
    fence->value = value;
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
        fence->drop_reference();
    }
    device->drop_reference();
}

quire_status fence_read(quire_be_fence *fence, uint64_t *value, quire_error *error) {
    if (fence == nullptr || value == nullptr) {
        return fail(error, QUIRE_E_ARG, "fence or value is NULL");
    }
    std::lock_guard lock(fence->device->mutex);
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
    fence->device->pump();
    return QUIRE_OK;
}

quire_status fence_wait_host(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    quire_be_device *device = fence->device;
    Deadline deadline(timeout_ns);
    std::unique_lock lock(device->mutex);
    for (fence->settle(); fence->value < value; fence->settle()) {
        const Mark *mark = fence->find_mark(value);
        if (mark != nullptr) {
            // Submitted work finishes on its own; other raises are seen afterwards.
            if (!device->wait_for(mark->queue, mark->place, deadline, lock)) break;
        } else {
            // We run no thread that watches the device, so the waiter checks for failed queues.
            if (deadline.has_passed()) break;
            deadline.wait(device->changed, lock);
            device->pump();
        }
    }
    if (fence->value < value) return QUIRE_S_TIMEOUT;
    if (fence->value != kFenceFailed || value == kFenceFailed) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the fence failed: work before it did not run");
}

}  // namespace quire::vulkan

void quire_be_fence::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    quire_be_device *owner = device;
    for (const quire::vulkan::Mark &mark : marks) mark.queue->drop_reference();
    delete this;
    owner->drop_reference();
}

void quire_be_fence::settle() {
    for (const quire::vulkan::Mark &mark : marks) mark.queue->poll();
    std::erase_if(marks, [this](const quire::vulkan::Mark &mark) {
        if (!mark.queue->has_reached(mark.place)) return false;
        bool failed = mark.queue->has_failed_at(mark.place);
        value = std::max(value, failed ? quire::vulkan::kFenceFailed : mark.value);
        mark.queue->drop_reference();
        return true;
    });
}

void quire_be_fence::raise(uint64_t to) {
    value = std::max(value, to);
    device->changed.notify_all();
}

void quire_be_fence::add_mark(uint64_t to, quire_be_queue *queue, uint64_t place) {
    // A fence that no one reads must not grow for ever.
    constexpr size_t kManyMarks = 16;
    if (marks.size() >= kManyMarks) settle();
    queue->add_reference();
    marks.push_back({to, queue, place});
    device->changed.notify_all();
}

const quire::vulkan::Mark *quire_be_fence::find_mark(uint64_t wanted) const {
    for (const quire::vulkan::Mark &mark : marks) {
        if (mark.value >= wanted) return &mark;
    }
    return nullptr;
}
