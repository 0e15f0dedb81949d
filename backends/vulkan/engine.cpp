// SPDX-License-Identifier: Apache-2.0

#include "engine.hpp"

#include <cinttypes>

#include "shared/checks.hpp"

namespace quire::vulkan {

namespace {

struct Named {
    uint64_t feature;
    const char *name;
};

constexpr Named kFeatures[] = {
    {QUIRE_VULKAN_SHADER_INT64, "shaderInt64"},
    {QUIRE_VULKAN_SHADER_INT16, "shaderInt16"},
    {QUIRE_VULKAN_STORAGE_16BIT, "storageBuffer16BitAccess"},
    {QUIRE_VULKAN_STORAGE_8BIT, "storageBuffer8BitAccess"},
    {QUIRE_VULKAN_SHADER_INT8, "shaderInt8"},
    {QUIRE_VULKAN_BUFFER_DEVICE_ADDRESS, "bufferDeviceAddress"},
    {QUIRE_VULKAN_TIMELINE_SEMAPHORE, "timelineSemaphore"},
    {QUIRE_VULKAN_SCALAR_BLOCK_LAYOUT, "scalarBlockLayout"},
    {QUIRE_VULKAN_SYNCHRONIZATION2, "synchronization2"},
    {QUIRE_VULKAN_MAINTENANCE4, "maintenance4"},
};

quire_status check_handles(const quire_vulkan_device &given, quire_error *error) {
    const struct {
        bool is_there;
        const char *name;
    } handles[] = {{given.instance != nullptr, "instance"},
                   {given.physical_device != nullptr, "physical_device"},
                   {given.device != nullptr, "device"},
                   {given.get_instance_proc_addr != nullptr, "get_instance_proc_addr"},
                   {given.queue != nullptr, "queue"}};
    for (const auto &one : handles) {
        if (one.is_there) continue;
        return fail(error, QUIRE_E_ARG, "quire_vulkan_device.%s is NULL", one.name);
    }
    if ((given.lock == nullptr) != (given.unlock == nullptr)) {
        return fail(error, QUIRE_E_ARG, "lock and unlock must be given together");
    }
    return QUIRE_OK;
}

quire_status check_features(uint64_t features, quire_error *error) {
    for (const Named &one : kFeatures) {
        if ((features & one.feature) != 0) continue;
        return fail(
            error, QUIRE_E_UNSUPPORTED,
            "quire_vulkan_device.features lacks %s: create the VkDevice with it and set its bit",
            one.name);
    }
    constexpr uint64_t kKnown =
        uint64_t{QUIRE_VULKAN_NEEDED_FEATURES} | QUIRE_VULKAN_EXTERNAL_MEMORY_HOST;
    uint64_t unknown = features & ~kKnown;
    if (unknown == 0) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "features contain unknown bits 0x%" PRIx64, unknown);
}

// Checks functions that a VkDevice has if its instance was made for Vulkan 1.3.
quire_status check_functions(const VolkDeviceTable &vk, quire_error *error) {
    if (vk.vkQueueSubmit2 != nullptr && vk.vkCmdPipelineBarrier2 != nullptr &&
        vk.vkGetBufferDeviceAddress != nullptr && vk.vkWaitSemaphores != nullptr) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_UNSUPPORTED,
                "the VkDevice lacks Vulkan 1.3 functions: create its instance with apiVersion 1.3");
}

// Checks the function of the extension that the engine claims to have enabled.
quire_status check_import(const VolkDeviceTable &vk, uint64_t features, quire_error *error) {
    bool is_said = (features & QUIRE_VULKAN_EXTERNAL_MEMORY_HOST) != 0;
    if (!is_said || vk.vkGetMemoryHostPointerPropertiesEXT != nullptr) return QUIRE_OK;
    return fail(
        error, QUIRE_E_UNSUPPORTED,
        "quire_vulkan_device.features has QUIRE_VULKAN_EXTERNAL_MEMORY_HOST, but the VkDevice "
        "lacks VK_EXT_external_memory_host: enable the extension or clear the bit");
}

struct QueueId {
    uint64_t family, index;
};

// Checks that the handle is the queue at that id.
quire_status check_queue(const Context &context, const void *queue, QueueId id, const char *name,
                         quire_error *error) {
    const auto &families = context.adapter.families;
    if (id.family >= families.size()) {
        return fail(error, QUIRE_E_ARG,
                    "%s: family %" PRIu64 " does not exist; the device has %zu families", name,
                    id.family, families.size());
    }
    if (id.index >= families[id.family].queueCount) {
        return fail(error, QUIRE_E_ARG,
                    "%s: queue %" PRIu64 " of family %" PRIu64
                    " does not exist; the family has %u queues",
                    name, id.index, id.family, families[id.family].queueCount);
    }
    VkQueue found = VK_NULL_HANDLE;
    context.vk.vkGetDeviceQueue(context.handle, static_cast<uint32_t>(id.family),
                                static_cast<uint32_t>(id.index), &found);
    if (found == queue) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "%s is not queue %" PRIu64 " of family %" PRIu64, name,
                id.index, id.family);
}

quire_status no_engine(quire_error *error) {
    return fail(error, QUIRE_E_UNSUPPORTED,
                "this device uses the library's own VkDevice, so engine objects cannot be used "
                "with it: open it with a quire_vulkan_device");
}

quire_status borrow_transfer(const quire_vulkan_device &given, Context *context,
                             quire_error *error) {
    context->adapter.transfer_family = UINT32_MAX;
    if (given.transfer_queue == nullptr) return QUIRE_OK;
    QueueId id = {given.transfer_family, given.transfer_index};
    if (quire_status status =
            check_queue(*context, given.transfer_queue, id, "transfer_queue", error)) {
        return status;
    }
    // A family that computes can also copy, and need not say so.
    constexpr VkQueueFlags kCopies =
        VK_QUEUE_TRANSFER_BIT | VK_QUEUE_COMPUTE_BIT | VK_QUEUE_GRAPHICS_BIT;
    if ((context->adapter.families[given.transfer_family].queueFlags & kCopies) == 0) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "transfer_queue belongs to family %u, which does not support copies",
                    given.transfer_family);
    }
    context->adapter.transfer_family = given.transfer_family;
    context->take_transfer(static_cast<VkQueue>(given.transfer_queue), kTransferLeastBytes);
    return QUIRE_OK;
}

}  // namespace

quire_status borrow_device(const quire_vulkan_device &given, Context *context, quire_error *error) {
    if (quire_status status = check_handles(given, error)) return status;
    if (quire_status status = check_features(given.features, error)) return status;
    auto entry = reinterpret_cast<PFN_vkGetInstanceProcAddr>(given.get_instance_proc_addr);
    auto instance = static_cast<VkInstance>(given.instance);
    if (quire_status status = context->hold.borrow(entry, instance, error)) return status;
    auto physical = static_cast<VkPhysicalDevice>(given.physical_device);
    Adapter adapter;
    if (!find_adapter(context->instance(), physical, &adapter)) {
        return fail(error, QUIRE_E_ARG, "physical_device does not belong to the instance");
    }
    if (!adapter.is_usable()) {
        return fail(error, QUIRE_E_UNSUPPORTED, "the VkDevice cannot be used: %s", adapter.lacks);
    }
    context->adapter = adapter;
    context->is_engines = true;
    // Which cooperative matrices it enabled is unknown, so only kernels without them are used.
    context->fragments =
        choose_fragments(adapter.matrix, MatrixExtension::none, environment("QUIRE_VULKAN_MATRIX"));
    context->imports_host =
        adapter.has_host_import && (given.features & QUIRE_VULKAN_EXTERNAL_MEMORY_HOST) != 0;
    context->handle = static_cast<VkDevice>(given.device);
    context->instance().load_device(context->handle, &context->vk);
    if (quire_status status = check_functions(context->vk, error)) return status;
    if (quire_status status = check_import(context->vk, given.features, error)) return status;
    QueueId id = {given.queue_family, given.queue_index};
    if (quire_status status = check_queue(*context, given.queue, id, "queue", error)) {
        return status;
    }
    if ((adapter.families[given.queue_family].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "queue belongs to family %u, which does not support compute",
                    given.queue_family);
    }
    context->adapter.family = given.queue_family;
    context->queue = static_cast<VkQueue>(given.queue);
    if (quire_status status = borrow_transfer(given, context, error)) return status;
    context->lock = given.lock;
    context->unlock = given.unlock;
    context->lock_user = given.lock_user;
    return context->choose_memory(error);
}

quire_status find_native_queue(const Context &context, const quire_native &native, VkQueue *queue,
                               quire_error *error) {
    if (native.kind != QUIRE_NATIVE_VULKAN_QUEUE) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "native kind %u is not a queue that this backend supports; use "
                    "QUIRE_NATIVE_VULKAN_QUEUE or QUIRE_NATIVE_NONE",
                    native.kind);
    }
    if (!context.is_engines) return no_engine(error);
    if (native.value == 0) return fail(error, QUIRE_E_ARG, "the VkQueue is NULL");
    if (native.aux0 != context.adapter.family) {
        return fail(error, QUIRE_E_ARG,
                    "the VkQueue belongs to family %" PRIu64
                    "; bind one of family %u, which the device was opened with",
                    native.aux0, context.adapter.family);
    }
    auto given = reinterpret_cast<VkQueue>(native.value);
    QueueId id = {native.aux0, native.aux1};
    if (quire_status status = check_queue(context, given, id, "the VkQueue", error)) {
        return status;
    }
    *queue = given;
    return QUIRE_OK;
}

quire_status find_native_semaphore(const Context &context, const quire_native *native,
                                   VkSemaphoreSubmitInfo *info, quire_error *error) {
    if (native == nullptr) return fail(error, QUIRE_E_ARG, "native is NULL");
    if (native->kind != QUIRE_NATIVE_VULKAN_SEMAPHORE) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "native kind %u is not a semaphore that this backend supports; use "
                    "QUIRE_NATIVE_VULKAN_SEMAPHORE",
                    native->kind);
    }
    if (!context.is_engines) return no_engine(error);
    if (native->value == 0) return fail(error, QUIRE_E_ARG, "the VkSemaphore is NULL");
    if (native->aux1 != 0) {
        return fail(error, QUIRE_E_STRUCT,
                    "aux1 of a QUIRE_NATIVE_VULKAN_SEMAPHORE is %" PRIu64 "; it must be 0",
                    native->aux1);
    }
    info->sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    info->semaphore = reinterpret_cast<VkSemaphore>(native->value);
    info->value = native->aux0;
    info->stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    return QUIRE_OK;
}

}  // namespace quire::vulkan
