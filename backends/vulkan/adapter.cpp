// SPDX-License-Identifier: Apache-2.0

#include "adapter.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "loader.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

Features::Features() {
    head.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    head.pNext = &v11;
    v11.pNext = &v12;
    v12.pNext = &v13;
}

namespace {

constexpr uint32_t kNone = UINT32_MAX;
// What kernels/attend.comp needs; its queries take 18 KiB.
constexpr uint32_t kSharedBytes = 24 << 10;

struct Wanted {
    VkBool32 has;
    const char *name;
};

// Reports the first thing that is missing.
void find_lack(Adapter *adapter, const Features &f) {
    const Wanted wanted[] = {
        {adapter->properties.apiVersion >= VK_API_VERSION_1_3, "Vulkan 1.3"},
        {adapter->family != kNone, "a compute queue family"},
        {adapter->device_memory_type != kNone, "device-local memory"},
        {adapter->host_memory_type != kNone, "host-coherent memory"},
        {adapter->properties.limits.maxComputeSharedMemorySize >= kSharedBytes,
         "24 KiB of shared memory per workgroup"},
        {f.head.features.shaderInt64, "shaderInt64"},
        {f.head.features.shaderInt16, "shaderInt16"},
        {f.v11.storageBuffer16BitAccess, "storageBuffer16BitAccess"},
        {f.v12.storageBuffer8BitAccess, "storageBuffer8BitAccess"},
        {f.v12.shaderInt8, "shaderInt8"},
        {f.v12.bufferDeviceAddress, "bufferDeviceAddress"},
        {f.v12.timelineSemaphore, "timelineSemaphore"},
        {f.v12.scalarBlockLayout, "scalarBlockLayout"},
        {f.v13.synchronization2, "synchronization2"},
        {f.v13.maintenance4, "maintenance4"},
    };
    for (const Wanted &one : wanted) {
        if (one.has) continue;
        std::snprintf(adapter->lacks, sizeof adapter->lacks, "%.80s lacks %s, which is required",
                      adapter->properties.deviceName, one.name);
        return;
    }
}

// The first family that has all of `wanted` and nothing of `avoided`.
uint32_t family_of(const Adapter &adapter, VkQueueFlags wanted, VkQueueFlags avoided) {
    for (uint32_t i = 0; i < adapter.families.size(); ++i) {
        VkQueueFlags flags = adapter.families[i].queueFlags;
        if ((flags & wanted) == wanted && (flags & avoided) == 0) return i;
    }
    return kNone;
}

void find_families(const Instance &vulkan, Adapter *adapter) {
    uint32_t count = 0;
    vulkan.vkGetPhysicalDeviceQueueFamilyProperties(adapter->handle, &count, nullptr);
    adapter->families.resize(count);
    vulkan.vkGetPhysicalDeviceQueueFamilyProperties(adapter->handle, &count,
                                                    adapter->families.data());
    // The one that draws too is where a desktop's frames wait for our kernels, so it comes last.
    constexpr VkQueueFlags kAny = 0;
    adapter->family = family_of(*adapter, VK_QUEUE_COMPUTE_BIT, VK_QUEUE_GRAPHICS_BIT);
    if (adapter->family == kNone) {
        adapter->family = family_of(*adapter, VK_QUEUE_COMPUTE_BIT, kAny);
    }
    adapter->transfer_family =
        family_of(*adapter, VK_QUEUE_TRANSFER_BIT, VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT);
}

constexpr VkMemoryPropertyFlags kCoherent =
    VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;

// The first of `types` that has all of `wanted`; if there are several, one that has `liked` too.
uint32_t find_type(const VkPhysicalDeviceMemoryProperties &memory, uint32_t types,
                   VkMemoryPropertyFlags wanted, VkMemoryPropertyFlags liked) {
    uint32_t found = kNone;
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
        if ((types >> i & 1u) == 0) continue;
        VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
        if ((flags & wanted) != wanted) continue;
        if ((flags & liked) == liked) return i;
        if (found == kNone) found = i;
    }
    return found;
}

void find_memory(const Instance &vulkan, Adapter *adapter) {
    vulkan.vkGetPhysicalDeviceMemoryProperties(adapter->handle, &adapter->memory);
    adapter->choose_memory(UINT32_MAX);
}

bool has_extension(const Instance &vulkan, VkPhysicalDevice handle, const char *name) {
    uint32_t count = 0;
    vulkan.vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, nullptr);
    std::vector<VkExtensionProperties> extensions(count);
    vulkan.vkEnumerateDeviceExtensionProperties(handle, nullptr, &count, extensions.data());
    return std::any_of(extensions.begin(), extensions.end(), [name](const auto &one) {
        return std::strcmp(one.extensionName, name) == 0;
    });
}

// Chunks of a divided allocation are a power of two, and no smaller than this.
constexpr uint64_t kLeastAllocationBytes = uint64_t{64} << 10;

uint64_t lowered(uint64_t limit_bytes) {
    const char *given = environment("QUIRE_VULKAN_MAX_ALLOCATION");
    if (given == nullptr) return limit_bytes;
    uint64_t asked_bytes = std::strtoull(given, nullptr, 10);
    return std::min(limit_bytes, std::max(asked_bytes, kLeastAllocationBytes));
}

void find_import(const Instance &vulkan, Adapter *adapter) {
    adapter->has_host_import =
        has_extension(vulkan, adapter->handle, VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    if (!adapter->has_host_import) return;
    VkPhysicalDeviceExternalMemoryHostPropertiesEXT host{};
    host.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
    VkPhysicalDeviceProperties2 all{};
    all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    all.pNext = &host;
    vulkan.vkGetPhysicalDeviceProperties2(adapter->handle, &all);
    adapter->import_alignment = host.minImportedHostPointerAlignment;
}

Adapter describe(const Instance &vulkan, VkPhysicalDevice handle) {
    Adapter adapter;
    adapter.handle = handle;
    vulkan.vkGetPhysicalDeviceProperties(handle, &adapter.properties);
    find_families(vulkan, &adapter);
    find_memory(vulkan, &adapter);
    Features features;
    if (adapter.properties.apiVersion >= VK_API_VERSION_1_3) {
        VkPhysicalDeviceMaintenance4Properties v13{};
        v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES;
        VkPhysicalDeviceVulkan11Properties v11{};
        v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES;
        v11.pNext = &v13;
        VkPhysicalDeviceProperties2 all{};
        all.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
        all.pNext = &v11;
        vulkan.vkGetPhysicalDeviceProperties2(handle, &all);
        std::memcpy(adapter.uuid, v11.deviceUUID, sizeof adapter.uuid);
        adapter.max_allocation_bytes = std::min(v11.maxMemoryAllocationSize, v13.maxBufferSize);
        adapter.divide_bytes = lowered(adapter.max_allocation_bytes);
        vulkan.vkGetPhysicalDeviceFeatures2(handle, &features.head);
        find_import(vulkan, &adapter);
        adapter.has_memory_budget =
            has_extension(vulkan, handle, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
        MatrixExtension built = built_extension();
        if (built != MatrixExtension::none && has_extension(vulkan, handle, name_of(built))) {
            adapter.matrix = find_matrix_offer(vulkan, handle, built);
        }
        adapter.matrix.shared_bytes = adapter.properties.limits.maxComputeSharedMemorySize;
    }
    find_lack(&adapter, features);
    return adapter;
}

uint32_t rank(const Adapter &adapter) {
    switch (adapter.properties.deviceType) {
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
            return 0;
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
            return 1;
        case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
            return 2;
        default:
            return 3;
    }
}

std::string digits_of(const Adapter &adapter) {
    std::string digits;
    for (uint8_t byte : adapter.uuid) {
        char two[3];
        std::snprintf(two, sizeof two, "%02x", unsigned{byte});
        digits += two;
    }
    return digits;
}

void keep_named(std::vector<Adapter> *adapters) {
    const char *given = environment("QUIRE_VULKAN_DEVICE");
    if (given == nullptr) return;
    std::string wanted;
    for (const char *at = given; *at != 0; ++at) {
        if (*at != '-') wanted += static_cast<char>(std::tolower(static_cast<unsigned char>(*at)));
    }
    std::erase_if(*adapters, [&](const Adapter &one) { return digits_of(one) != wanted; });
}

}  // namespace

uint32_t Adapter::coherent_type(uint32_t types) const {
    return find_type(memory, types, kCoherent, VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
}

void Adapter::choose_memory(uint32_t types) {
    device_memory_type = find_type(memory, types, VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0);
    host_memory_type = coherent_type(types);
}

bool find_adapter(const Instance &vulkan, VkPhysicalDevice handle, Adapter *adapter) {
    uint32_t count = 0;
    if (vulkan.vkEnumeratePhysicalDevices(vulkan.handle, &count, nullptr) < 0) return false;
    std::vector<VkPhysicalDevice> handles(count);
    if (vulkan.vkEnumeratePhysicalDevices(vulkan.handle, &count, handles.data()) < 0) return false;
    if (std::find(handles.begin(), handles.end(), handle) == handles.end()) return false;
    *adapter = describe(vulkan, handle);
    return true;
}

quire_status list_adapters(const Instance &vulkan, std::vector<Adapter> *adapters,
                           quire_error *error) {
    adapters->clear();
    if (vulkan.handle == VK_NULL_HANDLE) return QUIRE_OK;
    uint32_t count = 0;
    VkResult result = vulkan.vkEnumeratePhysicalDevices(vulkan.handle, &count, nullptr);
    std::vector<VkPhysicalDevice> handles(count);
    if (result == VK_SUCCESS && count != 0) {
        result = vulkan.vkEnumeratePhysicalDevices(vulkan.handle, &count, handles.data());
    }
    if (result < 0) return fail_vulkan(error, result, "to list its devices");
    for (VkPhysicalDevice handle : handles) adapters->push_back(describe(vulkan, handle));
    keep_named(adapters);
    std::stable_sort(adapters->begin(), adapters->end(),
                     [](const Adapter &a, const Adapter &b) { return rank(a) < rank(b); });
    return QUIRE_OK;
}

}  // namespace quire::vulkan
