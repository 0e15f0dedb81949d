// SPDX-License-Identifier: Apache-2.0

#include "queue.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "device.hpp"
#include "engine.hpp"
#include "fault.hpp"
#include "fence.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

quire_status check_fence(const quire_be_queue *queue, const quire_be_fence *fence,
                         quire_error *error) {
    if (queue == nullptr || fence == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or fence is NULL");
    }
    if (fence->device == queue->device) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "the fence belongs to another device; wait for it on the host instead");
}

quire_status open_parts(quire_be_queue *queue, const StreamChoice &choice, quire_error *error) {
    quire_be_device *device = queue->device;
    const Driver &driver = *device->context.driver;
    DriverThreads threads;
    Result result = 0;
    queue->is_bound = choice.is_bound;
    if (choice.is_bound) {
        queue->stream = choice.bound;
        queue->owner = choice.owner;
    } else {
        result = driver.stream_create(choice.is_urgent, &queue->stream);
    }
    if (result == 0) result = device->pinned.take(&queue->record);
    if (result == 0) result = device->words.take(&queue->word);
    if (result == 0) result = driver.fill(queue->stream, queue->word.address, 0, kCellBytes);
    return device->check(result, "a queue", error);
}

// The engine's stream, if a queue can be made on it now.
quire_status find_bound(quire_be_device *device, const quire_native &native, Stream *out,
                        quire_error *error) {
    if (quire_status status = find_native_stream(device, native, out, error)) return status;
    bool is_captured = false;
    if (quire_status status = check_capture(device, *out, &is_captured, error)) return status;
    if (!is_captured) return QUIRE_OK;
    return fail(error, QUIRE_E_BUSY,
                "the engine is capturing the stream, so clearing the queue's memory would go to "
                "the graph: create the queue before or after the capture");
}

}  // namespace

quire_status make_queue(quire_be_device *device, const StreamChoice &choice, quire_be_queue **out,
                        quire_error *error) {
    for (quire_be_queue *queue : device->queues) {
        if (!queue->is_spare_for(choice)) continue;
        queue->is_released = false;
        queue->references.fetch_add(1, std::memory_order_relaxed);
        *out = queue;
        return QUIRE_OK;
    }
    device->queues.reserve(device->queues.size() + 1);
    auto *queue = new quire_be_queue;
    queue->device = device;
    device->add_reference();
    if (quire_status status = open_parts(queue, choice, error)) {
        Cell record = queue->record, word = queue->word;
        queue->close();
        device->pinned.give_back(record);
        device->words.give_back(word);
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
    std::lock_guard lock(device->mutex);
    if (quire_status status = device->check_open(error)) return status;
    Entered entered(device->context);
    if (quire_status status = device->check_in(entered, error)) return status;
    StreamChoice choice;
    choice.is_bound = native != nullptr && native->kind != QUIRE_NATIVE_NONE;
    if (choice.is_bound) {
        quire_status status = find_bound(device, *native, &choice.bound, error);
        if (status != QUIRE_OK) return status;
        choice.owner = owner_of(choice.bound);
    }
    if (quire_status status = make_queue(device, choice, out, error)) return status;
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
    if (quire_status status = check_fence(queue, fence, error)) return status;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) {
        bool has_ended = queue->has_failed() || queue->device->is_lost;
        if (queue->device->is_closed || !has_ended) return status;
        // Not an error: whoever waits for the enqueued work learns how it ended.
        fence->raise(kFenceFailed);
        enqueue.pump();
        return QUIRE_OK;
    }
    quire_status status = enqueue.use_fence(CommandKind::signal, fence, value, error);
    if (status != QUIRE_OK) return status;
    fence->promised = std::max(fence->promised, value);
    enqueue.pump();
    return QUIRE_OK;
}

quire_status fence_wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                        quire_error *error) {
    if (quire_status status = check_fence(queue, fence, error)) return status;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    fence->settle();
    if (fence->value < value && value >= kWakeMost) {
        return fail(error, QUIRE_E_LIMIT, "a queue can wait for values below 2^63 - 1");
    }
    if (queue->is_bound && !fence->is_coming(value)) {
        return fail(error, QUIRE_E_BUSY,
                    "the fence has not been signalled with %" PRIu64
                    ", and later work on this stream could not be kept after the wait: signal the "
                    "fence first",
                    value);
    }
    return enqueue.use_fence(CommandKind::wait, fence, value, error);
}

Result give_copies(quire_be_device *device, Stream stream, const Copies &copies, bool *is_begun) {
    const Driver &driver = *device->context.driver;
    *is_begun = false;
    bool has_batches = driver.copy_many != nullptr && device->takes_batches;
    if (has_batches && copies.count > 1 && !is_legacy(stream)) {
        Result result = driver.copy_many(stream, copies);
        if (result == 0 || driver.is_fatal(result)) return result;
        // Copies already made are made again, which changes nothing.
        *is_begun = true;
        device->takes_batches = driver.is_out_of_memory(result);
    }
    for (size_t i = 0; i < copies.count; ++i) {
        Result result = driver.copy(stream, copies.dsts[i], copies.srcs[i], copies.sizes_bytes[i]);
        if (result != 0) return result;
        *is_begun = true;
    }
    return 0;
}

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
    reached = std::max(reached, __atomic_load_n(&said->reached, __ATOMIC_ACQUIRE));
    if (has_failed() || __atomic_load_n(&said->code, __ATOMIC_ACQUIRE) == 0) return;
    quire::gpu::describe_fault(*said, why, sizeof why);
}

quire::gpu::Work quire_be_queue::work() {
    using quire::gpu::Capture;
    using quire::gpu::Work;
    if (!held.empty()) return Work::some;
    if (quire::gpu::owner_of(stream) != owner) return Work::unknown;
    const quire::gpu::Driver &driver = *device->context.driver;
    Capture capture = Capture::none;
    quire::gpu::Result result = is_bound ? driver.stream_capture(stream, &capture) : 0;
    if (result == 0 && capture != Capture::none) return Work::unknown;
    if (result == 0) result = driver.stream_query(stream);
    if (result == 0) return Work::none;
    if (driver.is_not_ready(result)) return Work::some;
    // The engine may have destroyed its stream.
    if (is_bound && !driver.is_fatal(result)) return Work::unknown;
    device->lose();
    return Work::none;
}

void quire_be_queue::settle_failed() {
    if (has_failed() && reached < place && work() == quire::gpu::Work::none) reached = place;
}

bool quire_be_queue::is_spare_for(const quire::gpu::StreamChoice &choice) {
    if (!is_released || references.load() != 1 || is_bound != choice.is_bound) return false;
    if (is_bound && (stream != choice.bound || owner != choice.owner)) return false;
    if (!is_bound && work() != quire::gpu::Work::none) return false;
    poll();  // after work(): the last command may have found a fault
    return !has_failed() && reached == place;
}

void quire_be_queue::fail(const char *reason) {
    if (!has_failed()) std::snprintf(why, sizeof why, "%s", reason);
    // Makes later kernels do nothing, if the driver still accepts this.
    device->is_good(device->context.driver->fill(stream, word.address, 0xFF, sizeof(uint32_t)));
}

quire::gpu::Result quire_be_queue::give(const quire::gpu::Command &command) {
    using quire::gpu::CommandKind;
    using quire::gpu::KernelName;
    const quire::gpu::Driver &driver = *device->context.driver;
    switch (command.kind) {
        case CommandKind::launch:
            return launch(command.kernel, command.group_count, command.arguments);
        case CommandKind::fill:
            return driver.fill(stream, command.dst, command.byte, command.size_bytes);
        case CommandKind::copies:
            return copy(command.copies);
        case CommandKind::wait:
            return wait(command);
        case CommandKind::signal:
            break;
    }
    quire::gpu::Result result = launch_place(KernelName::fence_signal, command);
    if (result != 0) return result;
    command.fence->enqueued = std::max(command.fence->enqueued, command.value);
    return 0;
}

quire::gpu::Result quire_be_queue::launch(quire::gpu::KernelName name, uint64_t group_count,
                                          quire::gpu::Head *arguments) {
    arguments->fault = word.address;
    arguments->record = record.address;
    arguments->group_count = group_count;
    const quire::gpu::Kernel &kernel = device->kernels.get(name);
    auto groups_x = static_cast<uint32_t>(std::min(group_count, quire::gpu::kMostBlocks));
    auto groups_y = static_cast<uint32_t>((group_count - 1) / quire::gpu::kMostBlocks + 1);
    return device->context.driver->launch(kernel.function, groups_x, groups_y, kernel.threads,
                                          kernel.shared_bytes, stream, arguments);
}

quire::gpu::Result quire_be_queue::launch_place(quire::gpu::KernelName name,
                                                const quire::gpu::Command &command) {
    quire::gpu::FenceCall call{};
    call.fence = command.fence->cell.address;
    call.value = command.value;
    call.place = place + 1;
    quire::gpu::Result result = launch(name, 1, &call.head);
    if (result != 0) return result;
    place = call.place;
    command.fence->note_use(this, place);
    return 0;
}

quire::gpu::Result quire_be_queue::wait(const quire::gpu::Command &command) {
    quire_be_fence *fence = command.fence;
    fence->settle();
    if (fence->value == quire::gpu::kFenceFailed) fail(quire::gpu::kFailedFence);
    if (fence->value >= command.value) return 0;
    quire::gpu::Result result = device->context.driver->stream_wait_value(
        stream, fence->cell.address + offsetof(quire::gpu::FenceWords, wake), command.value);
    if (result != 0) return result;
    result = launch_place(quire::gpu::KernelName::fence_passed, command);
    if (result == 0) return 0;
    // The stream still waits for the cell; settle_failed() notices when that is over.
    fence->note_use(this, ++place);
    fail("the driver refused part of a wait");
    return result;
}

quire::gpu::Result quire_be_queue::copy(const quire::gpu::Copies &copies) {
    bool is_begun = false;
    quire::gpu::Result result = quire::gpu::give_copies(device, stream, copies, &is_begun);
    if (result != 0 && is_begun) fail("the driver refused part of a call");
    return result;
}

bool quire_be_queue::advance() {
    if (held.empty()) return false;
    poll();
    bool goes_on = false;
    while (!held.empty() && !has_failed() && !device->is_lost) {
        quire::gpu::Command &first = held.front();
        if (first.kind == quire::gpu::CommandKind::wait) first.fence->settle();
        if (first.kind == quire::gpu::CommandKind::wait && !first.fence->is_coming(first.value)) {
            return goes_on;
        }
        if (!device->is_good(give(first))) {
            fail("the driver refused a command that was held back");
            break;
        }
        if (first.fence != nullptr) --first.fence->held;
        held.pop_front();
        goes_on = true;
    }
    if (held.empty()) return goes_on;
    drop_held();
    return true;
}

void quire_be_queue::drop_held() {
    for (const quire::gpu::Command &command : held) {
        if (command.fence == nullptr) continue;
        --command.fence->held;
        if (command.kind == quire::gpu::CommandKind::signal) {
            command.fence->raise(quire::gpu::kFenceFailed);
        }
    }
    held.clear();
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
    if (stream != nullptr && !is_bound) driver.stream_destroy(stream);
    if (scratch != 0) driver.memory_free(scratch);
    for (uint64_t address : outgrown) driver.memory_free(address);
    outgrown.clear();
    pieces.close(driver);
    scratch = scratch_bytes = 0;
    stream = nullptr;
    record.host = nullptr;
}
