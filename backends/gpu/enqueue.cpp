// SPDX-License-Identifier: Apache-2.0

#include "enqueue.hpp"

#include <new>
#include <utility>

#include "device.hpp"
#include "engine.hpp"
#include "fence.hpp"
#include "kernels.hpp"
#include "queue.hpp"
#include "schedule.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

Enqueue::Enqueue(Queue &queue) : queue_(&queue), lock_(queue.device->mutex) {}

quire_status Enqueue::begin(quire_error *error) {
    if (quire_status status = begin_replayable(error)) return status;
    if (!is_captured_) return QUIRE_OK;
    return fail(error, QUIRE_E_BUSY,
                "the engine is capturing the queue's stream, and a graph may replay only KV "
                "writes, attention and merges: call this before or after the capture");
}

quire_status Enqueue::begin_replayable(quire_error *error) {
    queue_->poll();
    if (quire_status status = queue_->check_usable(error)) return status;
    if (owner_of(queue_->stream) != queue_->owner) {
        return fail(error, QUIRE_E_ARG,
                    "the queue uses the per-thread stream of the thread that created it: only that "
                    "thread may call it");
    }
    Device *device = queue_->device;
    entered_.emplace(device->context);
    if (quire_status status = device->check_in(*entered_, error)) return status;
    if (!queue_->is_bound) return QUIRE_OK;
    return check_capture(device, queue_->stream, &is_captured_, error);
}

quire_status Enqueue::launch(KernelName name, uint64_t group_count, Head *arguments,
                             quire_error *error) {
    if (quire_status status = check_blocks(group_count, error)) return status;
    Command command;
    command.kind = CommandKind::launch;
    command.kernel = name;
    command.group_count = group_count;
    command.arguments = arguments;
    return add(std::move(command), error);
}

// A held command has no place yet, so there is no way to tell when its pieces have been read.
BytePiece *Enqueue::take_pieces(uint64_t count, uint64_t *address) {
    if (!queue_->held.empty()) return nullptr;
    const Driver &driver = *queue_->device->context.driver;
    return queue_->pieces.take(driver, count, queue_->reached, queue_->place + 1, address);
}

quire_status Enqueue::fill(uint64_t address, unsigned char byte, uint64_t size_bytes,
                           quire_error *error) {
    Command command;
    command.kind = CommandKind::fill;
    command.byte = byte;
    command.dst = address;
    command.size_bytes = size_bytes;
    return add(std::move(command), error);
}

quire_status Enqueue::copy(const Copies &copies, quire_error *error) {
    Command command;
    command.kind = CommandKind::copies;
    command.copies = copies;
    return add(std::move(command), error);
}

quire_status Enqueue::use_fence(CommandKind kind, Fence *fence, uint64_t value,
                                quire_error *error) {
    Command command;
    command.kind = kind;
    command.fence = fence;
    command.value = value;
    fence->reserve_use(queue_);
    return add(std::move(command), error);
}

void Enqueue::fail_fence(Fence *fence) {
    if (!entered_.has_value()) entered_.emplace(queue_->device->context);
    if (!entered_->is_in()) queue_->device->lose();
    queue_->fail_fence(fence);
}

void Enqueue::pump() {
    Device &device = *queue_->device;
    if (!needs_pump(device)) return;
    if (!entered_.has_value()) entered_.emplace(device.context);
    gpu::pump(device, *entered_);
}

quire_status Enqueue::add(Command &&command, quire_error *error) {
    bool is_to_come = command.kind == CommandKind::wait && !command.fence->is_coming(command.value);
    if (is_to_come || !queue_->held.empty()) {
        hold(std::move(command));
        return QUIRE_OK;
    }
    Device *device = queue_->device;
    Result result = queue_->give(command);
    if (device->is_good(result)) {
        has_enqueued_ = true;
        return QUIRE_OK;
    }
    const Driver &driver = *device->context.driver;
    quire_status status = fail_driver(driver, result, "to enqueue", error);
    // A graph that got part of the call is the engine's to discard: the error tells it.
    if ((!has_enqueued_ || is_captured_) && !queue_->has_failed()) return status;
    queue_->fail("the driver refused part of a call");
    return fail(error, QUIRE_E_DEVICE_LOST, "the %s driver refused part of a call: %s (%d)",
                driver.vendor, driver.describe(result), result);
}

// If host memory runs out, no command of this call stays held.
void Enqueue::hold(Command &&command) {
    try {
        command.keep();
        queue_->held.push_back(std::move(command));
    } catch (const std::bad_alloc &) {
        queue_->held.resize(queue_->held.size() - held_count_);
        throw;
    }
    ++held_count_;
    Fence *fence = queue_->held.back().fence;
    if (fence != nullptr) ++fence->held;
}

}  // namespace quire::gpu
