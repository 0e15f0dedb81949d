// SPDX-License-Identifier: Apache-2.0
//
// queue_functions: making and releasing queues; fences and an engine's events on them.
//
// Threads: any.

#include "queue.hpp"

#include <algorithm>
#include <cinttypes>

#include "device.hpp"
#include "engine.hpp"
#include "enqueue.hpp"
#include "fence.hpp"
#include "functions.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

// The engine's stream, if a queue can be made on it now.
quire_status find_bound(Device &device, const quire_native &native, Stream *out,
                        quire_error *error) {
    if (quire_status status = find_native_stream(&device, native, out, error)) return status;
    bool is_captured = false;
    if (quire_status status = check_capture(&device, *out, &is_captured, error)) return status;
    if (!is_captured) return QUIRE_OK;
    return fail(error, QUIRE_E_BUSY,
                "the engine is capturing the stream, so clearing the queue's memory would go to "
                "the graph: create the queue before or after the capture");
}

quire_status find_native_event(const Queue *queue, const quire_native *native, Event *out,
                               quire_error *error) {
    if (queue == nullptr || native == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or native is NULL");
    }
    const Driver &driver = *queue->device->context.driver;
    if (native->kind != driver.event_kind) {
        return fail(
            error, QUIRE_E_UNSUPPORTED,
            "native kind %u is not an event that this backend supports; use QUIRE_NATIVE_%s_EVENT",
            native->kind, driver.vendor);
    }
    if (quire_status status = check_rest(*native, error)) return status;
    if (native->value == 0) return fail(error, QUIRE_E_ARG, "the event is NULL");
    *out = reinterpret_cast<Event>(native->value);
    return QUIRE_OK;
}

// A call on an event goes to the stream at once or fails: an event has no values, so a later record
// would mean something else.
quire_status give_event(Queue *queue, const quire_native *native,
                        Result (*Driver::*call)(Stream, Event), quire_error *error) {
    Event event = nullptr;
    if (quire_status status = find_native_event(queue, native, &event, error)) return status;
    Enqueue enqueue(*queue);
    if (quire_status status = enqueue.begin(error)) return status;
    if (!queue->held.empty()) {
        return fail(error, QUIRE_E_BUSY,
                    "the queue waits for a fence that has not been signalled: signal it first");
    }
    Device *device = queue->device;
    Result result = (device->context.driver->*call)(queue->stream, event);
    return device->check(result, "an event", error);
}

}  // namespace

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error) {
    std::lock_guard lock(device.mutex);
    if (quire_status status = device.check_open(error)) return status;
    Entered entered(device.context);
    if (quire_status status = device.check_in(entered, error)) return status;
    StreamChoice choice;
    choice.is_bound = native != nullptr && native->kind != QUIRE_NATIVE_NONE;
    if (choice.is_bound) {
        quire_status status = find_bound(device, *native, &choice.bound, error);
        if (status != QUIRE_OK) return status;
        choice.owner = owner_of(choice.bound);
    }
    Queue *queue = nullptr;
    if (quire_status status = make_queue(&device, choice, &queue, error)) return status;
    *out = static_cast<quire_be_queue *>(queue);
    return QUIRE_OK;
}

void release_queue(Queue &queue) {
    {
        std::lock_guard lock(queue.device->mutex);
        queue.is_released = true;
    }
    queue.drop_reference();
}

quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) {
        bool has_ended = queue.has_failed() || queue.device->is_lost;
        if (queue.device->is_closed || !has_ended) return status;
        // Not an error: whoever waits for the enqueued work learns how it ended.
        fence.promise(value);
        enqueue.fail_fence(&fence);
        enqueue.pump();
        return QUIRE_OK;
    }
    quire_status status = enqueue.use_fence(CommandKind::signal, &fence, value, error);
    if (status != QUIRE_OK) return status;
    fence.promise(value);
    enqueue.pump();
    return QUIRE_OK;
}

quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    fence.settle();
    if (queue.is_bound && !fence.is_coming(value)) {
        return fail(error, QUIRE_E_BUSY,
                    "the fence has not been signalled with %" PRIu64
                    ", and later work on this stream could not be kept after the wait: signal the "
                    "fence first",
                    value);
    }
    return enqueue.use_fence(CommandKind::wait, &fence, value, error);
}

quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error) {
    return give_event(queue, native, &Driver::event_record, error);
}

quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error) {
    return give_event(queue, native, &Driver::stream_wait_event, error);
}

}  // namespace quire::gpu
