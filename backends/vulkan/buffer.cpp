// SPDX-License-Identifier: Apache-2.0

#include "buffer.hpp"

#include "context.hpp"

namespace quire::vulkan {
namespace {

struct BufferInfo {
    BufferInfo(const Context &context, uint64_t size_bytes)
        : families{context.adapter.family, context.adapter.transfer_family} {
        info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
        info.size = size_bytes;
        info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                     VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
        info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
        if (!context.has_two_families()) return;
        info.sharingMode = VK_SHARING_MODE_CONCURRENT;
        info.queueFamilyIndexCount = 2;
        info.pQueueFamilyIndices = families;
    }
    BufferInfo(const BufferInfo &) = delete;
    BufferInfo &operator=(const BufferInfo &) = delete;

    uint32_t families[2];
    VkBufferCreateInfo info{};
};

}  // namespace

// They are the same for all buffers of the same usage (Vulkan 1.3, "Resource Memory Association").
uint32_t memory_types_of_buffers(const Context &context) {
    BufferInfo any(context, 1);
    VkDeviceBufferMemoryRequirements asked{};
    asked.sType = VK_STRUCTURE_TYPE_DEVICE_BUFFER_MEMORY_REQUIREMENTS;
    asked.pCreateInfo = &any.info;
    VkMemoryRequirements2 wanted{};
    wanted.sType = VK_STRUCTURE_TYPE_MEMORY_REQUIREMENTS_2;
    context.vk.vkGetDeviceBufferMemoryRequirements(context.handle, &asked, &wanted);
    return wanted.memoryRequirements.memoryTypeBits;
}

VkResult Buffer::make(Context &context, uint64_t size_bytes, BufferKind kind) {
    context_ = &context;
    size_bytes_ = size_bytes;
    if (VkResult result = make_handle(nullptr)) return result;
    VkMemoryRequirements wanted;
    context.vk.vkGetBufferMemoryRequirements(context.handle, handle_, &wanted);
    uint32_t type = kind == BufferKind::host ? context.adapter.host_memory_type
                                             : context.adapter.device_memory_type;
    if (VkResult result = take_memory(wanted.size, type, nullptr)) return result;
    if (kind == BufferKind::device) return VK_SUCCESS;
    void *mapped = nullptr;
    VkResult result = context.vk.vkMapMemory(context.handle, memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
    host_ = static_cast<unsigned char *>(mapped);
    return result;
}

VkResult Buffer::import(Context &context, void *host_pointer, uint64_t size_bytes) {
    context_ = &context;
    size_bytes_ = size_bytes;
    constexpr auto kHost = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
    VkExternalMemoryBufferCreateInfo external{};
    external.sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
    external.handleTypes = kHost;
    if (VkResult result = make_handle(&external)) return result;
    VkMemoryHostPointerPropertiesEXT pointer{};
    pointer.sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
    VkResult result = context.vk.vkGetMemoryHostPointerPropertiesEXT(context.handle, kHost,
                                                                     host_pointer, &pointer);
    if (result != VK_SUCCESS) return result;
    VkMemoryRequirements wanted;
    context.vk.vkGetBufferMemoryRequirements(context.handle, handle_, &wanted);
    uint32_t type = context.adapter.coherent_type(pointer.memoryTypeBits & wanted.memoryTypeBits);
    // A buffer may need more than its bytes, which an engine's memory does not provide.
    if (type == UINT32_MAX || wanted.size > size_bytes) return VK_ERROR_INVALID_EXTERNAL_HANDLE;
    VkImportMemoryHostPointerInfoEXT import{};
    import.sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
    import.handleType = kHost;
    import.pHostPointer = host_pointer;
    return take_memory(size_bytes, type, &import);
}

VkResult Buffer::make_handle(const void *extension) {
    BufferInfo wanted(*context_, size_bytes_);
    wanted.info.pNext = extension;
    return context_->vk.vkCreateBuffer(context_->handle, &wanted.info, nullptr, &handle_);
}

VkResult Buffer::take_memory(uint64_t wanted_bytes, uint32_t type, const void *extension) {
    VkMemoryAllocateFlagsInfo flags{};
    flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    flags.pNext = extension;
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo allocation{};
    allocation.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    allocation.pNext = &flags;
    allocation.allocationSize = wanted_bytes;
    allocation.memoryTypeIndex = type;
    const VolkDeviceTable &vk = context_->vk;
    VkDevice device = context_->handle;
    if (VkResult result = vk.vkAllocateMemory(device, &allocation, nullptr, &memory_)) {
        return result;
    }
    if (VkResult result = vk.vkBindBufferMemory(device, handle_, memory_, 0)) return result;
    VkBufferDeviceAddressInfo where{};
    where.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    where.buffer = handle_;
    address_ = vk.vkGetBufferDeviceAddress(device, &where);
    return VK_SUCCESS;
}

void Buffer::release() {
    if (context_ == nullptr) return;
    context_->vk.vkDestroyBuffer(context_->handle, handle_, nullptr);
    context_->vk.vkFreeMemory(context_->handle, memory_, nullptr);
    context_ = nullptr;
    handle_ = VK_NULL_HANDLE;
    memory_ = VK_NULL_HANDLE;
    address_ = size_bytes_ = 0;
    host_ = nullptr;
}

}  // namespace quire::vulkan
