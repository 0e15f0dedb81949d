// SPDX-License-Identifier: Apache-2.0
//
// context: a VkDevice, its functions and the VkQueue that work is submitted to.
//
// The VkDevice is ours or an engine's (engine.hpp). The engine also submits to its VkQueues; its
// lock keeps the two apart.
//
// Why one VkQueue: timelines keep our queues in order, and a queue that waits for work not yet
// submitted is held on the host (queue.hpp), so none blocks another. A second VkQueue comes from a
// family that only copies, if there is one: large copies between host and device (transfer.hpp)
// then leave the first to the kernels of other queues.
//
// Environment  QUIRE_VULKAN_TRANSFER  0: no VkQueue for copies alone; same: the first one stands in
//              for it and takes every copy between host and device, so that a device with no other
//              one runs the same code.
//              QUIRE_VULKAN_IMPORT  0: host memory is not imported but goes through the ring
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

// 1 MiB takes 33 us at the 31.5 GB/s of PCIe 4 x16. Switching to another VkQueue and back costs two
// semaphores, which must be cheap compared with that; how cheap was not measured on a GPU.
constexpr uint64_t kTransferLeastBytes = uint64_t{1} << 20;

struct Context {
    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context() { close(); }

    // Call once.
    quire_status open(const Adapter &chosen, quire_error *error);
    void close();

    // True if buffers are shared by two queue families.
    bool has_two_families() const {
        return transfer != VK_NULL_HANDLE && adapter.transfer_family != adapter.family;
    }

    // Leaves the adapter memory types that the VkDevice's buffers may have. Call once both VkQueues
    // are known.
    quire_status choose_memory(quire_error *error);
    VkResult submit(VkQueue to, const VkSubmitInfo2 *info, VkFence fence) const;
    // Returns once everything submitted to these, by anyone, has run and the driver has released
    // it; other threads may go on submitting meanwhile.
    void wait_idle(const std::vector<VkQueue> &queues);
    // Sends copies of at least this many bytes to this VkQueue of the adapter's transfer family.
    void take_transfer(VkQueue to, uint64_t least_bytes);

    const Instance &instance() const { return hold.instance(); }

    InstanceHold hold;
    Adapter adapter;
    VkDevice handle = VK_NULL_HANDLE;
    VolkDeviceTable vk{};
    VkQueue queue = VK_NULL_HANDLE;
    VkQueue transfer = VK_NULL_HANDLE;  // NULL if there is none
    uint64_t transfer_least_bytes = 0;  // of a call that is worth switching VkQueues for
    bool imports_host = false;          // VK_EXT_external_memory_host is enabled
    FragmentChoice fragments;           // which of attention's kernels
    bool is_engines = false;            // closing the context does not destroy it
    void (*lock)(void *user, void *queue) = nullptr;
    void (*unlock)(void *user, void *queue) = nullptr;
    void *lock_user = nullptr;
};

// While it lives, this thread's signals are blocked and its floating-point environment is the
// default, since threads that a driver starts inherit both. Use it only around driver calls: a
// thread that waits for something else must receive signals.
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
