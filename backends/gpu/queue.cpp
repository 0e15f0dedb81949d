// SPDX-License-Identifier: Apache-2.0

#include "queue.hpp"

#include <algorithm>
#include <cstdio>

#include "device.hpp"
#include "fault.hpp"
#include "fence.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

quire_status check_step(const quire_be_queue *queue, const quire_be_fence *fence,
                        quire_error *error) {
    if (queue == nullptr || fence == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or fence is NULL");
    }
    if (fence->device == queue->device) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "the fence belongs to another device; wait for it on the host instead");
}

quire_status open_parts(quire_be_queue *queue, quire_error *error) {
    quire_be_device *device = queue->device;
    const Driver &driver = *device->context.driver;
    DriverThreads threads;
    Result result = driver.stream_create(&queue->stream);
    if (result == 0) result = device->pinned.take(&queue->record);
    if (result == 0) result = device->words.take(&queue->word);
    if (result == 0) result = driver.fill(queue->stream, queue->word.address, 0, kCellBytes);
    return device->check(result, "a queue", error);
}

}  // namespace

quire_status make_queue(quire_be_device *device, quire_be_queue **out, quire_error *error) {
    for (quire_be_queue *queue : device->queues) {
        if (!queue->is_spare()) continue;
        queue->is_released = false;
        queue->references.fetch_add(1, std::memory_order_relaxed);
        *out = queue;
        return QUIRE_OK;
    }
    device->queues.reserve(device->queues.size() + 1);
    auto *queue = new quire_be_queue;
    queue->device = device;
    device->add_reference();
    if (quire_status status = open_parts(queue, error)) {
        queue->close();
        device->pinned.give_back(queue->record);
        device->words.give_back(queue->word);
        queue->references.store(1);
        queue->drop_reference();
        return status;
    }
    device->queues.push_back(queue);
    *out = queue;
    return QUIRE_OK;
}

quire_status queue_bind(quire_be_device *device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    if (native != nullptr && native->kind != QUIRE_NATIVE_NONE) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "native kind %u is not known here; use QUIRE_NATIVE_NONE", native->kind);
    }
    std::lock_guard lock(device->mutex);
    if (device->is_closed || device->is_lost) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost or closed", kBackendName);
    }
    Entered entered(device->context);
    if (quire_status status = device->check_in(entered, error)) return status;
    if (quire_status status = make_queue(device, out, error)) return status;
    live_objects.fetch_add(1, std::memory_order_relaxed);
    return QUIRE_OK;
}

void queue_release(quire_be_queue *queue) {
    if (queue == nullptr) return;
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    {
        std::lock_guard lock(queue->device->mutex);
        queue->is_released = true;
    }
    queue->drop_reference();
}

quire_status fence_signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                          quire_error *error) {
    if (quire_status status = check_step(queue, fence, error)) return status;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) {
        if (queue->device->is_closed) return status;
        // Not refused: who waits for the end of what was enqueued learns how it ended.
        fence->raise(kFenceFailed);
        return QUIRE_OK;
    }
    FenceCall call{};
    call.fence = fence->cell.address;
    call.value = value;
    call.place = queue->next_place();
    if (quire_status status = enqueue.launch(KernelName::fence_signal, 1, &call.head, error)) {
        return status;
    }
    fence->enqueued = std::max(fence->enqueued, value);
    fence->note_use(queue, call.place);
    return QUIRE_OK;
}

quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error) {
    if (quire_status status = check_step(queue, fence, error)) return status;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    fence->settle();
    if (fence->value >= value) return QUIRE_OK;
    if (value >= kWakeMost) {
        return fail(error, QUIRE_E_LIMIT, "a queue can wait for values below 2^63 - 1");
    }
    Result result = enqueue.driver().stream_wait_value(
        queue->stream, fence->cell.address + offsetof(FenceWords, wake), value);
    if (quire_status status = enqueue.add(result, error)) return status;
    FenceCall call{};
    call.fence = fence->cell.address;
    call.value = value;
    call.place = queue->next_place();
    queue->wait_place = call.place;
    fence->note_use(queue, call.place);
    return enqueue.launch(KernelName::fence_passed, 1, &call.head, error);
}

Enqueue::Enqueue(quire_be_queue *queue) : queue_(queue), lock_(queue->device->mutex) {}

quire_status Enqueue::begin(quire_error *error) {
    queue_->poll();
    if (quire_status status = queue_->check_usable(error)) return status;
    entered_.emplace(queue_->device->context);
    return queue_->device->check_in(*entered_, error);
}

quire_status Enqueue::add(Result result, quire_error *error) {
    quire_be_device *device = queue_->device;
    if (device->is_good(result)) {
        has_enqueued_ = true;
        return QUIRE_OK;
    }
    quire_status status = fail_driver(driver(), result, "to enqueue", error);
    if (!has_enqueued_) return status;
    queue_->fail("the driver refused a part of a call");
    return fail(error, QUIRE_E_DEVICE_LOST, "the %s driver refused a part of a call: %s (%d)",
                driver().vendor, driver().describe(result), result);
}

quire_status Enqueue::launch(KernelName name, uint64_t group_count, Head *arguments,
                             quire_error *error) {
    return add(queue_->launch(name, group_count, arguments), error);
}

const Driver &Enqueue::driver() const { return *queue_->device->context.driver; }

}  // namespace quire::gpu

void quire_be_queue::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    quire_be_device *owner = device;
    delete this;
    owner->drop_reference();
}

quire_status quire_be_queue::check_usable(quire_error *error) {
    using quire::fail;
    if (device->is_closed) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the device of this queue is closed");
    }
    if (device->is_lost) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost; close it",
                    quire::kBackendName);
    }
    if (!has_failed()) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the queue stopped: %s; release it", why);
}

void quire_be_queue::poll() {
    if (record.host == nullptr) return;
    auto *said = reinterpret_cast<quire::gpu::QueueRecord *>(record.host);
    reached = __atomic_load_n(&said->reached, __ATOMIC_ACQUIRE);
    if (has_failed() || __atomic_load_n(&said->code, __ATOMIC_ACQUIRE) == 0) return;
    quire::gpu::describe_fault(*said, why, sizeof why);
}

bool quire_be_queue::is_idle() {
    quire::gpu::Result result = device->context.driver->stream_query(stream);
    if (device->context.driver->is_not_ready(result)) return false;
    device->is_good(result);
    return true;
}

bool quire_be_queue::is_spare() {
    if (!is_released || references.load() != 1) return false;
    poll();
    return !has_failed() && reached == place && is_idle();
}

void quire_be_queue::fail(const char *reason) {
    if (!has_failed()) std::snprintf(why, sizeof why, "%s", reason);
    // Kernels behind do nothing, if the driver still takes this.
    device->is_good(device->context.driver->fill(stream, word.address, 0xFF, sizeof(uint32_t)));
}

quire::gpu::Result quire_be_queue::launch(quire::gpu::KernelName name, uint64_t group_count,
                                          quire::gpu::Head *arguments) {
    constexpr uint64_t kRow = 65535;  // what every device has in each dimension
    arguments->fault = word.address;
    arguments->record = record.address;
    arguments->group_count = group_count;
    const quire::gpu::Kernel &kernel = device->kernels.get(name);
    auto groups_x = static_cast<uint32_t>(std::min(group_count, kRow));
    auto groups_y = static_cast<uint32_t>((group_count - 1) / kRow + 1);
    return device->context.driver->launch(kernel.function, groups_x, groups_y, kernel.threads,
                                          stream, arguments);
}

quire::gpu::Result quire_be_queue::reserve_scratch(uint64_t size_bytes) {
    if (size_bytes <= scratch_bytes) return 0;
    outgrown.reserve(outgrown.size() + 1);
    uint64_t made = 0;
    uint64_t wanted = std::max(size_bytes, device->scratch_bytes);
    quire::gpu::Result result = device->context.driver->memory_alloc(&made, wanted);
    if (result != 0) return result;
    if (scratch != 0) outgrown.push_back(scratch);
    scratch = made;
    scratch_bytes = wanted;
    return 0;
}

void quire_be_queue::close() {
    poll();
    const quire::gpu::Driver &driver = *device->context.driver;
    if (stream != nullptr) driver.stream_destroy(stream);
    if (scratch != 0) driver.memory_free(scratch);
    for (uint64_t address : outgrown) driver.memory_free(address);
    outgrown.clear();
    scratch = scratch_bytes = 0;
    stream = nullptr;
    record.host = nullptr;
}
