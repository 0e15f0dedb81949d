// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of device.h: queues, fences and memory.

#include "abi/objects.hpp"

using namespace quire;
using namespace quire::abi;

namespace {

std::atomic<uint64_t> g_next_queue{1};

Status null_argument() { return fail(QUIRE_E_ARG, "an argument is NULL"); }

Status from_backend(quire_status status) { return Status{status, nullptr, 0, 0}; }

// Is [offset, offset + size) inside the memory?
bool inside(const quire_memory *memory, uint64_t offset, uint64_t size_bytes) {
    return offset <= memory->size_bytes && size_bytes <= memory->size_bytes - offset;
}

uint32_t copy_kind(const quire_memory *dst, const quire_memory *src) {
    bool to_host = dst->kind == QUIRE_MEMORY_HOST, from_host = src->kind == QUIRE_MEMORY_HOST;
    if (to_host) return from_host ? QUIRE_BE_COPY_H2H : QUIRE_BE_COPY_D2H;
    return from_host ? QUIRE_BE_COPY_H2D : QUIRE_BE_COPY_D2D;
}

}  // namespace

extern "C" {

quire_status quire_queue_create(quire_device *device, const quire_native *native, quire_queue **out,
                                quire_error *error) {
    return guard("queue_create", error, [&](quire_error *sink) -> Status {
        if (device == nullptr || out == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        quire_native none{};
        auto queue = std::make_unique<quire_queue>();
        const quire_backend_api &api = *device->core.api;
        quire_be_device *handle = device->core.handle;
        QUIRE_TRY(from_backend(
            api.queue_bind(handle, native != nullptr ? native : &none, &queue->core.handle, sink)));
        quire_status status = api.fence_create(handle, 0, &queue->core.fence, sink);
        if (status < 0) {
            api.queue_release(queue->core.handle);
            return from_backend(status);
        }
        queue->core.device = &device->core;
        queue->core.number = g_next_queue++;
        queue->device = device;
        ++device->core.children;
        *out = queue.release();
        return Status{};
    });
}

quire_status quire_queue_destroy(quire_queue *queue, quire_error *error) {
    return guard("queue_destroy", error, [&](quire_error *) -> Status {
        if (queue == nullptr) return null_argument();
        if (queue->core.unfinished_steps != 0) {
            return fail(QUIRE_E_BUSY, "{} steps of a cache on this queue are not done",
                        queue->core.unfinished_steps.load());
        }
        if (!os::forked()) {
            const quire_backend_api &api = *queue->device->core.api;
            api.queue_release(queue->core.handle);
            api.fence_destroy(queue->core.fence);
        }
        --queue->device->core.children;
        delete queue;
        return Status{};
    });
}

quire_status quire_queue_sync(quire_queue *queue, quire_error *error) {
    return guard("queue_sync", error, [&](quire_error *sink) -> Status {
        if (queue == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        Queue &core = queue->core;
        const quire_backend_api &api = *core.device->api;
        uint64_t value = 0;
        {
            std::lock_guard<std::mutex> lock(core.mutex);
            QUIRE_TRY(
                from_backend(api.fence_signal(core.handle, core.fence, core.signalled + 1, sink)));
            value = ++core.signalled;
        }
        return from_backend(api.fence_wait_host(core.fence, value, UINT64_MAX, sink));
    });
}

quire_status quire_fence_create(quire_device *device, uint64_t value, quire_fence **out,
                                quire_error *error) {
    return guard("fence_create", error, [&](quire_error *sink) -> Status {
        if (device == nullptr || out == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        auto fence = std::make_unique<quire_fence>();
        QUIRE_TRY(from_backend(
            device->core.api->fence_create(device->core.handle, value, &fence->handle, sink)));
        fence->device = device;
        ++device->core.children;
        *out = fence.release();
        return Status{};
    });
}

quire_status quire_fence_destroy(quire_fence *fence, quire_error *error) {
    return guard("fence_destroy", error, [&](quire_error *) -> Status {
        if (fence == nullptr) return null_argument();
        if (!os::forked()) fence->device->core.api->fence_destroy(fence->handle);
        --fence->device->core.children;
        delete fence;
        return Status{};
    });
}

quire_status quire_fence_read(quire_fence *fence, uint64_t *value, quire_error *error) {
    return guard("fence_read", error, [&](quire_error *sink) -> Status {
        if (fence == nullptr || value == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        return from_backend(fence->device->core.api->fence_read(fence->handle, value, sink));
    });
}

quire_status quire_fence_signal(quire_fence *fence, uint64_t value, quire_error *error) {
    return guard("fence_signal", error, [&](quire_error *sink) -> Status {
        if (fence == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        return from_backend(fence->device->core.api->fence_signal_host(fence->handle, value, sink));
    });
}

quire_status quire_fence_wait(quire_fence *fence, uint64_t value, uint64_t timeout_ns,
                              quire_error *error) {
    return guard("fence_wait", error, [&](quire_error *sink) -> Status {
        if (fence == nullptr) return null_argument();
        QUIRE_TRY(not_forked());
        return from_backend(
            fence->device->core.api->fence_wait_host(fence->handle, value, timeout_ns, sink));
    });
}

quire_status quire_queue_signal(quire_queue *queue, quire_fence *fence, uint64_t value,
                                quire_error *error) {
    return guard("queue_signal", error, [&](quire_error *sink) -> Status {
        if (queue == nullptr || fence == nullptr) return null_argument();
        if (queue->device != fence->device)
            return fail(QUIRE_E_ARG, "the fence is of another device");
        QUIRE_TRY(not_forked());
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return from_backend(
            queue->device->core.api->fence_signal(queue->core.handle, fence->handle, value, sink));
    });
}

quire_status quire_queue_after(quire_queue *queue, quire_fence *fence, uint64_t value,
                               quire_error *error) {
    return guard("queue_after", error, [&](quire_error *sink) -> Status {
        if (queue == nullptr || fence == nullptr) return null_argument();
        if (queue->device != fence->device)
            return fail(QUIRE_E_ARG, "the fence is of another device");
        QUIRE_TRY(not_forked());
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return from_backend(
            queue->device->core.api->fence_wait(queue->core.handle, fence->handle, value, sink));
    });
}

quire_status quire_memory_create(quire_device *device, const quire_memory_desc *desc,
                                 quire_memory **out, quire_error *error) {
    return guard("memory_create", error, [&](quire_error *sink) -> Status {
        quire_memory_desc full;
        QUIRE_TRY(read(desc, &full));
        if (device == nullptr || out == nullptr) return null_argument();
        if (full.size_bytes == 0) return fail(QUIRE_E_ARG, "size_bytes is 0");
        if (full.kind > QUIRE_MEMORY_HOST)
            return fail(QUIRE_E_ARG, "kind {} is not known", full.kind);
        QUIRE_TRY(not_forked());
        auto memory = std::make_unique<quire_memory>();
        uint32_t kind =
            full.kind == QUIRE_MEMORY_HOST ? QUIRE_BE_MEMORY_HOST : QUIRE_BE_MEMORY_DEVICE;
        QUIRE_TRY(from_backend(device->core.api->mem_alloc(device->core.handle, full.size_bytes,
                                                           kind, &memory->address,
                                                           &memory->host_pointer, sink)));
        memory->device = device;
        memory->size_bytes = full.size_bytes;
        memory->kind = full.kind;
        ++device->core.children;
        *out = memory.release();
        return Status{};
    });
}

quire_status quire_memory_destroy(quire_memory *memory, quire_error *error) {
    return guard("memory_destroy", error, [&](quire_error *) -> Status {
        if (memory == nullptr) return null_argument();
        uint32_t kind =
            memory->kind == QUIRE_MEMORY_HOST ? QUIRE_BE_MEMORY_HOST : QUIRE_BE_MEMORY_DEVICE;
        Device &device = memory->device->core;
        if (!os::forked()) {
            device.api->mem_free(device.handle, memory->address, memory->size_bytes, kind);
        }
        --device.children;
        delete memory;
        return Status{};
    });
}

quire_status quire_memory_get_info(quire_memory *memory, quire_memory_info *info,
                                   quire_error *error) {
    return guard("memory_get_info", error, [&](quire_error *) -> Status {
        if (memory == nullptr) return null_argument();
        QUIRE_TRY(check_output(info));
        quire_memory_info full{};
        full.address = memory->address;
        full.host_pointer = memory->host_pointer;
        full.size_bytes = memory->size_bytes;
        write(full, info);
        return Status{};
    });
}

quire_status quire_memory_copy(quire_queue *queue, quire_memory *dst, uint64_t dst_offset,
                               quire_memory *src, uint64_t src_offset, uint64_t size_bytes,
                               quire_error *error) {
    return guard("memory_copy", error, [&](quire_error *sink) -> Status {
        if (queue == nullptr || dst == nullptr || src == nullptr) return null_argument();
        if (dst->device != queue->device || src->device != queue->device) {
            return fail(QUIRE_E_ARG, "queue and memories must be of one device");
        }
        if (!inside(dst, dst_offset, size_bytes) || !inside(src, src_offset, size_bytes)) {
            return fail(QUIRE_E_ARG, "the copy of {} bytes reaches past a memory's end",
                        size_bytes);
        }
        bool overlaps = dst == src && dst_offset < src_offset + size_bytes &&
                        src_offset < dst_offset + size_bytes;
        if (overlaps) return fail(QUIRE_E_ARG, "the two ranges overlap");
        if (size_bytes == 0) return Status{};
        QUIRE_TRY(not_forked());
        quire_be_copy copy{dst->address + dst_offset, src->address + src_offset, size_bytes,
                           copy_kind(dst, src), 0};
        std::lock_guard<std::mutex> lock(queue->core.mutex);
        return from_backend(queue->device->core.api->copy(queue->core.handle, &copy, 1, sink));
    });
}

}  // extern "C"
