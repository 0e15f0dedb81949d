// SPDX-License-Identifier: Apache-2.0

#include "device.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>

#include "kernels/targets.hpp"
#include "memory.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"

namespace quire::cpu {

namespace {

// A greater count is surely a caller's mistake, and each thread costs a stack and its scratch.
constexpr uint32_t kMostThreads = 1024;

quire_status check_device(const quire_be_device_desc &desc, quire_error *error) {
    if (quire_status status = refuse_chain(desc.next, error)) return status;
    if (desc.index != 0) {
        return fail(error, QUIRE_E_ARG, "there is no device %u; the only one is 0", desc.index);
    }
    if (quire_status status = check_device_flags(desc, error)) return status;
    if (const char *word = unknown_target()) {
        return fail(
            error, QUIRE_E_ARG,
            "QUIRE_CPU_TARGET is \"%.40s\": set it to plain, avx2, avx512 or amx, or unset it",
            word);
    }
    if (desc.threads > kMostThreads) {
        return fail(error, QUIRE_E_LIMIT,
                    "%u threads are too many; use at most %u, or 0 for one per core", desc.threads,
                    kMostThreads);
    }
    return QUIRE_OK;
}

}  // namespace

quire_status count_devices(uint32_t *device_count, quire_error *) {
    *device_count = 1;
    return QUIRE_OK;
}

quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error) {
    if (quire_status status = check_device(desc, error)) return status;
    uint32_t thread_count = desc.threads != 0 ? desc.threads : core_count();
    ThreadOptions options;
    options.thread_count = thread_count;
    options.is_pinned = (desc.flags & QUIRE_BE_DEVICE_PIN_THREADS) != 0;
    options.run_tasks = desc.run_tasks;
    options.run_tasks_user = desc.run_tasks_user;
    auto *device = new (std::nothrow) quire_be_device;
    if (device == nullptr ||
        !device->scratch_pages.map(uint64_t{thread_count} * sizeof(AttendScratch)) ||
        !device->work_pages.map(sizeof(WorkList))) {
        delete device;
        return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a device of %u threads",
                    thread_count);
    }
    device->flags = desc.flags;
    if (fast_16bit_name() == nullptr) device->flags &= ~uint32_t{QUIRE_BE_DEVICE_FAST_16BIT};
    device->scratch = device->scratch_pages.as<AttendScratch>();
    device->works = device->work_pages.as<WorkList>();
    if (int error_number = device->pool.start(options)) {
        device->drop_reference();
        return fail_os(error, QUIRE_E_OS, error_number, "cannot start %u threads%s (%s)",
                       thread_count, options.is_pinned ? " on separate cores" : "",
                       std::strerror(error_number));
    }
    *out = device;
    return QUIRE_OK;
}

void close_device(Device &device) {
    {
        std::unique_lock lock(device.mutex);
        device.closing.store(true);
        for (auto *queue = device.running_queues; queue != nullptr; queue = queue->next) {
            queue->wake();
        }
        device.changed.notify_all();
        device.changed.wait(lock, [&] { return device.running_queues == nullptr; });
    }
    device.pool.stop();
}

quire_status describe_device(const Device &device, quire_be_device_props *props, quire_error *) {
    MachineMemory memory = machine_memory();
    props->host_visible = 1;
    props->memory_total_bytes = memory.total_bytes;
    props->memory_free_bytes = memory.free_bytes;
    props->copy_alignment = 64;  // a cache line
    props->flags = device.flags;
    std::memset(props->name, 0, sizeof props->name);
    char fast[32] = "";
    if (device.is_fast_16bit()) {
        std::snprintf(fast, sizeof fast, ", 16 bits by %s", fast_16bit_name());
    }
    std::snprintf(props->name, sizeof props->name, "host processor, %s%s, %u threads",
                  target_name(), fast, device.pool.thread_count());
    return QUIRE_OK;
}

quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *) {
    std::unique_lock lock(device.mutex);
    bool is_idle =
        deadline.wait_until(device.changed, lock, [&] { return device.unfinished.load() == 0; });
    return is_idle ? QUIRE_OK : QUIRE_S_TIMEOUT;
}

void Device::drop_reference() {
    if (references.drop()) delete static_cast<quire_be_device *>(this);
}

void Device::finish_commands(uint64_t count) {
    if (unfinished.fetch_sub(count) != count) return;
    std::lock_guard lock(mutex);  // or a waiter could miss this between its check and its sleep
    changed.notify_all();
}

}  // namespace quire::cpu
