// SPDX-License-Identifier: Apache-2.0
//
// context: a VkDevice, its functions and the VkQueue that work is submitted to.
//
// The VkDevice is ours or an engine's (engine.hpp), which then submits to its VkQueues itself; a
// lock of the engine's keeps the two apart.
//
// Why one VkQueue: our queues are kept in order by timelines of their own, and one that waits for
// what has not been submitted is held back on the host (queue.hpp), so none holds up another.
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

struct Context {
    Context() = default;
    Context(const Context &) = delete;
    Context &operator=(const Context &) = delete;
    ~Context() { close(); }

    // Once.
    quire_status open(const Adapter &chosen, quire_error *error);
    void close();

    VkResult submit(VkQueue to, const VkSubmitInfo2 *info, VkFence fence) const;
    // Returns when what was submitted to these, by whomever, has run and the driver has let go of
    // it; nobody is kept from submitting meanwhile.
    void wait_idle(const std::vector<VkQueue> &queues);

    const Instance &instance() const { return hold.instance(); }

    InstanceHold hold;
    Adapter adapter;
    VkDevice handle = VK_NULL_HANDLE;
    VolkDeviceTable vk{};
    VkQueue queue = VK_NULL_HANDLE;
    bool is_engines = false;  // it stays when the context is closed
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
