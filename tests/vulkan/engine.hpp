// SPDX-License-Identifier: Apache-2.0
//
// engine: an engine with its own VkDevice and VkQueue, made with volk on lavapipe, under the
// validation layer if the test environment asks for it. Apart from describe(), it knows
// nothing of the library.
//
// Threads: submit() any; the rest one.
#pragma once

#include <volk.h>

#include <mutex>
#include <vector>

#include "quire/vulkan.h"

namespace quire::test {

// The engine's floats, which its host code, its kernels and the library's kernels can access.
struct EngineBuffer {
    VkBuffer handle = VK_NULL_HANDLE;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    uint64_t address = 0;
    float *numbers = nullptr;
};

class Engine {
 public:
    Engine();
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;
    ~Engine();

    // True if there is a device.
    bool is_there() const { return device != VK_NULL_HANDLE; }
    quire_vulkan_device describe();
    quire_native queue_object() const;

    EngineBuffer make_buffer(uint32_t count);
    void destroy(const EngineBuffer &buffer);
    VkSemaphore make_semaphore();
    void signal(VkSemaphore semaphore, uint64_t value);
    uint64_t read(VkSemaphore semaphore);
    void wait(VkSemaphore semaphore, uint64_t value);
    static quire_native object_of(VkSemaphore semaphore, uint64_t value);

    // Submits the kernel: to[i] = 2 from[i]. `awaited` and `done` may be NULL.
    void submit(uint64_t from, uint64_t to, uint32_t count, const VkSemaphoreSubmitInfo *awaited,
                const VkSemaphoreSubmitInfo *done);
    // Waits until everything submitted has run.
    void finish();

    VkInstance instance = VK_NULL_HANDLE;
    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice device = VK_NULL_HANDLE;
    VkQueue queue = VK_NULL_HANDLE;
    uint32_t family = 0;
    std::mutex mutex;      // of the queue
    int locked = 0;        // by the library
    bool is_held = false;  // by the library, now

 private:
    void make_instance();
    void make_device();
    void make_kernel();
    VkCommandBuffer record(uint64_t from, uint64_t to, uint32_t count);

    VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
    VkShaderModule module_ = VK_NULL_HANDLE;
    VkPipelineLayout layout_ = VK_NULL_HANDLE;
    VkPipeline pipeline_ = VK_NULL_HANDLE;
    VkCommandPool pool_ = VK_NULL_HANDLE;
    VkSemaphore timeline_ = VK_NULL_HANDLE;  // of its own submissions
    uint64_t submitted_ = 0;
};

}  // namespace quire::test
