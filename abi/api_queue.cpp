// SPDX-License-Identifier: Apache-2.0
//
// Exported functions of queue.h, and memory of device.h.

#include "abi/objects.hpp"

using namespace quire;
using namespace quire::abi;

namespace {

std::atomic<uint64_t> g_next_queue{1};

Status create_fence(const Device &device, uint64_t value, quire_be_fence **out, quire_error *sink) {
    quire_be_fence *made = nullptr;
    QUIRE_TRY(
        call<&quire_backend_api::fence_create>(*device.api, sink, device.handle, value, &made));
    if (made == nullptr) return function_lied(*device.api, sink, "fence_create returned no fence");
    *out = made;
    return Status{};
}

// True if [offset, offset + size_bytes) lies inside the memory.
bool inside(const quire_memory *memory, uint64_t offset, uint64_t size_bytes) {
    return offset <= memory->size_bytes && size_bytes <= memory->size_bytes - offset;
}

uint32_t copy_kind(const quire_memory *dst, const quire_memory *src) {
    bool to_host = dst->kind == QUIRE_MEMORY_HOST, from_host = src->kind == QUIRE_MEMORY_HOST;
    if (to_host) return from_host ? QUIRE_BE_COPY_H2H : QUIRE_BE_COPY_D2H;
    return from_host ? QUIRE_BE_COPY_H2D : QUIRE_BE_COPY_D2D;
}

Status check_semaphore(const quire_queue *queue, const quire_native *native) {
    QUIRE_TRY(need(queue, "queue is NULL"));
    QUIRE_TRY(need(native, "native is NULL"));
    QUIRE_TRY(check_native(native));
    return usable(queue->device);
}

Status no_semaphores() {
    return fail(QUIRE_E_UNSUPPORTED, "the device's backend does not support native semaphores");
}

}  // namespace

extern "C" {

quire_status quire_queue_create(quire_device *device, const quire_native *native, quire_queue **out,
                                quire_error *error) {
    return guard("queue_create", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(need(out, "out is NULL"));
        QUIRE_TRY(check_native(native));
        QUIRE_TRY(usable(device));
        const quire_native none{};
        auto queue = std::make_unique<quire_queue>();
        const quire_backend_api &api = *device->core.api;
        quire_be_device *handle = device->core.handle;
        QUIRE_TRY(call<&quire_backend_api::queue_bind>(
            api, sink, handle, native != nullptr ? native : &none, &queue->core.handle));
        if (queue->core.handle == nullptr) {
            return function_lied(api, sink, "queue_bind returned no queue");
        }
        Status fenced = create_fence(device->core, 0, &queue->core.fence, sink);
        if (!fenced.ok()) {
            call_void<&quire_backend_api::queue_release>(api, queue->core.handle);
            return fenced;
        }
        queue->core.device = &device->core;
        queue->core.number = g_next_queue++;
        queue->core.is_engines = native != nullptr && native->kind != QUIRE_NATIVE_NONE;
        queue->device = device;
        queue->part.queue = queue.get();
        device->add(&queue->part);
        *out = queue.release();
        return Status{};
    });
}

quire_status quire_queue_destroy(quire_queue *queue, quire_error *error) {
    return guard("queue_destroy", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(check_kept(queue->device));
        if (queue->core.lock.is_abandoned()) {
            return fail(QUIRE_E_STALE, "the queue was abandoned");
        }
        if (queue->core.unfinished_steps != 0) {
            return fail(QUIRE_E_BUSY, "steps on this queue are not finished: {} of them",
                        queue->core.unfinished_steps.load());
        }
        if (!os::forked()) {
            const quire_backend_api &api = *queue->device->core.api;
            call_void<&quire_backend_api::queue_release>(api, queue->core.handle);
            call_void<&quire_backend_api::fence_destroy>(api, queue->core.fence);
        }
        queue->device->remove(&queue->part);
        delete queue;
        return Status{};
    });
}

quire_status quire_queue_sync(quire_queue *queue, quire_error *error) {
    return guard("queue_sync", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(usable(queue->device));
        Queue &core = queue->core;
        const quire_backend_api &api = *core.device->api;
        uint64_t value = 0;
        {
            QueueUse use(&core);
            QUIRE_TRY(use.status());
            QUIRE_TRY(call<&quire_backend_api::fence_signal>(api, sink, core.handle, core.fence,
                                                             core.signalled + 1));
            value = ++core.signalled;
        }
        Status waited =
            call<&quire_backend_api::fence_wait_host>(api, sink, core.fence, value, UINT64_MAX);
        if (waited.code == QUIRE_S_TIMEOUT) {
            return function_lied(api, sink, "fence_wait_host timed out of an infinite wait");
        }
        return waited;
    });
}

quire_status quire_fence_create(quire_device *device, uint64_t value, quire_fence **out,
                                quire_error *error) {
    return guard("fence_create", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(need(out, "out is NULL"));
        QUIRE_TRY(usable(device));
        auto fence = std::make_unique<quire_fence>();
        QUIRE_TRY(create_fence(device->core, value, &fence->handle, sink));
        fence->device = device;
        device->add(&fence->part);
        *out = fence.release();
        return Status{};
    });
}

quire_status quire_fence_destroy(quire_fence *fence, quire_error *error) {
    return guard("fence_destroy", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(fence, "fence is NULL"));
        QUIRE_TRY(check_kept(fence->device));
        if (!os::forked()) {
            call_void<&quire_backend_api::fence_destroy>(*fence->device->core.api, fence->handle);
        }
        fence->device->remove(&fence->part);
        delete fence;
        return Status{};
    });
}

quire_status quire_fence_read(quire_fence *fence, uint64_t *value, quire_error *error) {
    return guard("fence_read", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(fence, "fence is NULL"));
        QUIRE_TRY(need(value, "value is NULL"));
        QUIRE_TRY(usable(fence->device));
        return call<&quire_backend_api::fence_read>(*fence->device->core.api, sink, fence->handle,
                                                    value);
    });
}

quire_status quire_fence_signal(quire_fence *fence, uint64_t value, quire_error *error) {
    return guard("fence_signal", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(fence, "fence is NULL"));
        QUIRE_TRY(usable(fence->device));
        return call<&quire_backend_api::fence_signal_host>(*fence->device->core.api, sink,
                                                           fence->handle, value);
    });
}

quire_status quire_fence_wait(quire_fence *fence, uint64_t value, uint64_t timeout_ns,
                              quire_error *error) {
    return guard("fence_wait", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(fence, "fence is NULL"));
        QUIRE_TRY(usable(fence->device));
        return call<&quire_backend_api::fence_wait_host>(*fence->device->core.api, sink,
                                                         fence->handle, value, timeout_ns);
    });
}

quire_status quire_queue_signal(quire_queue *queue, quire_fence *fence, uint64_t value,
                                quire_error *error) {
    return guard("queue_signal", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(need(fence, "fence is NULL"));
        if (queue->device != fence->device)
            return fail(QUIRE_E_ARG, "the fence belongs to another device");
        QUIRE_TRY(usable(queue->device));
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::fence_signal>(*queue->device->core.api, sink,
                                                      queue->core.handle, fence->handle, value);
    });
}

quire_status quire_queue_after(quire_queue *queue, quire_fence *fence, uint64_t value,
                               quire_error *error) {
    return guard("queue_after", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(need(fence, "fence is NULL"));
        if (queue->device != fence->device)
            return fail(QUIRE_E_ARG, "the fence belongs to another device");
        QUIRE_TRY(usable(queue->device));
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::fence_wait>(*queue->device->core.api, sink,
                                                    queue->core.handle, fence->handle, value);
    });
}

quire_status quire_queue_signal_native(quire_queue *queue, const quire_native *native,
                                       quire_error *error) {
    return guard("queue_signal_native", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(check_semaphore(queue, native));
        const quire_backend_api &api = *queue->device->core.api;
        if (api.native_signal == nullptr) return no_semaphores();
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::native_signal>(api, sink, queue->core.handle, native);
    });
}

quire_status quire_queue_after_native(quire_queue *queue, const quire_native *native,
                                      quire_error *error) {
    return guard("queue_after_native", error, [&](quire_error *sink) -> Status {
        QUIRE_TRY(check_semaphore(queue, native));
        const quire_backend_api &api = *queue->device->core.api;
        if (api.native_wait == nullptr) return no_semaphores();
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::native_wait>(api, sink, queue->core.handle, native);
    });
}

quire_status quire_memory_create(quire_device *device, const quire_memory_desc *desc,
                                 quire_memory **out, quire_error *error) {
    return guard("memory_create", error, [&](quire_error *sink) -> Status {
        quire_memory_desc full;
        QUIRE_TRY(read(desc, &full));
        QUIRE_TRY(need(device, "device is NULL"));
        QUIRE_TRY(need(out, "out is NULL"));
        if (full.size_bytes == 0) return fail(QUIRE_E_ARG, "size_bytes is 0");
        if (full.kind > QUIRE_MEMORY_HOST)
            return fail(QUIRE_E_ARG, "kind {} is not known", full.kind);
        QUIRE_TRY(usable(device));
        bool is_imported = full.host_pointer != nullptr;
        if (is_imported && full.kind != QUIRE_MEMORY_HOST) {
            return fail(QUIRE_E_ARG, "host_pointer is set, but the kind is not QUIRE_MEMORY_HOST");
        }
        auto memory = std::make_unique<quire_memory>();
        memory->device = device;
        memory->size_bytes = full.size_bytes;
        memory->kind = full.kind;
        memory->is_imported = is_imported;
        if (is_imported) {
            QUIRE_TRY(import_memory(device->core, full.host_pointer, full.size_bytes,
                                    &memory->address, sink));
            memory->host_pointer = full.host_pointer;
        } else {
            QUIRE_TRY(allocate_memory(device->core, full.size_bytes, memory->backend_kind(),
                                      &memory->address, &memory->host_pointer, sink));
        }
        device->add(&memory->part);
        *out = memory.release();
        return Status{};
    });
}

quire_status quire_memory_destroy(quire_memory *memory, quire_error *error) {
    return guard("memory_destroy", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(memory, "memory is NULL"));
        QUIRE_TRY(check_kept(memory->device));
        if (!os::forked()) {
            free_memory(memory->device->core, memory->address, memory->size_bytes,
                        memory->backend_kind());
        }
        memory->device->remove(&memory->part);
        delete memory;
        return Status{};
    });
}

quire_status quire_memory_get_info(quire_memory *memory, quire_memory_info *info,
                                   quire_error *error) {
    return guard("memory_get_info", error, [&](quire_error *) -> Status {
        QUIRE_TRY(need(memory, "memory is NULL"));
        QUIRE_TRY(check_output(info));
        QUIRE_TRY(check_kept(memory->device));
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
        QUIRE_TRY(need(queue, "queue is NULL"));
        QUIRE_TRY(need(dst, "dst is NULL"));
        QUIRE_TRY(need(src, "src is NULL"));
        if (dst->device != queue->device || src->device != queue->device) {
            return fail(QUIRE_E_ARG, "the queue and both memories must belong to one device");
        }
        if (!inside(dst, dst_offset, size_bytes) || !inside(src, src_offset, size_bytes)) {
            return fail(QUIRE_E_ARG, "the copy of {} bytes reaches past a memory's end",
                        size_bytes);
        }
        bool overlaps = dst == src && dst_offset < src_offset + size_bytes &&
                        src_offset < dst_offset + size_bytes;
        if (overlaps) return fail(QUIRE_E_ARG, "the two ranges overlap");
        QUIRE_TRY(usable(queue->device));
        if (size_bytes == 0) return Status{};
        quire_be_copy copy{dst->address + dst_offset, src->address + src_offset, size_bytes,
                           copy_kind(dst, src), 0};
        QueueUse use(&queue->core);
        QUIRE_TRY(use.status());
        return call<&quire_backend_api::copy>(*queue->device->core.api, sink, queue->core.handle,
                                              static_cast<const quire_be_copy *>(&copy),
                                              uint32_t{1});
    });
}

}  // extern "C"
