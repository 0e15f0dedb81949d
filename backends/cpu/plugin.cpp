// SPDX-License-Identifier: Apache-2.0
//
// plugin: the one exported function and the table it hands out.
//
// Threads: any.

#include "shared/plugin.hpp"
#include "attention.hpp"
#include "device.hpp"
#include "fence.hpp"
#include "memory.hpp"
#include "plan.hpp"
#include "pool_write.hpp"
#include "queue.hpp"
#include "quire/plugin/backend.h"
#include "transfer.hpp"

const char quire::kBackendName[] = "cpu";

namespace quire::cpu {

namespace {

constexpr quire_backend_api kApi = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = kPluginMajor,
    .abi_minor = kPluginMinor,
    .min_host_minor = kPluginMinor,
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
    return quire::hand_out(&quire::cpu::kApi, host, out, error);
}
