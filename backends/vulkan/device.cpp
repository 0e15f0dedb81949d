// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "engine.hpp"
#include "fence.hpp"
#include "queue.hpp"
#include "recorder.hpp"
#include "shared/checks.hpp"
#include "transfer.hpp"

namespace quire::vulkan {

namespace {

// Explains why no device is listed.
std::string why_none(const InstanceHold &hold) {
    if (!hold.why_none().empty()) return hold.why_none();
    const char *wanted = environment("QUIRE_VULKAN_DEVICE");
    if (wanted == nullptr) return "the Vulkan drivers report no devices";
    return std::string("QUIRE_VULKAN_DEVICE is ") + wanted + ", but no device has that UUID";
}

quire_status choose(uint32_t index, const std::vector<Adapter> &adapters, const InstanceHold &hold,
                    quire_error *error) {
    if (adapters.empty()) {
        return fail(error, QUIRE_E_ARG, "there is no Vulkan device %u: %.300s", index,
                    why_none(hold).c_str());
    }
    if (index >= adapters.size()) {
        return fail(error, QUIRE_E_ARG, "there is no Vulkan device %u; %zu found", index,
                    adapters.size());
    }
    if (adapters[index].is_usable()) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED, "Vulkan device %u cannot be used: %s", index,
                adapters[index].lacks);
}

// Loads the drivers.
quire_status find_adapters(InstanceHold *hold, std::vector<Adapter> *adapters, quire_error *error) {
    DriverThreads threads;
    if (quire_status status = hold->acquire(error)) return status;
    return list_adapters(hold->instance(), adapters, error);
}

quire_status open_context(const quire_be_device_desc &desc, Context *context, quire_error *error) {
    if (desc.next != nullptr && desc.next->struct_type == QUIRE_STRUCT_VULKAN_DEVICE) {
        constexpr uint32_t kFirstBytes = 112;
        quire_vulkan_device given;
        quire_status status = read_chained(desc.next, kFirstBytes, sizeof given,
                                           "quire_vulkan_device", &given, error);
        if (status != QUIRE_OK) return status;
        status = refuse_chain(given.next, error);
        if (status != QUIRE_OK) return status;
        return borrow_device(given, context, error);
    }
    if (quire_status status = refuse_chain(desc.next, error)) return status;
    std::vector<Adapter> adapters;
    if (quire_status status = find_adapters(&context->hold, &adapters, error)) return status;
    if (quire_status status = choose(desc.index, adapters, context->hold, error)) return status;
    return context->open(adapters[desc.index], error);
}

quire_status open_parts(Device *device, const quire_be_device_desc &desc, quire_error *error) {
    Context &context = device->context;
    if (quire_status status = open_context(desc, &context, error)) return status;
    if (quire_status status = device->memory.open(context, error)) return status;
    if (quire_status status = device->kernels.open(context, error)) return status;
    Queue *setup = nullptr;
    if (quire_status status = device->hold_setup(&setup, error)) return status;
    QueueHold hold(setup);
    return QUIRE_OK;
}

// REQUIRES: nothing of the device runs, and no thread is inside a call on its queues.
void close_parts(Device *device) {
    for (Queue *queue : device->queues) queue->release_vulkan();
    device->staging.release();
    device->kernels.close();
    device->memory.close();
    device->context.close();
}

// With references, so that none is destroyed while the lock is not held.
std::vector<Queue *> hold_queues(Device *device) {
    std::lock_guard lock(device->mutex);
    for (Queue *queue : device->queues) queue->references.add();
    return device->queues;
}

void flush(Device *device) {
    std::vector<Queue *> queues = hold_queues(device);
    for (Queue *queue : queues) Recorder(*queue).close_recording();
    std::lock_guard lock(device->mutex);
    for (Queue *queue : queues) queue->drop_reference();
}

// A queue that keeps the device from being idle; prefers one with submitted work.
Queue *find_busy(Device *device) {
    Queue *busy = nullptr;
    for (Queue *queue : device->queues) queue->poll();
    for (Queue *queue : device->queues) {
        if (!queue->submitted.empty()) return queue;
        if (!queue->held.empty()) busy = queue;
    }
    return busy;
}

}  // namespace

quire_status count_devices(uint32_t *device_count, quire_error *error) {
    InstanceHold hold;
    std::vector<Adapter> adapters;
    if (quire_status status = find_adapters(&hold, &adapters, error)) return status;
    *device_count = static_cast<uint32_t>(adapters.size());
    if (adapters.empty()) (void)fail(error, QUIRE_OK, "%.300s", why_none(hold).c_str());
    return QUIRE_OK;
}

quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error) {
    if (quire_status status = check_device_flags(desc, error)) return status;
    auto *device = new quire_be_device;
    if (quire_status status = open_parts(device, desc, error)) {
        close_parts(device);
        device->drop_reference();
        return status;
    }
    *out = device;
    return QUIRE_OK;
}

void close_device(Device &device) {
    {
        std::lock_guard lock(device.mutex);
        device.is_closed = true;  // from now on no call starts work
    }
    flush(&device);
    std::unique_lock lock(device.mutex);
    device.pump();
    for (Queue *queue : device.queues) {
        if (queue->held.empty()) continue;
        queue->fail_from(queue->submitted_turn + 1,
                         "the device was closed while the queue waited for a fence");
        queue->drop_held();
    }
    Deadline never(UINT64_MAX);
    while (Queue *queue = find_busy(&device)) {
        device.wait_for(queue, queue->submitted_turn, never, lock);
    }
    while (device.waiters != 0) device.changed.wait(lock);
    // Timelines have reached their ends; the driver itself may lag slightly.
    device.context.wait_idle(device.vulkan_queues());
    close_parts(&device);
    std::vector<Queue *> queues;
    queues.swap(device.queues);
    for (Queue *queue : queues) queue->drop_reference();
    device.setup->drop_reference();
    device.setup = nullptr;
    device.changed.notify_all();
}

quire_status describe_device(Device &device, quire_be_device_props *props, quire_error *) {
    const Adapter &adapter = device.context.adapter;
    Memory::Heap heap = device.memory.device_heap();
    props->host_visible = 0;
    props->memory_total_bytes = heap.total_bytes;
    props->memory_free_bytes = heap.free_bytes;
    props->copy_alignment = 64;
    props->flags = 0;
    std::memset(props->name, 0, sizeof props->name);
    std::snprintf(props->name, sizeof props->name, "%.63s", adapter.properties.deviceName);
    return QUIRE_OK;
}

quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *error) {
    flush(&device);
    std::unique_lock lock(device.mutex);
    while (Queue *busy = find_busy(&device)) {
        if (!busy->submitted.empty()) {
            if (!device.wait_for(busy, busy->submitted_turn, deadline, lock)) {
                return QUIRE_S_TIMEOUT;
            }
        } else {
            if (deadline.has_passed()) return QUIRE_S_TIMEOUT;
            deadline.wait(device.changed, lock, kPollNs);
            device.pump();
        }
    }
    if (!device.is_lost) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the Vulkan device is lost; close it");
}

void Device::drop_reference() {
    if (references.drop()) delete static_cast<quire_be_device *>(this);
}

quire_status Device::zero(uint64_t address, uint64_t size_bytes, quire_error *error) {
    Queue *queue = nullptr;
    if (quire_status status = hold_setup(&queue, error)) return status;
    QueueHold hold(queue);
    quire_be_range range = {address, size_bytes};
    quire_status status = enqueue_fill(*queue, &range, 1, 0, error);
    if (status == QUIRE_OK) Recorder(*queue).close_recording();
    Deadline never(UINT64_MAX);
    std::unique_lock lock(mutex);
    if (status == QUIRE_OK) {
        wait_for(queue, queue->submitted_turn, never, lock);
        status = queue->check_usable(error);
    }
    if (status == QUIRE_OK || queue->refused == VK_SUCCESS) return status;
    // Running out of memory fails only this call: the next one gets another queue.
    return fail_vulkan(error, queue->refused, "to zero memory");
}

quire_status Device::hold_setup(Queue **out, quire_error *error) {
    {
        std::lock_guard lock(mutex);
        if (setup != nullptr && !setup->has_failed()) {
            setup->references.add();
            *out = setup;
            return QUIRE_OK;
        }
    }
    Queue *made = nullptr;
    if (quire_status status = make_queue(this, VK_NULL_HANDLE, &made, error)) {
        return status;
    }
    std::lock_guard lock(mutex);
    // Another thread may have been faster; then its queue is used, and ours is spare.
    bool is_ours = setup == nullptr || setup->has_failed();
    Queue *given_up = is_ours ? setup : made;
    if (is_ours) setup = made;
    if (given_up != nullptr) {
        given_up->is_released = true;
        given_up->drop_reference();
    }
    setup->references.add();
    *out = setup;
    return QUIRE_OK;
}

bool Device::wait_for(Queue *queue, uint64_t turn, const Deadline &deadline,
                      std::unique_lock<std::mutex> &lock) {
    queue->references.add();
    ++waiters;
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pValues = &turn;
    VkSemaphore timeline = queue->timeline;
    info.pSemaphores = &timeline;
    lock.unlock();
    VkResult result = context.vk.vkWaitSemaphores(context.handle, &info, deadline.left_ns());
    lock.lock();
    --waiters;
    if (result < 0) lose();
    pump();
    changed.notify_all();
    queue->drop_reference();
    return result != VK_TIMEOUT;
}

std::vector<VkQueue> Device::vulkan_queues() const {
    std::vector<VkQueue> found = {context.queue};
    bool has_other = context.transfer != VK_NULL_HANDLE && context.transfer != context.queue;
    if (has_other) found.push_back(context.transfer);
    for (const Queue *queue : queues) {
        bool is_new = std::find(found.begin(), found.end(), queue->bound) == found.end();
        if (queue->bound != VK_NULL_HANDLE && is_new) found.push_back(queue->bound);
    }
    return found;
}

void Device::lose() {
    if (is_lost) return;
    is_lost = true;
    // Running work finishes, so that its memory may be freed: Vulkan promises as much.
    context.wait_idle(vulkan_queues());
    for (Queue *queue : queues) {
        queue->fail_from(queue->reached_turn + 1, "the Vulkan device is lost");
    }
    for (Queue *queue : queues) queue->poll();
    changed.notify_all();
}

}  // namespace quire::vulkan
