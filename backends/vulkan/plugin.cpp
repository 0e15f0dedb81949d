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

const char quire::kBackendName[] = "vulkan";

namespace quire::vulkan {

namespace {

constexpr quire_backend_api kApi = {
    .struct_size = sizeof(quire_backend_api),
    .abi_major = kPluginMajor,
    .abi_minor = kPluginMinor,
    .min_host_minor = kPluginMinor,
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
    .mem_import = Guard<mem_import>::call,
};

}  // namespace

}  // namespace quire::vulkan

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    return quire::hand_out(&quire::vulkan::kApi, host, out, error);
}
