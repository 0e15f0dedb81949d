// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function and the table it hands out.
//
// The query keeps nothing of the host: two libraries in one process may load the same plugin, and a
// device could not tell whose allocator was meant. So small objects come from operator new.
//
// Threads: any.

#include "attention.hpp"
#include "device.hpp"
#include "fence.hpp"
#include "memory.hpp"
#include "plan.hpp"
#include "pool_write.hpp"
#include "queue.hpp"
#include "quire/plugin/backend.h"
#include "shared/checks.hpp"
#include "transfer.hpp"

const char quire::kBackendName[] = "cpu";

namespace quire::cpu {

namespace {

// The first minor that this backend speaks is its only one, so min(host, own) is always kMinor.
constexpr uint32_t kMajor = 0;
constexpr uint32_t kMinor = 1;

constexpr quire_backend_api kApi = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = kMajor,
    .abi_minor = kMinor,
    .min_host_minor = kMinor,
    .name = kBackendName,
    .version = "0.1.0",
    .probe = probe,
    .device_open = device_open,
    .device_close = device_close,
    .device_props = device_props,
    .query_attention = query_attention,
    .mem_alloc = mem_alloc,
    .mem_free = mem_free,
    .queue_bind = queue_bind,
    .queue_release = queue_release,
    .fence_create = fence_create,
    .fence_destroy = fence_destroy,
    .fence_read = fence_read,
    .fence_signal_host = fence_signal_host,
    .fence_wait_host = fence_wait_host,
    .fence_signal = fence_signal,
    .fence_wait = fence_wait,
    .copy = copy,
    .fill = fill,
    .kv_write = kv_write,
    .plan_create = plan_create,
    .plan_destroy = plan_destroy,
    .attention = attention,
    .quiesce = quiesce,
    .shutdown = shutdown,
    .merge = merge,
    .move_tokens = move_tokens,
    .native_signal = nullptr,  // a processor has no semaphores of another API
    .native_wait = nullptr,
    .mem_import = mem_import,
};

}  // namespace

}  // namespace quire::cpu

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    using namespace quire::cpu;
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
