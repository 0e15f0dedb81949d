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

std::atomic<uint64_t> live_objects{0};

namespace {

// A greater count is surely a caller's mistake, and each thread costs a stack and its scratch.
constexpr uint32_t kMostThreads = 1024;

quire_status check_device(const quire_be_device_desc *desc, quire_error *error) {
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    if (quire_status status = refuse_chain(desc->next, error)) return status;
    if (desc->index != 0) {
        return fail(error, QUIRE_E_ARG, "there is no device %u; the only one is 0", desc->index);
    }
    if (quire_status status = check_device_flags(*desc, error)) return status;
    if (const char *word = unknown_target()) {
        return fail(
            error, QUIRE_E_ARG,
            "QUIRE_CPU_TARGET is \"%.40s\": set it to plain, avx2, avx512 or amx, or unset it",
            word);
    }
    if (desc->threads > kMostThreads) {
        return fail(error, QUIRE_E_LIMIT,
                    "%u threads are too many; use at most %u, or 0 for one per core", desc->threads,
                    kMostThreads);
    }
    return QUIRE_OK;
}

}  // namespace

Deadline::Deadline(uint64_t timeout_ns) {
    using std::chrono::nanoseconds;
    auto now = std::chrono::steady_clock::now();
    auto left = std::chrono::steady_clock::time_point::max() - now;
    never_ = timeout_ns >= static_cast<uint64_t>(nanoseconds(left).count());
    if (!never_) end_ = now + nanoseconds(timeout_ns);
}

quire_status probe(uint32_t *device_count, quire_error *error) {
    if (device_count == nullptr) return fail(error, QUIRE_E_ARG, "device_count is NULL");
    *device_count = 1;
    return QUIRE_OK;
}

quire_status device_open(const quire_be_device_desc *desc, quire_be_device **out,
                         quire_error *error) {
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_device(desc, error)) return status;
    uint32_t thread_count = desc->threads != 0 ? desc->threads : core_count();
    ThreadOptions options;
    options.thread_count = thread_count;
    options.is_pinned = (desc->flags & QUIRE_BE_DEVICE_PIN_THREADS) != 0;
    options.run_tasks = desc->run_tasks;
    options.run_tasks_user = desc->run_tasks_user;
    auto *device = new (std::nothrow) quire_be_device;
    if (device == nullptr ||
        !device->scratch_pages.map(uint64_t{thread_count} * sizeof(AttendScratch)) ||
        !device->work_pages.map(sizeof(WorkList))) {
        delete device;
        return fail(error, QUIRE_E_HOST_MEMORY, "no memory for a device of %u threads",
                    thread_count);
    }
    device->flags = desc->flags;
    if (fast_16bit_name() == nullptr) device->flags &= ~uint32_t{QUIRE_BE_DEVICE_FAST_16BIT};
    device->scratch = device->scratch_pages.as<AttendScratch>();
    device->works = device->work_pages.as<WorkList>();
    if (int error_number = device->pool.start(options)) {
        device->drop_reference();
        return fail_os(error, QUIRE_E_OS, error_number, "cannot start %u threads%s (%s)",
                       thread_count, options.is_pinned ? " on separate cores" : "",
                       std::strerror(error_number));
    }
    live_objects.fetch_add(1, std::memory_order_relaxed);
    *out = device;
    return QUIRE_OK;
}

void device_close(quire_be_device *device) {
    if (device == nullptr) return;
    {
        std::unique_lock lock(device->mutex);
        device->closing.store(true);
        for (auto *queue = device->running_queues; queue != nullptr; queue = queue->next) {
            queue->wake();
        }
        device->changed.notify_all();
        device->changed.wait(lock, [device] { return device->running_queues == nullptr; });
    }
    device->pool.stop();
    live_objects.fetch_sub(1, std::memory_order_relaxed);
    device->drop_reference();
}

quire_status device_props(quire_be_device *device, quire_be_device_props *props,
                          quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = check_output(props, sizeof *props, "props", error)) return status;
    MachineMemory memory = machine_memory();
    props->host_visible = 1;
    props->memory_total_bytes = memory.total_bytes;
    props->memory_free_bytes = memory.free_bytes;
    props->copy_alignment = 64;  // a cache line
    props->flags = device->flags;
    std::memset(props->name, 0, sizeof props->name);
    char fast[32] = "";
    if (device->is_fast_16bit()) {
        std::snprintf(fast, sizeof fast, ", 16 bits by %s", fast_16bit_name());
    }
    std::snprintf(props->name, sizeof props->name, "host processor, %s%s, %u threads",
                  target_name(), fast, device->pool.thread_count());
    return QUIRE_OK;
}

quire_status quiesce(quire_be_device *device, uint64_t timeout_ns, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    Deadline deadline(timeout_ns);
    std::unique_lock lock(device->mutex);
    bool idle =
        deadline.wait(device->changed, lock, [device] { return device->unfinished.load() == 0; });
    return idle ? QUIRE_OK : QUIRE_S_TIMEOUT;
}

quire_status shutdown(uint64_t *live_object_count, quire_error *error) {
    if (live_object_count == nullptr) return fail(error, QUIRE_E_ARG, "live_object_count is NULL");
    *live_object_count = live_objects.load();
    return QUIRE_OK;
}

}  // namespace quire::cpu

void quire_be_device::drop_reference() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    delete this;
}

void quire_be_device::finish_commands(uint64_t count) {
    if (unfinished.fetch_sub(count) != count) return;
    std::lock_guard lock(mutex);  // or a waiter could miss this between its check and its sleep
    changed.notify_all();
}
