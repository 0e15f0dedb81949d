// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "fence.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

std::atomic<uint64_t> live_objects{0};

namespace {

quire_status check_device(const quire_be_device_desc *desc, quire_error *error) {
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    if (quire_status status = refuse_chain(desc->next, error)) return status;
    return check_device_flags(*desc, error);
}

struct Devices {
    const Driver *driver = nullptr;  // NULL if there is none
    int count = 0;
    const char *why_none = "";  // if count is 0
};

quire_status count_devices(Devices *devices, quire_error *error) {
    quire_status status = find_driver(&devices->driver, &devices->why_none, error);
    if (status != QUIRE_OK || devices->driver == nullptr) return status;
    devices->why_none = "the driver reports no devices";
    Result result = devices->driver->device_count(&devices->count);
    if (result == 0) return QUIRE_OK;
    return fail_driver(*devices->driver, result, "to count devices", error);
}

quire_status choose(uint32_t index, const Driver **driver, quire_error *error) {
    Devices devices;
    if (quire_status status = count_devices(&devices, error)) return status;
    if (devices.count == 0) {
        return fail(error, QUIRE_E_ARG, "there is no %s device %u: %s", kBackendName, index,
                    devices.why_none);
    }
    if (index >= static_cast<uint32_t>(devices.count)) {
        return fail(error, QUIRE_E_ARG, "there is no %s device %u; %d found", kBackendName, index,
                    devices.count);
    }
    *driver = devices.driver;
    char lacks[96] = {};
    Result result = (*driver)->device_lacks(static_cast<int>(index), lacks, sizeof lacks);
    if (result != 0) return fail_driver(**driver, result, "to describe a device", error);
    if (lacks[0] == 0) return QUIRE_OK;
    return fail(error, QUIRE_E_UNSUPPORTED, "%s device %u cannot be used: %s", kBackendName, index,
                lacks);
}

// From this size on copies use the driver. A guess: no GPU has been measured.
constexpr uint64_t kDmaBytes = 256 << 10;

quire_status find_dma_bytes(uint64_t *dma_bytes, quire_error *error) {
    *dma_bytes = kDmaBytes;
    const char *text = environment("QUIRE_GPU_DMA_BYTES");
    if (text == nullptr) return QUIRE_OK;
    const char *end = text + std::strlen(text);
    auto [stopped, failed] = std::from_chars(text, end, *dma_bytes);
    if (failed == std::errc() && stopped == end) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "QUIRE_GPU_DMA_BYTES is \"%.40s\", which is not a number of bytes: use 0 "
                "to 18446744073709551615",
                text);
}

// REQUIRES: the context is current.
quire_status open_parts(quire_be_device *device, quire_error *error) {
    const Driver &driver = *device->context.driver;
    Result named = driver.device_name(device->context.index, device->name, sizeof device->name);
    if (named != 0) return fail_driver(driver, named, "to name a device", error);
    if (quire_status status = device->kernels.open(driver, error)) return status;
    device->pinned.open(&driver);
    device->words.open(&driver);
    device->memory.open(device);
    StreamChoice urgent;
    urgent.is_urgent = true;
    if (quire_status status = make_queue(device, urgent, &device->service, error)) return status;
    return find_dma_bytes(&device->dma_bytes, error);
}

// REQUIRES: the context is current, and nothing of the device runs. If the driver is already shut
// down it refuses all of this, and the errors are ignored.
void close_parts(quire_be_device *device) {
    for (quire_be_queue *queue : device->queues) queue->close();
    device->memory.close();
    device->pinned.close();
    device->words.close();
    device->kernels.close();
}

// REQUIRES, for this and the next: the mutex is held, and the context is current.
Work work_of(quire_be_device *device) {
    Work most = Work::none;
    for (quire_be_queue *queue : device->queues) most = std::max(most, queue->work());
    return most;
}

// Waits for everything that runs, and releases the lock between polls. Work that cannot be queried,
// such as what a stream was given before the engine captured it, is covered by freeing device
// memory, since the driver waits then: both vendors promise that, but not for pinned memory.
void end_work(quire_be_device *device, std::unique_lock<std::mutex> &lock) {
    Deadline never(UINT64_MAX);
    while (!device->is_lost && work_of(device) == Work::some) never.wait(device->changed, lock);
    device->words.close();
}

void drop_parts(quire_be_device *device) {
    std::vector<quire_be_queue *> queues;
    std::vector<quire_be_fence *> fences;
    queues.swap(device->queues);
    fences.swap(device->fences);
    for (quire_be_queue *queue : queues) queue->drop_reference();
    for (quire_be_fence *fence : fences) fence->drop_reference();
    if (device->service != nullptr) device->service->drop_reference();
}

}  // namespace

Deadline::Deadline(uint64_t timeout_ns) {
    using std::chrono::nanoseconds;
    auto now = std::chrono::steady_clock::now();
    auto left = std::chrono::steady_clock::time_point::max() - now;
    never_ = timeout_ns >= static_cast<uint64_t>(nanoseconds(left).count());
    if (!never_) end_ = now + nanoseconds(timeout_ns);
}

uint64_t Deadline::left_ns() const {
    if (never_) return UINT64_MAX;
    auto left = end_ - std::chrono::steady_clock::now();
    return static_cast<uint64_t>(std::max<int64_t>(0, std::chrono::nanoseconds(left).count()));
}

void Deadline::wait(std::condition_variable &changed, std::unique_lock<std::mutex> &lock) {
    constexpr uint64_t kMostNs = 500'000;
    changed.wait_for(lock, std::chrono::nanoseconds(std::min(left_ns(), moment_ns_)));
    moment_ns_ = std::min(moment_ns_ * 2, kMostNs);
}

quire_status probe(uint32_t *device_count, quire_error *error) {
    if (device_count == nullptr) return fail(error, QUIRE_E_ARG, "device_count is NULL");
    Devices devices;
    DriverThreads threads;
    if (quire_status status = count_devices(&devices, error)) return status;
    *device_count = static_cast<uint32_t>(devices.count);
    if (devices.count == 0) (void)fail(error, QUIRE_OK, "%s", devices.why_none);
    return QUIRE_OK;
}

quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error) {
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_device(desc, error)) return status;
    const Driver *driver = nullptr;
    DriverThreads threads;
    if (quire_status status = choose(desc->index, &driver, error)) return status;
    auto *device = new quire_be_device;
    device->context.driver = driver;
    device->context.index = static_cast<int>(desc->index);
    Result result = driver->retain(device->context.index, &device->context.handle);
    if (result != 0) {
        device->drop_reference();
        return fail_driver(*driver, result, "a context", error);
    }
    quire_status status = QUIRE_OK;
    {
        Entered entered(device->context);
        status = device->check_in(entered, error);
        if (status == QUIRE_OK) status = open_parts(device, error);
        if (status != QUIRE_OK && entered.is_in()) close_parts(device);
    }
    if (status != QUIRE_OK) {
        driver->release(device->context.index);
        drop_parts(device);
        device->drop_reference();
        return status;
    }
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = device;
    return QUIRE_OK;
}

void device_close(quire_be_device *device) {
    if (device == nullptr) return;
    std::unique_lock lock(device->mutex);
    device->is_closed = true;  // from now on no call starts work
    for (quire_be_queue *queue : device->queues) queue->drop_held();
    {
        Entered entered(device->context);
        if (entered.is_in()) end_work(device, lock);
        for (quire_be_fence *fence : device->fences) fence->settle_for_good();
        if (entered.is_in()) close_parts(device);
    }
    device->context.driver->release(device->context.index);
    device->changed.notify_all();
    lock.unlock();
    drop_parts(device);
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    device->drop_reference();
}

quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = check_output(props, sizeof *props, "props", error)) return status;
    size_t free_bytes = 0, total_bytes = 0;
    {
        std::lock_guard lock(device->mutex);
        Entered entered(device->context);
        if (quire_status status = device->check_in(entered, error)) return status;
        Result result = device->context.driver->memory_info(&free_bytes, &total_bytes);
        if (quire_status status = device->check(result, "to report free memory", error)) {
            return status;
        }
    }
    props->host_visible = 0;
    props->memory_total_bytes = total_bytes;
    props->memory_free_bytes = free_bytes;
    props->copy_alignment = 16;
    props->flags = 0;
    std::memset(props->name, 0, sizeof props->name);
    std::snprintf(props->name, sizeof props->name, "%s", device->name);
    return QUIRE_OK;
}

quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    Deadline deadline(timeout_ns);
    std::unique_lock lock(device->mutex);
    Entered entered(device->context);
    if (quire_status status = device->check_in(entered, error)) return status;
    device->pump(entered);
    Work work = work_of(device);
    while (work == Work::some && !device->is_lost && !deadline.has_passed()) {
        deadline.wait(device->changed, lock);
        device->pump(entered);
        work = device->is_closed ? Work::none : work_of(device);
    }
    if (device->is_lost) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost; close it", kBackendName);
    }
    if (work != Work::unknown) return work == Work::none ? QUIRE_OK : QUIRE_S_TIMEOUT;
    return fail(error, QUIRE_E_BUSY,
                "cannot tell whether an engine's own stream is idle: end the capture that prevents "
                "the check, if the stream still exists");
}

quire_status shutdown(uint64_t *live_object_count, quire_error *error) {
    if (live_object_count == nullptr) return fail(error, QUIRE_E_ARG, "live_object_count is NULL");
    *live_object_count = live_objects.load();
    return QUIRE_OK;
}

}  // namespace quire::gpu

void quire_be_device::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    delete this;
}

bool quire_be_device::is_good(quire::gpu::Result result) {
    if (result != 0 && context.driver->is_fatal(result)) {
        lose();
    }
    return result == 0;
}

quire_status quire_be_device::check(quire::gpu::Result result, const char *what,
                                    quire_error *error) {
    if (is_good(result)) return QUIRE_OK;
    return quire::gpu::fail_driver(*context.driver, result, what, error);
}

quire_status quire_be_device::check_in(const quire::gpu::Entered &entered, quire_error *error) {
    if (is_lost && !entered.is_in()) return check_open(error);
    return check(entered.result(), "to make its context current", error);
}

quire_status quire_be_device::check_open(quire_error *error) const {
    if (!is_closed && !is_lost) return QUIRE_OK;
    return quire::fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost or closed",
                       quire::kBackendName);
}

void quire_be_device::lose() {
    is_lost = true;
    changed.notify_all();
}

void quire_be_device::look(const quire::gpu::Entered &entered) {
    if (is_closed || is_lost) return;
    quire::gpu::Result result = entered.result();
    if (result == 0) result = context.driver->stream_query(service->stream);
    // Any other result counts as lost: a query reports errors of earlier work.
    if (result != 0 && !context.driver->is_not_ready(result)) lose();
}

void quire_be_device::pump(const quire::gpu::Entered &entered) {
    if (is_closed) return;
    if (!entered.is_in()) lose();
    bool goes_on = true;
    while (goes_on) {
        goes_on = false;
        for (quire_be_queue *queue : queues) goes_on |= queue->advance();
    }
}

void quire_be_device::sweep() {
    for (quire_be_queue *queue : queues) {
        queue->poll();
        queue->settle_failed();
    }
    for (size_t i = 0; i < fences.size();) {
        quire_be_fence *fence = fences[i];
        if (!fence->is_released || !fence->is_out_of_reach()) {
            ++i;
            continue;
        }
        pinned.give_back(fence->cell);
        fences[i] = fences.back();
        fences.pop_back();
        fence->drop_reference();
    }
    memory.sweep();
}

bool quire_be_device::has_held_queue() const {
    return std::any_of(queues.begin(), queues.end(),
                       [](const quire_be_queue *queue) { return !queue->held.empty(); });
}
