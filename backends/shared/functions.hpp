// SPDX-License-Identifier: Apache-2.0
//
// functions: the functions of a backend's table. Each checks its arguments, counts objects, and
// calls the backend.
//
// Why templates: they see a backend's own objects, and the compiler finds a missing function.
// quire_be_device, _queue, _fence and _plan derive from structs in the backend's namespace, so the
// calls below that name no namespace find its functions there (argument-dependent lookup):
//
//   of a device   open_device, close_device, describe_device, quiesce_device, missing_kernel,
//                 allocate, free_memory, import_memory, make_queue, make_fence, make_plan
//   of a queue    release_queue, enqueue_signal, enqueue_wait, enqueue_copies, enqueue_fill,
//                 enqueue_kv_write, enqueue_attention, enqueue_merge, enqueue_moves
//   of a fence    release_fence, read_fence, raise_fence, await_fence
//   of a plan     release_plan
//
// Those never receive NULL, a struct of a wrong size, a plan or a fence of another device, or a
// list of nothing. What one makes holds a reference to its device.
//
// Threads: any.
#pragma once

#include <cinttypes>
#include <cstdio>
#include <utility>

#include "quire/plugin/backend.h"
#include "shared/checks.hpp"
#include "shared/copies.hpp"
#include "shared/deadline.hpp"
#include "shared/fence_value.hpp"
#include "shared/instances.hpp"
#include "shared/objects.hpp"
#include "shared/plan_options.hpp"
#include "shared/plugin.hpp"
#include "shared/pool_calls.hpp"

namespace quire::function {

// Counts an object if it was made.
inline quire_status count(quire_status status) {
    if (status == QUIRE_OK) live_objects.fetch_add(1, std::memory_order_relaxed);
    return status;
}
inline void uncount() { live_objects.fetch_sub(1, std::memory_order_relaxed); }

// Devices.

template <auto count_devices>
quire_status probe(uint32_t *device_count, quire_error *error) {
    if (device_count == nullptr) return fail(error, QUIRE_E_ARG, "device_count is NULL");
    return count_devices(device_count, error);
}

template <typename Device>
quire_status device_open(const quire_be_device_desc *desc, Device **out, quire_error *error) {
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_struct(desc, sizeof *desc, "desc", error)) return status;
    return count(open_device(*desc, out, error));
}

template <typename Device>
void device_close(Device *device) {
    if (device == nullptr) return;
    close_device(*device);
    uncount();
    device->drop_reference();
}

template <typename Device>
quire_status device_props(Device *device, quire_be_device_props *props, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = check_output(props, sizeof *props, "props", error)) return status;
    return describe_device(*device, props, error);
}

template <typename Device>
quire_status quiesce(Device *device, uint64_t timeout_ns, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    return quiesce_device(*device, Deadline(timeout_ns), error);
}

inline quire_status shutdown(uint64_t *live_object_count, quire_error *error) {
    if (live_object_count == nullptr) return fail(error, QUIRE_E_ARG, "live_object_count is NULL");
    *live_object_count = live_objects.load();
    return QUIRE_OK;
}

// Memory.

template <typename Device>
quire_status mem_alloc(Device *device, uint64_t size_bytes, uint32_t kind, uint64_t *address,
                       void **host_pointer, quire_error *error) {
    if (device == nullptr || address == nullptr || host_pointer == nullptr) {
        return fail(error, QUIRE_E_ARG, "device, address or host_pointer is NULL");
    }
    if (kind != QUIRE_BE_MEMORY_DEVICE && kind != QUIRE_BE_MEMORY_HOST) {
        return fail(error, QUIRE_E_ARG, "memory kind %u is neither DEVICE nor HOST", kind);
    }
    if (size_bytes == 0) {
        return fail(error, QUIRE_E_ARG, "size_bytes is 0; request at least 1 byte");
    }
    return count(allocate(*device, size_bytes, kind, address, host_pointer, error));
}

template <typename Device>
quire_status mem_import(Device *device, void *host_pointer, uint64_t size_bytes, uint64_t *address,
                        quire_error *error) {
    if (device == nullptr || host_pointer == nullptr || address == nullptr) {
        return fail(error, QUIRE_E_ARG, "device, host_pointer or address is NULL");
    }
    if (size_bytes == 0) return fail(error, QUIRE_E_ARG, "size_bytes is 0; import at least 1 byte");
    return count(import_memory(*device, host_pointer, size_bytes, address, error));
}

template <typename Device>
void mem_free(Device *device, uint64_t address, uint64_t size_bytes, uint32_t kind) {
    if (device != nullptr && free_memory(*device, address, size_bytes, kind)) uncount();
}

// Plans.

template <typename Device>
quire_status query_attention(Device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    if (device == nullptr) return fail(error, QUIRE_E_ARG, "device is NULL");
    if (quire_status status = answer_query(query, answer, error)) return status;
    const char *missing = missing_kernel(*device, *query);
    if (missing == nullptr || answer->support == QUIRE_BE_NO) return QUIRE_OK;
    answer->support = QUIRE_BE_NO;
    answer->alignment = 0;
    std::snprintf(answer->reason, sizeof answer->reason, "%s", missing);
    return QUIRE_OK;
}

template <typename Device, typename Plan>
quire_status plan_create(Device *device, const quire_be_plan_desc *desc, Plan **out,
                         quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    PlanOptions options;
    if (quire_status status = make_plan_options(desc, &options, error)) return status;
    if (const char *missing = missing_kernel(*device, options.shape)) {
        return fail(error, QUIRE_E_UNSUPPORTED, "%s", missing);
    }
    return count(make_plan(*device, *desc, std::move(options), out, error));
}

template <typename Plan>
void plan_destroy(Plan *plan) {
    if (plan == nullptr) return;
    uncount();
    release_plan(plan);
}

// Queues and fences.

template <typename Device, typename Queue>
quire_status queue_bind(Device *device, const quire_native *native, Queue **out,
                        quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    return count(bind_queue(*device, native, out, error));
}

template <typename Queue>
void queue_release(Queue *queue) {
    if (queue == nullptr) return;
    uncount();
    release_queue(*queue);
}

template <typename Device, typename Fence>
quire_status fence_create(Device *device, uint64_t value, Fence **out, quire_error *error) {
    if (device == nullptr || out == nullptr) {
        return fail(error, QUIRE_E_ARG, "device or out is NULL");
    }
    return count(make_fence(*device, value, out, error));
}

template <typename Fence>
void fence_destroy(Fence *fence) {
    if (fence == nullptr) return;
    uncount();
    release_fence(*fence);
}

template <typename Fence>
quire_status fence_read(Fence *fence, uint64_t *value, quire_error *error) {
    if (fence == nullptr || value == nullptr) {
        return fail(error, QUIRE_E_ARG, "fence or value is NULL");
    }
    *value = read_fence(*fence);
    return QUIRE_OK;
}

template <typename Fence>
quire_status fence_signal_host(Fence *fence, uint64_t value, quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    uint64_t before = raise_fence(*fence, value);
    if (before < value) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "a fence only grows: it is at %" PRIu64 " and cannot be set to %" PRIu64, before,
                value);
}

template <typename Fence>
quire_status fence_wait_host(Fence *fence, uint64_t value, uint64_t timeout_ns,
                             quire_error *error) {
    if (fence == nullptr) return fail(error, QUIRE_E_ARG, "fence is NULL");
    uint64_t reached = await_fence(*fence, value, Deadline(timeout_ns));
    if (reached < value) return QUIRE_S_TIMEOUT;
    if (reached != kFenceFailed || value == kFenceFailed) return QUIRE_OK;
    return fail(error, QUIRE_E_DEVICE_LOST, "the fence failed: work before it did not run");
}

template <typename Queue, typename Fence>
quire_status check_fence(const Queue *queue, const Fence *fence, quire_error *error) {
    if (queue == nullptr || fence == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or fence is NULL");
    }
    if (fence->device == queue->device) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG,
                "the fence belongs to another device; wait for it on the host instead");
}

template <typename Queue, typename Fence>
quire_status fence_signal(Queue *queue, Fence *fence, uint64_t value, quire_error *error) {
    if (quire_status status = check_fence(queue, fence, error)) return status;
    return enqueue_signal(*queue, *fence, value, error);
}

template <typename Queue, typename Fence>
quire_status fence_wait(Queue *queue, Fence *fence, uint64_t value, quire_error *error) {
    if (quire_status status = check_fence(queue, fence, error)) return status;
    return enqueue_wait(*queue, *fence, value, error);
}

// Work.

template <typename Queue>
quire_status copy(Queue *queue, const quire_be_copy *copies, uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_copies(copies, count, error)) return status;
    return count == 0 ? QUIRE_OK : enqueue_copies(*queue, copies, count, error);
}

template <typename Queue>
quire_status fill(Queue *queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                  quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_fill(ranges, count, byte, error)) return status;
    return count == 0 ? QUIRE_OK : enqueue_fill(*queue, ranges, count, byte, error);
}

template <typename Queue, typename Plan>
quire_status check_plan(const Queue &queue, const Plan &plan, const quire_be_pool &pool,
                        quire_error *error) {
    if (plan.device != queue.device) {
        return fail(error, QUIRE_E_ARG, "the plan was created for another device");
    }
    return check_pool_fits(plan.options, pool, error);
}

template <typename Queue, typename Plan>
quire_status kv_write(Queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    quire_be_kv_write call{};
    if (quire_status status = resolve_kv_write(args, &call, error)) return status;
    Plan *plan = args->plan;
    if (plan != nullptr) {
        if (quire_status status = check_plan(*queue, *plan, *args->pool, error)) return status;
        if (quire_status status = resolve_rope(plan->options, &call, error)) return status;
    }
    return args->token_count == 0 ? QUIRE_OK : enqueue_kv_write(*queue, call, plan, error);
}

template <typename Queue>
quire_status move_tokens(Queue *queue, const quire_be_pool *pool, const quire_be_move *moves,
                         uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_moves(pool, moves, count, error)) return status;
    return count == 0 ? QUIRE_OK : enqueue_moves(*queue, *pool, moves, count, error);
}

template <typename Queue, typename Plan>
quire_status attention(Queue *queue, Plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    if (queue == nullptr || plan == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or plan is NULL");
    }
    quire_be_attention call{};
    if (quire_status status = resolve_attention(plan->options, args, &call, error)) return status;
    if (quire_status status = check_plan(*queue, *plan, *args->pool, error)) return status;
    bool is_empty = args->row_count == 0 || args->query_tokens == 0;
    return is_empty ? QUIRE_OK : enqueue_attention(*queue, *plan, call, error);
}

template <typename Queue>
quire_status merge(Queue *queue, const quire_be_merge *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_merge(args, error)) return status;
    return args->token_count == 0 ? QUIRE_OK : enqueue_merge(*queue, *args, error);
}

// All functions except mem_import, native_signal and native_wait, which a backend adds if it has
// them.
template <auto count_devices, typename Device, typename Queue, typename Fence, typename Plan>
constexpr quire_backend_api table() {
    quire_backend_api api{};
    api.struct_size = sizeof api;
    api.abi_major = kPluginMajor;
    api.abi_minor = kPluginMinor;
    api.min_host_minor = kPluginMinor;
    api.name = kBackendName;
    api.version = "0.1.0";
    api.probe = Guard<probe<count_devices>>::call;
    api.device_open = Guard<device_open<Device>>::call;
    api.device_close = device_close<Device>;
    api.device_props = Guard<device_props<Device>>::call;
    api.query_attention = Guard<query_attention<Device>>::call;
    api.mem_alloc = Guard<mem_alloc<Device>>::call;
    api.mem_free = mem_free<Device>;
    api.queue_bind = Guard<queue_bind<Device, Queue>>::call;
    api.queue_release = queue_release<Queue>;
    api.fence_create = Guard<fence_create<Device, Fence>>::call;
    api.fence_destroy = fence_destroy<Fence>;
    api.fence_read = Guard<fence_read<Fence>>::call;
    api.fence_signal_host = Guard<fence_signal_host<Fence>>::call;
    api.fence_wait_host = Guard<fence_wait_host<Fence>>::call;
    api.fence_signal = Guard<fence_signal<Queue, Fence>>::call;
    api.fence_wait = Guard<fence_wait<Queue, Fence>>::call;
    api.copy = Guard<copy<Queue>>::call;
    api.fill = Guard<fill<Queue>>::call;
    api.kv_write = Guard<kv_write<Queue, Plan>>::call;
    api.plan_create = Guard<plan_create<Device, Plan>>::call;
    api.plan_destroy = plan_destroy<Plan>;
    api.attention = Guard<attention<Queue, Plan>>::call;
    api.quiesce = Guard<quiesce<Device>>::call;
    api.shutdown = Guard<shutdown>::call;
    api.merge = Guard<merge<Queue>>::call;
    api.move_tokens = Guard<move_tokens<Queue>>::call;
    api.features = QUIRE_BE_FEATURE_ROWS_ID;
    return api;
}

}  // namespace quire::function
