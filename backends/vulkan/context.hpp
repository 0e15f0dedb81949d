// SPDX-License-Identifier: Apache-2.0
//
// context: a VkDevice, its functions and the VkQueue that work is submitted to.
//
// The VkDevice is ours or an engine's (engine.hpp), which then submits to its VkQueues itself; a
// lock of the engine's keeps the two apart.
//
// Why one VkQueue: our queues are kept in order by timelines of their own, and one that waits for
// what has not been submitted is held back on the host (queue.hpp), so none holds up another.
// Beside it goes one of a family that only copies, where there is such: large copies between host
// and device (transfer.hpp) then leave the first to the kernels of other queues.
//
// Environment  QUIRE_VULKAN_TRANSFER  0: no VkQueue for copies alone; same: the first stands for it
//              and takes every copy between host and device, so that all goes the same way on a
//              device that has no other.
//              QUIRE_VULKAN_IMPORT  0: host memory is not imported, but goes by the ring
//              (staging.hpp), as on a device without VK_EXT_external_memory_host.
//
// Threads: submit() and wait_idle() under the device's mutex; the rest any.
#pragma once

#include <volk.h>

#include <cfenv>
#include <csignal>
#include <vector>

#include "adapter.hpp"
#include "loader.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

// 1 MiB takes 33 us at the 31.5 GB/s of PCIe 4 x16. The way to another VkQueue and back costs two
// semaphores, which must be little beside that; how little was not measured on a GPU.
constexpr uint64_t kTransferLeastBytes = uint64_t{1} << 20;

struct Context {
    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context() { close(); }

    // Once.
    quire_status open(const Adapter &chosen, quire_error *error);
    void close();

    // Buffers are shared by the families of these two.
    bool has_two_families() const {
        return transfer != VK_NULL_HANDLE && adapter.transfer_family != adapter.family;
    }

    VkResult submit(VkQueue to, const VkSubmitInfo2 *info, VkFence fence) const;
    // Returns when what was submitted to these, by whomever, has run and the driver has let go of
    // it; nobody is kept from submitting meanwhile.
    void wait_idle(const std::vector<VkQueue> &queues);
    // Takes copies of so many bytes to this VkQueue of the adapter's transfer family.
    void take_transfer(VkQueue to, uint64_t least_bytes);

    const Instance &instance() const { return hold.instance(); }

    InstanceHold hold;
    Adapter adapter;
    VkDevice handle = VK_NULL_HANDLE;
    VolkDeviceTable vk{};
    VkQueue queue = VK_NULL_HANDLE;
    VkQueue transfer = VK_NULL_HANDLE;  // there may be none
    uint64_t transfer_least_bytes = 0;  // of a call that is worth the way there and back
    bool imports_host = false;          // VK_EXT_external_memory_host is enabled
    FragmentChoice fragments;           // of attention's kernels
    bool is_engines = false;            // it stays when the context is closed
    void (*lock)(void *user, void *queue) = nullptr;
    void (*unlock)(void *user, void *queue) = nullptr;
    void *lock_user = nullptr;
};

// While it lives this thread's signals are blocked and its floating-point environment is the
// default: threads that a driver starts meanwhile inherit both. Only around calls of the driver:
// who waits for something else must hear signals.
class DriverThreads {
 public:
    DriverThreads();
    DriverThreads(const DriverThreads &) = delete;
    DriverThreads &operator=(const DriverThreads &) = delete;
    ~DriverThreads();

 private:
    sigset_t signals_;
    fenv_t environment_;
};

}  // namespace quire::vulkan
