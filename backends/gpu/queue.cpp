// SPDX-License-Identifier: Apache-2.0

#include "queue.hpp"

#include <algorithm>
#include <cstdio>

#include "device.hpp"
#include "engine.hpp"
#include "fault.hpp"
#include "fence.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

quire_status open_parts(Queue *queue, const StreamChoice &choice, quire_error *error) {
    Device *device = queue->device;
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
    if (result == 0) result = queue->events.open(driver);
    if (result == 0) result = device->pinned.take(&queue->record);
    if (result == 0) result = device->words.take(&queue->word);
    if (result == 0) result = driver.fill(queue->stream, queue->word.address, 0, kCellBytes);
    return device->check(result, "a queue", error);
}

}  // namespace

quire_status make_queue(Device *device, const StreamChoice &choice, Queue **out,
                        quire_error *error) {
    for (Queue *queue : device->queues) {
        if (!queue->is_spare_for(choice)) continue;
        queue->is_released = false;
        queue->listed = {};  // its new owner counts rows anew
        queue->references.add();
        *out = queue;
        return QUIRE_OK;
    }
    device->queues.reserve(device->queues.size() + 1);
    auto *queue = new quire_be_queue;
    queue->device = device;
    device->references.add();
    if (quire_status status = open_parts(queue, choice, error)) {
        Cell record = queue->record, word = queue->word;
        queue->close();
        device->pinned.give_back(record);
        device->words.give_back(word);
        (void)queue->references.drop();  // the list's
        queue->drop_reference();
        return status;
    }
    device->queues.push_back(queue);
    *out = queue;
    return QUIRE_OK;
}

Result give_copies(Device *device, Stream stream, const Copies &copies, bool *is_begun) {
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

void Queue::drop_reference() {
    if (!references.drop()) return;
    Device *owner = device;
    delete static_cast<quire_be_queue *>(this);
    owner->drop_reference();
}

quire_status Queue::check_usable(quire_error *error) {
    if (device->is_closed) {
        return quire::fail(error, QUIRE_E_DEVICE_LOST, "the device of this queue is closed");
    }
    if (device->is_lost) {
        return quire::fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost; close it",
                           kBackendName);
    }
    if (!has_failed()) return QUIRE_OK;
    return quire::fail(error, QUIRE_E_DEVICE_LOST, "the queue stopped: %s; release it", why);
}

void Queue::poll() {
    if (record.host == nullptr) return;
    auto *said = reinterpret_cast<QueueRecord *>(record.host);
    reached = std::max(reached, __atomic_load_n(&said->reached, __ATOMIC_ACQUIRE));
    if (has_failed() || __atomic_load_n(&said->code, __ATOMIC_ACQUIRE) == 0) return;
    describe_fault(*said, why, sizeof why);
}

Work Queue::work() {
    if (!held.empty()) return Work::some;
    if (owner_of(stream) != owner) return Work::unknown;
    const Driver &driver = *device->context.driver;
    Capture capture = Capture::none;
    Result result = is_bound ? driver.stream_capture(stream, &capture) : 0;
    if (result == 0 && capture != Capture::none) return Work::unknown;
    if (result == 0) result = driver.stream_query(stream);
    if (result == 0) return Work::none;
    if (driver.is_not_ready(result)) return Work::some;
    // The engine may have destroyed its stream.
    if (is_bound && !driver.is_fatal(result)) return Work::unknown;
    device->lose();
    return Work::none;
}

void Queue::settle_failed() {
    if (has_failed() && reached < place && work() == Work::none) reached = place;
}

bool Queue::is_spare_for(const StreamChoice &choice) {
    if (!is_released || !references.is_single() || is_bound != choice.is_bound) return false;
    if (is_bound && (stream != choice.bound || owner != choice.owner)) return false;
    if (!is_bound && work() != Work::none) return false;
    poll();  // after work(): the last command may have found a fault
    return !has_failed() && reached == place;
}

void Queue::fail(const char *reason) {
    if (!has_failed()) std::snprintf(why, sizeof why, "%s", reason);
    // Makes later kernels do nothing, if the driver still accepts this.
    device->is_good(device->context.driver->fill(stream, word.address, 0xFF, sizeof(uint32_t)));
}

Result Queue::give(const Command &command) {
    const Driver &driver = *device->context.driver;
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
    return signal(command);
}

Result Queue::launch(KernelName name, uint64_t group_count, Head *arguments) {
    arguments->fault = word.address;
    arguments->record = record.address;
    arguments->group_count = group_count;
    const Kernel &kernel = device->kernels.get(name);
    auto groups_x = static_cast<uint32_t>(std::min(group_count, kMostBlocks));
    auto groups_y = static_cast<uint32_t>((group_count - 1) / kMostBlocks + 1);
    return device->context.driver->launch(kernel.function, groups_x, groups_y, kernel.threads,
                                          kernel.shared_bytes, stream, arguments);
}

Result Queue::launch_place(KernelName name, const Command &command) {
    FenceCall call{};
    call.fence = command.fence->cell.address;
    call.value = command.value;
    call.place = place + 1;
    Result result = launch(name, 1, &call.head);
    if (result != 0) return result;
    place = call.place;
    command.fence->note_use(this, place);
    return 0;
}

// Without a mark, queues that wait for the value are held until the host sees it.
Result Queue::signal(const Command &command) {
    Result result = launch_place(KernelName::fence_signal, command);
    if (result != 0) return result;
    Event event = nullptr;
    if (!device->is_good(events.record(*device->context.driver, stream, &event))) return 0;
    command.fence->marks.add(command.value, event);
    command.fence->enqueued = std::max(command.fence->enqueued, command.value);
    return 0;
}

Result Queue::wait(const Command &command) {
    Fence *fence = command.fence;
    fence->settle();
    if (fence->value == kFenceFailed) fail(kFailedFence);
    if (fence->value >= command.value) return 0;
    Result result =
        device->context.driver->stream_wait_event(stream, fence->marks.find(command.value));
    if (result != 0) return result;
    result = launch_place(KernelName::fence_passed, command);
    if (result == 0) return 0;
    // The stream still waits for the cell; settle_failed() notices when that is over.
    fence->note_use(this, ++place);
    fail("the driver refused part of a wait");
    return result;
}

Result Queue::copy(const Copies &copies) {
    bool is_begun = false;
    Result result = give_copies(device, stream, copies, &is_begun);
    if (result != 0 && is_begun) fail("the driver refused part of a call");
    return result;
}

bool Queue::advance() {
    if (held.empty()) return false;
    poll();
    bool goes_on = false;
    while (!held.empty() && !has_failed() && !device->is_lost) {
        Command &first = held.front();
        if (first.kind == CommandKind::wait) first.fence->settle();
        if (first.kind == CommandKind::wait && !first.fence->is_coming(first.value)) {
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

void Queue::drop_held() {
    for (const Command &command : held) {
        if (command.fence == nullptr) continue;
        --command.fence->held;
    }
    std::deque<Command> dropped;
    dropped.swap(held);  // work() counts what is held
    for (const Command &command : dropped) {
        if (command.kind == CommandKind::signal) fail_fence(command.fence);
    }
}

void Queue::fail_fence(Fence *fence) {
    bool is_over = device->is_closed || device->is_lost || work() != Work::some;
    if (is_over) {
        fence->raise(kFenceFailed);
    } else if (fence->failing == nullptr) {
        fence->failing = this;
        ++device->failing_fences;
    }
}

Result Queue::reserve_scratch(uint64_t size_bytes) {
    if (size_bytes <= scratch_bytes) return 0;
    outgrown.reserve(outgrown.size() + 1);
    uint64_t made = 0;
    uint64_t wanted = std::max(size_bytes, device->scratch_bytes);
    Result result = device->context.driver->memory_alloc(&made, wanted);
    if (result != 0) return result;
    if (scratch != 0) outgrown.push_back(scratch);
    scratch = made;
    scratch_bytes = wanted;
    return 0;
}

void Queue::close() {
    poll();
    const Driver &driver = *device->context.driver;
    if (stream != nullptr && !is_bound) driver.stream_destroy(stream);
    if (scratch != 0) driver.memory_free(scratch);
    for (uint64_t address : outgrown) driver.memory_free(address);
    outgrown.clear();
    pieces.close(driver);
    events.close(driver);
    scratch = scratch_bytes = 0;
    stream = nullptr;
    record.host = nullptr;
}

}  // namespace quire::gpu
