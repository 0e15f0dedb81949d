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

// Converts a recording's waits for Vulkan. False: one of them is not certain to be reached.
bool resolve_waits(Queue *queue, Recording *recording, std::vector<VkSemaphoreSubmitInfo> *waits) {
    for (const FenceStep &step : recording->waits) {
        step.fence->settle();
        if (step.fence->value >= step.value) continue;
        const Mark *mark = step.fence->find_mark(step.value);
        if (mark == nullptr) return false;
        if (mark->queue == queue) continue;
        waits->push_back(semaphore_info(mark->queue->timeline, mark->turn));
    }
    return true;
}

// Keeps timelines alive while a recording waits for them.
void hold_awaited(Queue *queue, Recording *recording) {
    for (const FenceStep &step : recording->waits) {
        const Mark *mark = step.fence->find_mark(step.value);
        if (step.fence->value >= step.value || mark == nullptr || mark->queue == queue) continue;
        mark->queue->references.add();
        recording->awaited.push_back(mark->queue);
    }
}

VkResult submit(Queue *queue, const Recording &recording,
                std::vector<VkSemaphoreSubmitInfo> waits) {
    waits.insert(waits.end(), recording.native_waits.begin(), recording.native_waits.end());
    if (recording.lane != queue->lane) {
        waits.push_back(semaphore_info(queue->timeline, queue->submitted_turn));
    }
    std::vector<VkSemaphoreSubmitInfo> signals = recording.native_signals;
    VkCommandBufferSubmitInfo commands{};
    commands.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    commands.commandBuffer = recording.commands[static_cast<size_t>(recording.lane)];
    signals.push_back(semaphore_info(queue->timeline, recording.turn));
    VkSubmitInfo2 info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    info.waitSemaphoreInfoCount = static_cast<uint32_t>(waits.size());
    info.pWaitSemaphoreInfos = waits.data();
    info.commandBufferInfoCount = recording.command_count != 0 ? 1 : 0;
    info.pCommandBufferInfos = &commands;
    info.signalSemaphoreInfoCount = static_cast<uint32_t>(signals.size());
    info.pSignalSemaphoreInfos = signals.data();
    const Context &context = queue->device->context;
    VkQueue to = queue->bound != VK_NULL_HANDLE ? queue->bound : context.queue;
    if (recording.lane == Lane::transfer) to = context.transfer;
    return context.submit(to, &info, VK_NULL_HANDLE);
}

// Submits the first held recording if its waits allow it; returns whether anything was done.
// REQUIRES: the queue has not failed.
bool submit_first(Queue *queue) {
    Recording *recording = queue->held.front().get();
    std::vector<VkSemaphoreSubmitInfo> waits;
    if (!resolve_waits(queue, recording, &waits)) return false;
    hold_awaited(queue, recording);
    VkResult result = submit(queue, *recording, waits);
    if (result == VK_ERROR_DEVICE_LOST) {
        queue->device->lose();
        return true;
    }
    if (result != VK_SUCCESS) {
        queue->refuse(recording->turn, result, "a submission");
        return true;
    }
    queue->submitted_turn = recording->turn;
    queue->lane = recording->lane;
    for (const FenceStep &step : recording->signals) {
        step.fence->add_mark(step.value, queue, recording->turn);
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
    Recorder(queue).close_recording();
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
    recorder.close_recording();
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
    if (queue.has_reached(queue.submitted_turn)) {
        fence.raise(value);
    } else {
        fence.add_mark(value, &queue, queue.submitted_turn);
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
                        ", and later recordings to this VkQueue could not be kept after the wait: "
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
    uint64_t value = submitted_turn;
    if (!device->is_lost && reached_turn < submitted_turn) {
        VkResult result = context.vk.vkGetSemaphoreCounterValue(context.handle, timeline, &value);
        // The counters of a lost device may have any value.
        if (result < 0 || value > submitted_turn) {
            device->lose();
            return;
        }
    }
    // First copies bytes to host memory: whoever sees the turn as reached reads them, and also
    // those that other queues brought before it.
    device->staging.land();
    reached_turn = std::max(reached_turn, value);
    FaultRecord record;
    std::memcpy(&record, fault_buffer.host(), sizeof record);
    uint64_t faulty = uint64_t{record.turn[1]} << 32 | record.turn[0];
    if (faulty != 0 && faulty <= reached_turn && failed_turn > faulty) {
        char reason[sizeof why];
        describe_fault(record, reason, sizeof reason);
        fail_from(faulty, reason);
    }
    while (!submitted.empty() && submitted.front()->turn <= reached_turn) {
        std::unique_ptr<Recording> done = std::move(submitted.front());
        submitted.pop_front();
        done->drop_references();
        spare.push_back(std::move(done));
    }
}

uint64_t Queue::read_timeline() const {
    uint64_t value = reached_turn;
    if (device->is_lost || timeline == VK_NULL_HANDLE) return value;
    const Context &context = device->context;
    VkResult result = context.vk.vkGetSemaphoreCounterValue(context.handle, timeline, &value);
    return result < 0 || value > submitted_turn ? reached_turn : value;
}

void Queue::fail_from(uint64_t turn, const char *reason) {
    failed_turn = std::min(failed_turn, turn);
    if (why[0] == 0) std::snprintf(why, sizeof why, "%s", reason);
    device->changed.notify_all();
}

void Queue::refuse(uint64_t turn, VkResult result, const char *what) {
    char reason[96];
    std::snprintf(reason, sizeof reason, "the Vulkan driver refused %s: VkResult %d", what,
                  static_cast<int>(result));
    refused = result;
    fail_from(turn, reason);
}

void Queue::begin_anew() {
    is_released = false;
    failed_turn = UINT64_MAX;
    refused = VK_SUCCESS;
    why[0] = 0;
    std::memset(fault_buffer.host(), 0, sizeof(FaultRecord));
}

void Queue::drop_held() {
    while (!held.empty()) {
        std::unique_ptr<Recording> recording = std::move(held.front());
        held.pop_front();
        for (const auto &step : recording->signals) step.fence->raise(kFenceFailed);
        for (auto &buffer : recording->outgrown) outgrown.push_back(std::move(buffer));
        recording->drop_references();
        spare.push_back(std::move(recording));
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
