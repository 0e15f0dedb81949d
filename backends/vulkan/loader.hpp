// SPDX-License-Identifier: Apache-2.0
//
// loader: libvulkan, found when it is first asked for, and the one VkInstance of the process.
//
// Why one instance: drivers are loaded and devices enumerated once for all who open one. It goes
// with the last who holds it, so that a process which has closed its devices is as it was.
//
// Environment (none of it is believed in a privileged process)
//   QUIRE_VULKAN_LIBRARY     another file than libvulkan.so.1
//   QUIRE_VULKAN_VALIDATION  1: with the Khronos validation layer, synchronisation validation too.
//                            A message of it is written to stderr and ends the process, so that no
//                            test can pass over one.
//
// Threads: any.
#pragma once

#include <volk.h>

#include "quire/plugin/backend.h"

namespace quire::vulkan {

// Holds the process's instance; it is there for as long as one of these holds it.
class InstanceHold {
 public:
    InstanceHold() = default;
    InstanceHold(const InstanceHold &) = delete;
    InstanceHold &operator=(const InstanceHold &) = delete;
    ~InstanceHold() { release(); }

    // QUIRE_OK without a handle: there is no Vulkan on this machine, or no driver.
    quire_status acquire(quire_error *error);
    void release();
    VkInstance handle() const { return handle_; }

 private:
    VkInstance handle_ = VK_NULL_HANDLE;
};

// A variable of the environment; NULL where it is not set, empty, or not to be believed.
const char *environment(const char *name);

// Fails with what a Vulkan call returned.
quire_status fail_vulkan(quire_error *error, VkResult result, const char *what);

}  // namespace quire::vulkan
