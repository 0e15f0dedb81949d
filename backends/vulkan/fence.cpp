// SPDX-License-Identifier: Apache-2.0

#include "fence.hpp"

#include <algorithm>

#include "device.hpp"
#include "queue.hpp"

namespace quire::vulkan {

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *) {
    auto *fence = new quire_be_fence;
    device.references.add();
    fence->device = &device;
    fence->value = value;
    *out = fence;
    return QUIRE_OK;
}

void release_fence(Fence &fence) {
    Device *device = fence.device;
    device->references.add();  // the fence may hold the last one, and the mutex with it
    {
        std::lock_guard lock(device->mutex);
        fence.drop_reference();
    }
    device->drop_reference();
}

uint64_t read_fence(Fence &fence) {
    std::lock_guard lock(fence.device->mutex);
    fence.settle();
    return fence.value;
}

uint64_t raise_fence(Fence &fence, uint64_t to) {
    std::lock_guard lock(fence.device->mutex);
    fence.settle();
    uint64_t before = fence.value;
    if (to <= before) return before;
    fence.raise(to);
    fence.device->pump();
    return before;
}

uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline) {
    Device *device = fence.device;
    std::unique_lock lock(device->mutex);
    for (fence.settle(); fence.value < awaited; fence.settle()) {
        const Mark *mark = fence.find_mark(awaited);
        if (mark != nullptr) {
            // Submitted work finishes on its own; other raises are seen afterwards.
            if (!device->wait_for(mark->queue, mark->turn, deadline, lock)) break;
        } else {
            if (deadline.has_passed()) break;
            deadline.wait(device->changed, lock, kPollNs);
            device->pump();
        }
    }
    return fence.value;
}

void Fence::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    for (const Mark &mark : marks) mark.queue->drop_reference();
    delete static_cast<quire_be_fence *>(this);
    owner->drop_reference();
}

void Fence::settle() {
    for (const Mark &mark : marks) mark.queue->poll();
    std::erase_if(marks, [this](const Mark &mark) {
        if (!mark.queue->has_reached(mark.turn)) return false;
        bool failed = mark.queue->has_failed_at(mark.turn);
        value = std::max(value, failed ? kFenceFailed : mark.value);
        mark.queue->drop_reference();
        return true;
    });
}

void Fence::raise(uint64_t to) {
    value = std::max(value, to);
    device->changed.notify_all();
}

void Fence::add_mark(uint64_t to, Queue *queue, uint64_t turn) {
    // A fence that no one reads must not grow for ever.
    constexpr size_t kManyMarks = 16;
    if (marks.size() >= kManyMarks) settle();
    queue->references.add();
    marks.push_back({to, queue, turn});
    device->changed.notify_all();
}

const Mark *Fence::find_mark(uint64_t wanted) const {
    for (const Mark &mark : marks) {
        if (mark.value >= wanted) return &mark;
    }
    return nullptr;
}

}  // namespace quire::vulkan
