// SPDX-License-Identifier: Apache-2.0
//
// buffer: one VkBuffer with memory of its own, and its address for kernels.
//
// Threads: one at a time for each buffer.
#pragma once

#include <volk.h>

#include <cstdint>
#include <utility>

namespace quire::vulkan {

struct Context;  // context.hpp

enum class BufferKind { device, host };

// The memory types that a VkDevice lets all our buffers have, a bit for each.
uint32_t memory_types_of_buffers(const Context &context);

class Buffer {
 public:
    Buffer() = default;
    Buffer(Buffer &&other) noexcept { swap(other); }
    Buffer &operator=(Buffer &&other) noexcept {
        swap(other);
        return *this;
    }
    ~Buffer() { release(); }

    // Call once. Host memory is mapped; nothing is zeroed.
    [[nodiscard]] VkResult make(Context &context, uint64_t size_bytes, BufferKind kind);
    // Call once. Uses the engine's own memory, if the device accepts it.
    [[nodiscard]] VkResult import(Context &context, void *host_pointer, uint64_t size_bytes);
    void release();

    VkBuffer handle() const { return handle_; }
    uint64_t address() const { return address_; }
    uint64_t size_bytes() const { return size_bytes_; }
    unsigned char *host() const { return host_; }

 private:
    VkResult make_handle(const void *extension);
    VkResult take_memory(uint64_t wanted_bytes, uint32_t type, const void *extension);
    void swap(Buffer &other) {
        std::swap(context_, other.context_);
        std::swap(handle_, other.handle_);
        std::swap(memory_, other.memory_);
        std::swap(address_, other.address_);
        std::swap(size_bytes_, other.size_bytes_);
        std::swap(host_, other.host_);
    }

    Context *context_ = nullptr;
    VkBuffer handle_ = VK_NULL_HANDLE;
    VkDeviceMemory memory_ = VK_NULL_HANDLE;
    uint64_t address_ = 0;
    uint64_t size_bytes_ = 0;
    unsigned char *host_ = nullptr;
};

}  // namespace quire::vulkan
