// SPDX-License-Identifier: Apache-2.0

#include "queue.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "device.hpp"
#include "engine.hpp"
#include "fault.hpp"
#include "fence.hpp"
#include "recorder.hpp"

namespace quire::vulkan {

namespace {

VkResult open_vulkan(Queue *queue) {
    Context &context = queue->device->context;
    DriverThreads threads;
    VkSemaphoreTypeCreateInfo type{};
    type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphore{};
    semaphore.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    semaphore.pNext = &type;
    if (VkResult result =
            context.vk.vkCreateSemaphore(context.handle, &semaphore, nullptr, &queue->timeline)) {
        return result;
    }
    const uint32_t families[kLanes] = {context.adapter.family, context.adapter.transfer_family};
    for (size_t lane = 0; lane < (context.transfer != VK_NULL_HANDLE ? kLanes : 1); ++lane) {
        VkCommandPoolCreateInfo pool{};
        pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
        pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
        pool.queueFamilyIndex = families[lane];
        VkResult result =
            context.vk.vkCreateCommandPool(context.handle, &pool, nullptr, &queue->pools[lane]);
        if (result != VK_SUCCESS) return result;
    }
    VkResult result = queue->fault_buffer.make(context, sizeof(FaultRecord), BufferKind::host);
    if (result == VK_SUCCESS) std::memset(queue->fault_buffer.host(), 0, sizeof(FaultRecord));
    return result;
}

VkSemaphoreSubmitInfo semaphore_info(VkSemaphore semaphore, uint64_t value) {
    VkSemaphoreSubmitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    info.semaphore = semaphore;
    info.value = value;
    info.stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    return info;
}

// Converts a batch's waits for Vulkan. False: one of them is not certain to be reached.
bool resolve_waits(Queue *queue, Batch *batch, std::vector<VkSemaphoreSubmitInfo> *waits) {
    for (const FenceStep &step : batch->waits) {
        step.fence->settle();
        if (step.fence->value >= step.value) continue;
        const Mark *mark = step.fence->find_mark(step.value);
        if (mark == nullptr) return false;
        if (mark->queue == queue) continue;
        waits->push_back(semaphore_info(mark->queue->timeline, mark->place));
    }
    return true;
}

// Keeps timelines alive while a submission waits for them.
void hold_awaited(Queue *queue, Batch *batch) {
    for (const FenceStep &step : batch->waits) {
        const Mark *mark = step.fence->find_mark(step.value);
        if (step.fence->value >= step.value || mark == nullptr || mark->queue == queue) continue;
        mark->queue->references.add();
        batch->awaited.push_back(mark->queue);
    }
}

VkResult submit(Queue *queue, const Batch &batch, std::vector<VkSemaphoreSubmitInfo> waits) {
    waits.insert(waits.end(), batch.native_waits.begin(), batch.native_waits.end());
    if (batch.lane != queue->lane) {
        waits.push_back(semaphore_info(queue->timeline, queue->submitted_place));
    }
    std::vector<VkSemaphoreSubmitInfo> signals = batch.native_signals;
    VkCommandBufferSubmitInfo commands{};
    commands.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    commands.commandBuffer = batch.commands[static_cast<size_t>(batch.lane)];
    signals.push_back(semaphore_info(queue->timeline, batch.place));
    VkSubmitInfo2 info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    info.waitSemaphoreInfoCount = static_cast<uint32_t>(waits.size());
    info.pWaitSemaphoreInfos = waits.data();
    info.commandBufferInfoCount = batch.command_count != 0 ? 1 : 0;
    info.pCommandBufferInfos = &commands;
    info.signalSemaphoreInfoCount = static_cast<uint32_t>(signals.size());
    info.pSignalSemaphoreInfos = signals.data();
    const Context &context = queue->device->context;
    VkQueue to = queue->bound != VK_NULL_HANDLE ? queue->bound : context.queue;
    if (batch.lane == Lane::transfer) to = context.transfer;
    return context.submit(to, &info, VK_NULL_HANDLE);
}

// Submits the first held batch if its waits allow it; returns whether anything was done.
// REQUIRES: the queue has not failed.
bool submit_first(Queue *queue) {
    Batch *batch = queue->held.front().get();
    std::vector<VkSemaphoreSubmitInfo> waits;
    if (!resolve_waits(queue, batch, &waits)) return false;
    hold_awaited(queue, batch);
    VkResult result = submit(queue, *batch, waits);
    if (result == VK_ERROR_DEVICE_LOST) {
        queue->device->lose();
        return true;
    }
    if (result != VK_SUCCESS) {
        queue->refuse(batch->place, result, "a submission");
        return true;
    }
    queue->submitted_place = batch->place;
    queue->lane = batch->lane;
    for (const FenceStep &step : batch->signals) {
        step.fence->add_mark(step.value, queue, batch->place);
    }
    queue->submitted.push_back(std::move(queue->held.front()));
    queue->held.pop_front();
    return true;
}

}  // namespace

QueueHold::~QueueHold() {
    std::lock_guard lock(queue_->device->mutex);
    queue_->drop_reference();
}

quire_status make_queue(Device *device, VkQueue bound, Queue **out, quire_error *error) {
    {
        std::lock_guard lock(device->mutex);
        for (Queue *queue : device->queues) {
            queue->poll();
            if (device->is_closed || device->is_lost) break;
            if (!queue->is_spare() || queue->bound != bound) continue;
            queue->begin_anew();
            queue->references.add();
            *out = queue;
            return QUIRE_OK;
        }
    }
    auto queue = std::make_unique<quire_be_queue>();
    queue->device = device;
    queue->bound = bound;
    device->references.add();
    VkResult result = open_vulkan(queue.get());
    std::lock_guard lock(device->mutex);
    if (result != VK_SUCCESS || device->is_closed || device->is_lost) {
        queue->release_vulkan();
        (void)device->references.drop();  // the caller holds another
        return fail_vulkan(error, result != VK_SUCCESS ? result : VK_ERROR_DEVICE_LOST, "a queue");
    }
    queue->references.add();  // the list's
    device->queues.push_back(queue.get());
    *out = queue.release();
    return QUIRE_OK;
}

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    VkQueue bound = VK_NULL_HANDLE;
    if (native != nullptr && native->kind != QUIRE_NATIVE_NONE) {
        quire_status status = find_native_queue(device.context, *native, &bound, error);
        if (status != QUIRE_OK) return status;
    }
    Queue *queue = nullptr;
    if (quire_status status = make_queue(&device, bound, &queue, error)) return status;
    *out = static_cast<quire_be_queue *>(queue);
    return QUIRE_OK;
}

void release_queue(Queue &queue) {
    Device *device = queue.device;
    device->references.add();  // the queue may hold the last one
    Recorder(queue).close_batch();
    {
        std::lock_guard lock(device->mutex);
        queue.is_released = true;
        device->pump();
        queue.drop_reference();
    }
    device->drop_reference();
}

quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    Recorder recorder(queue);
    recorder.close_batch();
    std::unique_lock lock(queue.device->mutex);
    queue.poll();
    if (queue.has_failed() && !queue.device->is_closed) {
        // Not an error: whoever waits for the enqueued work learns how it ended.
        fence.raise(kFenceFailed);
        queue.device->pump();
        return QUIRE_OK;
    }
    if (quire_status status = queue.check_usable(error)) return status;
    if (queue.bound != VK_NULL_HANDLE) {
        lock.unlock();
        return recorder.signal({&fence, value}, error);
    }
    if (!queue.held.empty()) {
        fence.references.add();
        queue.held.back()->signals.push_back({&fence, value});
        return QUIRE_OK;
    }
    if (queue.has_reached(queue.submitted_place)) {
        fence.raise(value);
    } else {
        fence.add_mark(value, &queue, queue.submitted_place);
    }
    queue.device->pump();
    return QUIRE_OK;
}

quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    Recorder recorder(queue);
    {
        std::lock_guard lock(queue.device->mutex);
        queue.poll();
        if (quire_status status = queue.check_usable(error)) return status;
        fence.settle();
        if (fence.value >= value) return QUIRE_OK;
        if (queue.bound != VK_NULL_HANDLE && fence.find_mark(value) == nullptr) {
            return fail(error, QUIRE_E_BUSY,
                        "the fence has not been signalled with %" PRIu64
                        ", and later submissions to this VkQueue could not be kept after the wait: "
                        "signal the fence first",
                        value);
        }
    }
    return recorder.wait({&fence, value}, error);
}

quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    VkSemaphoreSubmitInfo info{};
    if (quire_status status = find_native_semaphore(queue->device->context, native, &info, error)) {
        return status;
    }
    return Recorder(*queue).signal_native(info, error);
}

quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    VkSemaphoreSubmitInfo info{};
    if (quire_status status = find_native_semaphore(queue->device->context, native, &info, error)) {
        return status;
    }
    return Recorder(*queue).wait_native(info, error);
}

void Queue::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    release_vulkan();
    delete static_cast<quire_be_queue *>(this);
    owner->drop_reference();
}

quire_status Queue::check_usable(quire_error *error) {
    if (has_failed()) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the queue stopped: %s; release it", why);
    }
    if (device->is_closed) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the device of this queue is closed");
    }
    if (device->is_lost) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the Vulkan device is lost; close it");
    }
    return QUIRE_OK;
}

void Queue::poll() {
    if (timeline == VK_NULL_HANDLE) return;
    const Context &context = device->context;
    uint64_t value = submitted_place;
    if (!device->is_lost && reached_place < submitted_place) {
        VkResult result = context.vk.vkGetSemaphoreCounterValue(context.handle, timeline, &value);
        // The counters of a lost device may have any value.
        if (result < 0 || value > submitted_place) {
            device->lose();
            return;
        }
    }
    // First copies bytes to host memory: whoever sees the place as reached reads them, and also
    // those that other queues brought before it.
    device->staging.land();
    reached_place = std::max(reached_place, value);
    FaultRecord record;
    std::memcpy(&record, fault_buffer.host(), sizeof record);
    uint64_t faulty = uint64_t{record.place[1]} << 32 | record.place[0];
    if (faulty != 0 && faulty <= reached_place && failed_place > faulty) {
        char reason[sizeof why];
        describe_fault(record, reason, sizeof reason);
        fail_from(faulty, reason);
    }
    while (!submitted.empty() && submitted.front()->place <= reached_place) {
        std::unique_ptr<Batch> done = std::move(submitted.front());
        submitted.pop_front();
        done->drop_references();
        spare.push_back(std::move(done));
    }
}

uint64_t Queue::read_timeline() const {
    uint64_t value = reached_place;
    if (device->is_lost || timeline == VK_NULL_HANDLE) return value;
    const Context &context = device->context;
    VkResult result = context.vk.vkGetSemaphoreCounterValue(context.handle, timeline, &value);
    return result < 0 || value > submitted_place ? reached_place : value;
}

void Queue::fail_from(uint64_t place, const char *reason) {
    failed_place = std::min(failed_place, place);
    if (why[0] == 0) std::snprintf(why, sizeof why, "%s", reason);
    device->changed.notify_all();
}

void Queue::refuse(uint64_t place, VkResult result, const char *what) {
    char reason[96];
    std::snprintf(reason, sizeof reason, "the Vulkan driver refused %s: VkResult %d", what,
                  static_cast<int>(result));
    refused = result;
    fail_from(place, reason);
}

void Queue::begin_anew() {
    is_released = false;
    failed_place = UINT64_MAX;
    refused = VK_SUCCESS;
    why[0] = 0;
    std::memset(fault_buffer.host(), 0, sizeof(FaultRecord));
}

void Queue::drop_held() {
    while (!held.empty()) {
        std::unique_ptr<Batch> batch = std::move(held.front());
        held.pop_front();
        for (const auto &step : batch->signals) step.fence->raise(kFenceFailed);
        for (auto &buffer : batch->outgrown) outgrown.push_back(std::move(buffer));
        batch->drop_references();
        spare.push_back(std::move(batch));
    }
    device->changed.notify_all();
}

void Queue::release_vulkan() {
    if (timeline == VK_NULL_HANDLE && pools[0] == VK_NULL_HANDLE) return;
    const Context &context = device->context;
    context.vk.vkDestroySemaphore(context.handle, timeline, nullptr);
    for (VkCommandPool &pool : pools) {
        context.vk.vkDestroyCommandPool(context.handle, pool, nullptr);
        pool = VK_NULL_HANDLE;
    }
    timeline = VK_NULL_HANDLE;
    fault_buffer.release();
    scratch.release();
    outgrown.clear();
    spare.clear();
    open.reset();
}

void Device::pump() {
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (Queue *queue : queues) {
            queue->poll();
            while (!queue->held.empty() && !queue->has_failed() && submit_first(queue)) {
                goes_on = true;
            }
            if (queue->held.empty() || !queue->has_failed()) continue;
            queue->drop_held();
            goes_on = true;
        }
    }
    // Spare queues can be reused (is_spare()); their private memory is released.
    for (Queue *queue : queues) {
        if (!queue->is_spare()) continue;
        queue->scratch.release();
        queue->outgrown.clear();
    }
}

}  // namespace quire::vulkan
