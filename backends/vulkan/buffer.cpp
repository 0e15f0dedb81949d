// SPDX-License-Identifier: Apache-2.0

#include "buffer.hpp"

#include "context.hpp"

namespace quire::vulkan {

VkResult Buffer::make(Context &context, uint64_t size_bytes, BufferKind kind) {
    context_ = &context;
    size_bytes_ = size_bytes;
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = size_bytes;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    uint32_t families[] = {context.adapter.family, context.adapter.transfer_family};
    info.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
    if (context.has_two_families()) {
        info.sharingMode = VK_SHARING_MODE_CONCURRENT;
        info.queueFamilyIndexCount = 2;
        info.pQueueFamilyIndices = families;
    }
    if (VkResult result = context.vk.vkCreateBuffer(context.handle, &info, nullptr, &handle_)) {
        return result;
    }
    VkMemoryRequirements wanted;
    context.vk.vkGetBufferMemoryRequirements(context.handle, handle_, &wanted);
    VkMemoryAllocateFlagsInfo flags{};
    flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo allocation{};
    allocation.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    allocation.pNext = &flags;
    allocation.allocationSize = wanted.size;
    allocation.memoryTypeIndex = kind == BufferKind::host ? context.adapter.host_memory_type
                                                          : context.adapter.device_memory_type;
    if (VkResult result =
            context.vk.vkAllocateMemory(context.handle, &allocation, nullptr, &memory_)) {
        return result;
    }
    if (VkResult result = context.vk.vkBindBufferMemory(context.handle, handle_, memory_, 0)) {
        return result;
    }
    VkBufferDeviceAddressInfo where{};
    where.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    where.buffer = handle_;
    address_ = context.vk.vkGetBufferDeviceAddress(context.handle, &where);
    if (kind == BufferKind::device) return VK_SUCCESS;
    void *mapped = nullptr;
    VkResult result = context.vk.vkMapMemory(context.handle, memory_, 0, VK_WHOLE_SIZE, 0, &mapped);
    host_ = static_cast<unsigned char *>(mapped);
    return result;
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
