// SPDX-License-Identifier: Apache-2.0

#include "context.hpp"

#include <pthread.h>

#include <cstring>

#include "buffer.hpp"
#include "shared/checks.hpp"

namespace quire::vulkan {

DriverThreads::DriverThreads() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &signals_);
    std::fegetenv(&environment_);
    std::fesetenv(FE_DFL_ENV);
}

DriverThreads::~DriverThreads() {
    std::fesetenv(&environment_);
    pthread_sigmask(SIG_SETMASK, &signals_, nullptr);
}

void Context::close() {
    if (handle != VK_NULL_HANDLE && !is_engines) vk.vkDestroyDevice(handle, nullptr);
    handle = VK_NULL_HANDLE;
    hold.release();
}

VkResult Context::submit(VkQueue to, const VkSubmitInfo2 *info, VkFence fence) const {
    if (lock != nullptr) lock(lock_user, to);
    VkResult result = VK_SUCCESS;
    {
        DriverThreads threads;
        result = vk.vkQueueSubmit2(to, info != nullptr ? 1 : 0, info, fence);
    }
    if (unlock != nullptr) unlock(lock_user, to);
    return result;
}

void Context::wait_idle(const std::vector<VkQueue> &queues) {
    if (!is_engines) {
        vk.vkDeviceWaitIdle(handle);
        return;
    }
    // The device's other VkQueues are not ours to wait for, and vkQueueWaitIdle would need the
    // engine's lock for the whole wait. So a fence is submitted after everything, and waited for.
    VkFenceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
    for (VkQueue one : queues) {
        VkFence fence = VK_NULL_HANDLE;
        if (vk.vkCreateFence(handle, &info, nullptr, &fence) != VK_SUCCESS) continue;
        if (submit(one, nullptr, fence) == VK_SUCCESS) {
            vk.vkWaitForFences(handle, 1, &fence, VK_TRUE, UINT64_MAX);
        } else {  // the device is lost: running work finishes soon, as Vulkan promises
            if (lock != nullptr) lock(lock_user, one);
            vk.vkQueueWaitIdle(one);
            if (unlock != nullptr) unlock(lock_user, one);
        }
        vk.vkDestroyFence(handle, fence, nullptr);
    }
}

void Context::take_transfer(VkQueue to, uint64_t least_bytes) {
    transfer = to;
    transfer_least_bytes = least_bytes;
}

quire_status Context::open(const Adapter &chosen, quire_error *error) {
    adapter = chosen;
    Features features;
    features.head.features.shaderInt64 = VK_TRUE;
    features.head.features.shaderInt16 = VK_TRUE;
    features.v11.storageBuffer16BitAccess = VK_TRUE;
    features.v12.storageBuffer8BitAccess = VK_TRUE;
    features.v12.shaderInt8 = VK_TRUE;
    features.v12.bufferDeviceAddress = VK_TRUE;
    features.v12.timelineSemaphore = VK_TRUE;
    features.v12.scalarBlockLayout = VK_TRUE;
    features.v13.synchronization2 = VK_TRUE;
    features.v13.maintenance4 = VK_TRUE;
    float priority = 1.0f;
    const char *asked = environment("QUIRE_VULKAN_TRANSFER");
    bool is_same = asked != nullptr && std::strcmp(asked, "same") == 0;
    bool is_off = asked != nullptr && std::strcmp(asked, "0") == 0;
    if (is_same || is_off) adapter.transfer_family = is_same ? adapter.family : UINT32_MAX;
    bool has_other = adapter.transfer_family != UINT32_MAX && !is_same;
    VkDeviceQueueCreateInfo queues[2] = {};
    for (VkDeviceQueueCreateInfo &one : queues) {
        one.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
        one.queueCount = 1;
        one.pQueuePriorities = &priority;
    }
    queues[0].queueFamilyIndex = adapter.family;
    queues[1].queueFamilyIndex = adapter.transfer_family;
    const char *import = environment("QUIRE_VULKAN_IMPORT");
    imports_host = adapter.has_host_import && (import == nullptr || std::strcmp(import, "0") != 0);
    std::vector<const char *> extensions;
    if (adapter.has_memory_budget) extensions.push_back(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    if (imports_host) {
        extensions.push_back(VK_EXT_EXTERNAL_MEMORY_HOST_EXTENSION_NAME);
    }
    fragments =
        choose_fragments(adapter.matrix, built_extension(), environment("QUIRE_VULKAN_MATRIX"));
    MatrixFeatures matrix(adapter.matrix.extension, nullptr);
    if (fragments.kind == FragmentKind::cooperative) {
        extensions.push_back(name_of(adapter.matrix.extension));
        features.v12.shaderFloat16 = VK_TRUE;
        features.v12.vulkanMemoryModel = VK_TRUE;
        features.v13.subgroupSizeControl = VK_TRUE;
        features.v13.computeFullSubgroups = VK_TRUE;
        features.v13.pNext = &matrix;
    }
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &features.head;
    info.queueCreateInfoCount = has_other ? 2 : 1;
    info.pQueueCreateInfos = queues;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    DriverThreads threads;
    if (VkResult result = instance().vkCreateDevice(adapter.handle, &info, nullptr, &handle)) {
        return fail_vulkan(error, result, "to create a device");
    }
    instance().load_device(handle, &vk);
    vk.vkGetDeviceQueue(handle, adapter.family, 0, &queue);
    if (is_same) take_transfer(queue, 0);
    if (has_other) {
        VkQueue copies = VK_NULL_HANDLE;
        vk.vkGetDeviceQueue(handle, adapter.transfer_family, 0, &copies);
        take_transfer(copies, kTransferLeastBytes);
    }
    return choose_memory(error);
}

quire_status Context::choose_memory(quire_error *error) {
    adapter.choose_memory(memory_types_of_buffers(*this));
    if (adapter.device_memory_type != UINT32_MAX && adapter.host_memory_type != UINT32_MAX) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_UNSUPPORTED,
                "%.80s lets storage buffers have no memory that is %s, which is required",
                adapter.properties.deviceName,
                adapter.host_memory_type == UINT32_MAX ? "host-coherent" : "device-local");
}

}  // namespace quire::vulkan
