// SPDX-License-Identifier: Apache-2.0
//
// device_functions: finding devices, opening and closing them, and waiting until they are idle.
//
// Threads: any.

#include "functions.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "fence.hpp"
#include "queue.hpp"
#include "schedule.hpp"
#include "shared/checks.hpp"

namespace quire::gpu {

namespace {

struct Devices {
    const Driver *driver = nullptr;  // NULL if there is none
    int count = 0;
    const char *why_none = "";  // if count is 0
};

quire_status find_devices(Devices *devices, quire_error *error) {
    quire_status status = find_driver(&devices->driver, &devices->why_none, error);
    if (status != QUIRE_OK || devices->driver == nullptr) return status;
    devices->why_none = "the driver reports no devices";
    Result result = devices->driver->device_count(&devices->count);
    if (result == 0) return QUIRE_OK;
    return fail_driver(*devices->driver, result, "to count devices", error);
}

quire_status choose(uint32_t index, const Driver **driver, quire_error *error) {
    Devices devices;
    if (quire_status status = find_devices(&devices, error)) return status;
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

// Whether attention may use the kernels of decode.cu.
quire_status find_decodes(const Driver &driver, bool *decodes, quire_error *error) {
    *decodes = driver.has_decode;
    const char *text = environment("QUIRE_GPU_ATTENTION");
    if (text == nullptr) return QUIRE_OK;
    *decodes = false;
    if (std::strcmp(text, "plain") == 0) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "QUIRE_GPU_ATTENTION is \"%.40s\"; its only value is plain, for the kernels that "
                "serve every shape",
                text);
}

// REQUIRES: the context is current.
quire_status open_parts(Device *device, quire_error *error) {
    const Driver &driver = *device->context.driver;
    Result named = driver.device_name(device->context.index, device->name, sizeof device->name);
    if (named != 0) return fail_driver(driver, named, "to name a device", error);
    if (quire_status status = device->kernels.open(driver, error)) return status;
    device->pinned.open(&driver);
    device->words.open(&driver);
    device->allocations.open(&driver);
    StreamChoice urgent;
    urgent.is_urgent = true;
    if (quire_status status = make_queue(device, urgent, &device->service, error)) return status;
    if (quire_status status = find_decodes(driver, &device->decodes, error)) return status;
    return find_dma_bytes(&device->dma_bytes, error);
}

// REQUIRES: the context is current, and nothing of the device runs. If the driver is already shut
// down it refuses all of this, and the errors are ignored.
void close_parts(Device *device) {
    for (Queue *queue : device->queues) queue->close();
    device->allocations.close();
    device->pinned.close();
    device->words.close();
    device->kernels.close();
}

// Waits for everything that runs, and releases the lock between polls. Work that cannot be queried,
// such as what a stream was given before the engine captured it, is covered by freeing device
// memory, since the driver waits then: both vendors promise that, but not for pinned memory.
// REQUIRES: the mutex is held, and the context is current.
void end_work(Device *device, std::unique_lock<std::mutex> &lock) {
    Deadline never(UINT64_MAX);
    Pause pause;
    while (!device->is_lost && work_of(*device) == Work::some) {
        device->wait(never, lock, pause.next_ns());
    }
    device->words.close();
}

void drop_parts(Device *device) {
    std::vector<Queue *> queues;
    std::vector<Fence *> fences;
    queues.swap(device->queues);
    fences.swap(device->fences);
    for (Queue *queue : queues) queue->drop_reference();
    for (Fence *fence : fences) fence->drop_reference();
    if (device->service != nullptr) device->service->drop_reference();
}

}  // namespace

quire_status count_devices(uint32_t *device_count, quire_error *error) {
    Devices devices;
    DriverThreads threads;
    if (quire_status status = find_devices(&devices, error)) return status;
    *device_count = static_cast<uint32_t>(devices.count);
    if (devices.count == 0) (void)fail(error, QUIRE_OK, "%s", devices.why_none);
    return QUIRE_OK;
}

quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error) {
    if (quire_status status = refuse_chain(desc.next, error)) return status;
    if (quire_status status = check_device_flags(desc, error)) return status;
    const Driver *driver = nullptr;
    DriverThreads threads;
    if (quire_status status = choose(desc.index, &driver, error)) return status;
    auto *device = new quire_be_device;
    device->context.driver = driver;
    device->context.index = static_cast<int>(desc.index);
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
    *out = device;
    return QUIRE_OK;
}

void close_device(Device &device) {
    std::unique_lock lock(device.mutex);
    {
        std::lock_guard fences(device.fence_mutex);
        device.is_closed = true;  // from now on no call starts work
    }
    for (Queue *queue : device.queues) queue->drop_held();
    {
        Entered entered(device.context);
        if (entered.is_in()) end_work(&device, lock);
        for (Fence *fence : device.fences) fence->settle_for_good();
        if (entered.is_in()) close_parts(&device);
    }
    device.context.driver->release(device.context.index);
    device.changed.notify_all();
    lock.unlock();
    drop_parts(&device);
}

quire_status describe_device(Device &device, quire_be_device_props *props, quire_error *error) {
    size_t free_bytes = 0, total_bytes = 0;
    {
        std::lock_guard lock(device.mutex);
        Entered entered(device.context);
        if (quire_status status = device.check_in(entered, error)) return status;
        Result result = device.context.driver->memory_info(&free_bytes, &total_bytes);
        if (quire_status status = device.check(result, "to report free memory", error)) {
            return status;
        }
    }
    props->host_visible = 0;
    props->memory_total_bytes = total_bytes;
    props->memory_free_bytes = free_bytes;
    props->copy_alignment = 16;
    props->flags = 0;
    std::memset(props->name, 0, sizeof props->name);
    std::snprintf(props->name, sizeof props->name, "%s", device.name);
    return QUIRE_OK;
}

quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *error) {
    Pause pause;
    std::unique_lock lock(device.mutex);
    Entered entered(device.context);
    if (quire_status status = device.check_in(entered, error)) return status;
    pump(device, entered);
    Work work = work_of(device);
    while (work == Work::some && !device.is_lost && !deadline.has_passed()) {
        device.wait(deadline, lock, pause.next_ns());
        pump(device, entered);
        work = device.is_closed ? Work::none : work_of(device);
    }
    if (device.is_lost) {
        return fail(error, QUIRE_E_DEVICE_LOST, "the %s device is lost; close it", kBackendName);
    }
    if (work != Work::unknown) return work == Work::none ? QUIRE_OK : QUIRE_S_TIMEOUT;
    return fail(error, QUIRE_E_BUSY,
                "cannot tell whether an engine's own stream is idle: end the capture that prevents "
                "the check, if the stream still exists");
}

}  // namespace quire::gpu
