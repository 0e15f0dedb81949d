// SPDX-License-Identifier: Apache-2.0
//
// loader: loads libvulkan at first use, and holds the process's one VkInstance and the functions of
// an instance, which may be an engine's own.
//
// Why tables and not volk's global functions: an engine's instance may come from another loader.
//
// Why one instance: drivers are loaded and devices enumerated once for all users. The instance is
// destroyed with its last holder, so that a process which has closed its devices is as it was
// before.
//
// Environment (ignored in a privileged process)
//   QUIRE_VULKAN_LIBRARY     a file to open instead of libvulkan.so.1
//   QUIRE_VULKAN_VALIDATION  1: with the Khronos validation layer, including synchronisation
//                            validation. A validation message is written to stderr and ends the
//                            process, so that no test can overlook it.
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

// An instance and its functions.
struct Instance {
    VkInstance handle = VK_NULL_HANDLE;
#define QUIRE_VULKAN_MEMBER(name) PFN_##name name = nullptr;
    QUIRE_VULKAN_INSTANCE_FUNCTIONS(QUIRE_VULKAN_MEMBER)
#undef QUIRE_VULKAN_MEMBER

    // A function of an extension; NULL if it does not exist.
    PFN_vkVoidFunction find(const char *name) const { return entry_(handle, name); }
    // The name of a function that is missing; NULL: none is.
    const char *load(PFN_vkGetInstanceProcAddr entry, VkInstance of);
    // Loads volk's functions for a device of the instance.
    void load_device(VkDevice device, VolkDeviceTable *table) const;

 private:
    PFN_vkGetInstanceProcAddr entry_ = nullptr;
};

// Holds the process's instance, which exists as long as any hold does.
class InstanceHold {
 public:
    InstanceHold() = default;
    InstanceHold(const InstanceHold &) = delete;
    InstanceHold &operator=(const InstanceHold &) = delete;
    ~InstanceHold() { release(); }

    // QUIRE_OK without a handle: this machine has no Vulkan, or no driver; why_none() says which.
    quire_status acquire(quire_error *error);
    // Holds an engine's instance instead; the engine decides how long that exists.
    quire_status borrow(PFN_vkGetInstanceProcAddr entry, VkInstance engines, quire_error *error);
    void release();
    // Its handle is NULL if there is no instance.
    const Instance &instance() const { return instance_; }
    // Why there is no instance, in words.
    const std::string &why_none() const { return why_none_; }

 private:
    Instance instance_;
    bool is_engines_ = false;
    std::string why_none_;
};

// An environment variable; NULL if it is unset, empty, or the process is privileged.
const char *environment(const char *name);

// Fails with the result of a Vulkan call.
quire_status fail_vulkan(quire_error *error, VkResult result, const char *what);

}  // namespace quire::vulkan
