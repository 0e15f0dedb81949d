// SPDX-License-Identifier: Apache-2.0
//
// adapter: the physical devices of this machine, and which of them can be used.
//
// Order: discrete GPUs, integrated, virtual, processors; within a kind as the loader lists them. An
// adapter that cannot be used has a number too, so that opening it reports what it lacks.
// QUIRE_VULKAN_DEVICE selects the one with that UUID (32 hexadecimal digits, hyphens optional).
//
// Threads: any; an adapter is constant.
#pragma once

#include <volk.h>

#include <vector>

#include "fragments.hpp"
#include "loader.hpp"
#include "quire/plugin/backend.h"

namespace quire::vulkan {

struct Adapter {
    VkPhysicalDevice handle = VK_NULL_HANDLE;
    VkPhysicalDeviceProperties properties{};
    VkPhysicalDeviceMemoryProperties memory{};
    uint64_t max_allocation_bytes = 0;  // of one buffer
    uint64_t divide_bytes = 0;  // that, or less if QUIRE_VULKAN_MAX_ALLOCATION says so (memory.hpp)
    uint8_t uuid[VK_UUID_SIZE] = {};
    std::vector<VkQueueFamilyProperties> families;  // of queues
    uint32_t family = 0;                            // one that supports compute
    uint32_t transfer_family = UINT32_MAX;          // one that only copies; UINT32_MAX: none
    uint32_t device_memory_type = 0;
    uint32_t host_memory_type = 0;
    bool has_memory_budget = false;
    bool has_host_import = false;
    uint64_t import_alignment = 0;  // of host memory, if it can be imported
    MatrixOffer matrix;
    char lacks[160] = {};  // why it cannot be used; empty: it can

    // Chooses device_memory_type and host_memory_type among these; UINT32_MAX: none.
    void choose_memory(uint32_t types);
    // A host-coherent type among these, cached if there is one; UINT32_MAX: none.
    uint32_t coherent_type(uint32_t types) const;
    bool is_usable() const { return lacks[0] == 0; }
    uint32_t heap_of(uint32_t memory_type) const {
        return memory.memoryTypes[memory_type].heapIndex;
    }
};

quire_status list_adapters(const Instance &vulkan, std::vector<Adapter> *adapters,
                           quire_error *error);

// Finds an adapter of an engine's instance; false: the handle is none of its physical devices.
bool find_adapter(const Instance &vulkan, VkPhysicalDevice handle, Adapter *adapter);

// The features that a device is created with: those that the kernels and the host code need.
struct Features {
    Features();
    Features(const Features &) = delete;
    Features &operator=(const Features &) = delete;

    VkPhysicalDeviceFeatures2 head{};  // begins a chain of the others
    VkPhysicalDeviceVulkan11Features v11{};
    VkPhysicalDeviceVulkan12Features v12{};
    VkPhysicalDeviceVulkan13Features v13{};
};

}  // namespace quire::vulkan
