// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function and the table it hands out.
//
// The query keeps nothing of the host: two libraries in one process may load the same plugin, and a
// device could not tell whose allocator was meant. So small objects come from operator new.
//
// Threads: any.

#include <new>

#include "attention.hpp"
#include "device.hpp"
#include "engine.hpp"
#include "fence.hpp"
#include "memory.hpp"
#include "plan.hpp"
#include "pool_write.hpp"
#include "queue.hpp"
#include "quire/plugin/backend.h"
#include "shared/checks.hpp"
#include "transfer.hpp"

namespace quire::gpu {

namespace {

// The first minor that this backend speaks is its only one, so min(host, own) is always kMinor.
constexpr uint32_t kMajor = 0;
constexpr uint32_t kMinor = 1;

quire_error *error_of(quire_error *error) { return error; }
template <typename First, typename... Rest>
quire_error *error_of(First, Rest... rest) {
    return error_of(rest...);
}

// A slot that may run out of host memory, and says so.
template <auto slot>
struct Guard;
template <typename... Arguments, quire_status (*slot)(Arguments...)>
struct Guard<slot> {
    static quire_status call(Arguments... arguments) noexcept {
        try {
            return slot(arguments...);
        } catch (const std::bad_alloc &) {
            return fail(error_of(arguments...), QUIRE_E_HOST_MEMORY, "no host memory is left");
        }
    }
};

constexpr quire_backend_api kApi = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = kMajor,
    .abi_minor = kMinor,
    .min_host_minor = kMinor,
    .name = kBackendName,
    .version = "0.1.0",
    .probe = Guard<probe>::call,
    .device_open = Guard<device_open>::call,
    .device_close = device_close,
    .device_props = Guard<device_props>::call,
    .query_attention = Guard<query_attention>::call,
    .mem_alloc = Guard<mem_alloc>::call,
    .mem_free = mem_free,
    .queue_bind = Guard<queue_bind>::call,
    .queue_release = queue_release,
    .fence_create = Guard<fence_create>::call,
    .fence_destroy = fence_destroy,
    .fence_read = Guard<fence_read>::call,
    .fence_signal_host = Guard<fence_signal_host>::call,
    .fence_wait_host = Guard<fence_wait_host>::call,
    .fence_signal = Guard<fence_signal>::call,
    .fence_wait = Guard<fence_wait>::call,
    .copy = Guard<copy>::call,
    .fill = Guard<fill>::call,
    .kv_write = Guard<kv_write>::call,
    .plan_create = Guard<plan_create>::call,
    .plan_destroy = plan_destroy,
    .attention = Guard<attention>::call,
    .quiesce = Guard<quiesce>::call,
    .shutdown = Guard<shutdown>::call,
    .merge = Guard<merge>::call,
    .move_tokens = Guard<move_tokens>::call,
    .native_signal = Guard<native_signal>::call,
    .native_wait = Guard<native_wait>::call,
    .mem_import = nullptr,
};

}  // namespace

}  // namespace quire::gpu

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    using namespace quire::gpu;
    using quire::check_struct;
    using quire::fail;
    if (out == nullptr) return fail(error, QUIRE_E_ARG, "out is NULL");
    if (quire_status status = check_struct(host, sizeof *host, "host", error)) return status;
    if (host->abi_major != kMajor || host->abi_minor < kMinor) {
        return fail(error, QUIRE_E_INCOMPATIBLE,
                    "the host speaks backend ABI %u.%u, this backend %u.%u; "
                    "install the backend that came with the library",
                    host->abi_major, host->abi_minor, kMajor, kMinor);
    }
    *out = &kApi;
    return QUIRE_OK;
}
