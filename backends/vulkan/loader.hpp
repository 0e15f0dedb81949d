// SPDX-License-Identifier: Apache-2.0
//
// loader: libvulkan, found when it is first asked for, the one VkInstance of the process, and the
// functions of an instance, which may be an engine's own.
//
// Why tables and not volk's global functions: an engine's instance may come of another loader.
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

#include <string>

#include "quire/plugin/backend.h"

#define QUIRE_VULKAN_INSTANCE_FUNCTIONS(FUNCTION)  \
    FUNCTION(vkCreateDevice)                       \
    FUNCTION(vkEnumerateDeviceExtensionProperties) \
    FUNCTION(vkEnumeratePhysicalDevices)           \
    FUNCTION(vkGetDeviceProcAddr)                  \
    FUNCTION(vkGetPhysicalDeviceFeatures2)         \
    FUNCTION(vkGetPhysicalDeviceMemoryProperties)  \
    FUNCTION(vkGetPhysicalDeviceMemoryProperties2) \
    FUNCTION(vkGetPhysicalDeviceProperties)        \
    FUNCTION(vkGetPhysicalDeviceProperties2)       \
    FUNCTION(vkGetPhysicalDeviceQueueFamilyProperties)

namespace quire::vulkan {

// An instance and what is called on it.
struct Instance {
    VkInstance handle = VK_NULL_HANDLE;
#define QUIRE_VULKAN_MEMBER(name) PFN_##name name = nullptr;
    QUIRE_VULKAN_INSTANCE_FUNCTIONS(QUIRE_VULKAN_MEMBER)
#undef QUIRE_VULKAN_MEMBER

    // A function of an extension; NULL: there is none.
    PFN_vkVoidFunction find(const char *name) const { return entry_(handle, name); }
    // The name of a function that is not there; NULL: all are.
    const char *load(PFN_vkGetInstanceProcAddr entry, VkInstance of);
    // Volk's functions of a device of the instance.
    void load_device(VkDevice device, VolkDeviceTable *table) const;

 private:
    PFN_vkGetInstanceProcAddr entry_ = nullptr;
};

// Holds the process's instance; it is there for as long as one of these holds it.
class InstanceHold {
 public:
    InstanceHold() = default;
    InstanceHold(const InstanceHold &) = delete;
    InstanceHold &operator=(const InstanceHold &) = delete;
    ~InstanceHold() { release(); }

    // QUIRE_OK without a handle: there is no Vulkan on this machine, or no driver; why_none() says.
    quire_status acquire(quire_error *error);
    // Holds an engine's instance in its place, which is there as long as the engine says.
    quire_status adopt(PFN_vkGetInstanceProcAddr entry, VkInstance engines, quire_error *error);
    void release();
    // Without a handle where there is none.
    const Instance &instance() const { return instance_; }
    // Why there is no instance, in words.
    const std::string &why_none() const { return why_none_; }

 private:
    Instance instance_;
    bool is_engines_ = false;
    std::string why_none_;
};

// A variable of the environment; NULL where it is not set, empty, or not to be believed.
const char *environment(const char *name);

// Fails with what a Vulkan call returned.
quire_status fail_vulkan(quire_error *error, VkResult result, const char *what);

}  // namespace quire::vulkan
