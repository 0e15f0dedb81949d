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
#include "shared/functions.hpp"
#include "transfer.hpp"

namespace quire {

const char kBackendName[] = "vulkan";

constexpr quire_backend_api kApi = [] {
    quire_backend_api api = function::table<vulkan::count_devices, quire_be_device, quire_be_queue,
                                            quire_be_fence, quire_be_plan>();
    api.native_signal = Guard<vulkan::native_signal>::call;
    api.native_wait = Guard<vulkan::native_wait>::call;
    api.mem_import = Guard<function::mem_import<quire_be_device>>::call;
    return api;
}();

}  // namespace quire

quire_status quire_backend_query_v0(const quire_host_info *host, const quire_backend_api **out,
                                    quire_error *error) {
    return quire::hand_out(&quire::kApi, host, out, error);
}
