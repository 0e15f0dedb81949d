// SPDX-License-Identifier: Apache-2.0

#include "engine.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace quire::test {

namespace {

constexpr uint32_t kCode[] = {
#include "engine.spv.inc"
};

struct Push {
    uint64_t from, to;
    uint32_t count;
    uint32_t reserved0;
};

void must(VkResult result, const char *what) {
    if (result == VK_SUCCESS) return;
    std::fprintf(stderr, "the engine of the test: %s: VkResult %d\n", what, result);
    std::abort();
}

VKAPI_ATTR VkBool32 VKAPI_CALL end_on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                              VkDebugUtilsMessageTypeFlagsEXT,
                                              const VkDebugUtilsMessengerCallbackDataEXT *data,
                                              void *) {
    std::fprintf(stderr, "the validation layer says: %s\n", data->pMessage);
    std::abort();
}

bool is_validating() {
    const char *value = std::getenv("QUIRE_VULKAN_VALIDATION");
    return value != nullptr && std::strcmp(value, "1") == 0;
}

void lock(void *user, void *queue) {
    auto *engine = static_cast<Engine *>(user);
    engine->mutex.lock();
    EXPECT_EQ(queue, engine->queue);
    EXPECT_FALSE(engine->is_held);
    engine->is_held = true;
    ++engine->locked;
}

void unlock(void *user, void *queue) {
    auto *engine = static_cast<Engine *>(user);
    EXPECT_EQ(queue, engine->queue);
    EXPECT_TRUE(engine->is_held);
    engine->is_held = false;
    engine->mutex.unlock();
}

}  // namespace

Engine::Engine() {
    void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    volkInitializeCustom(
        reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr")));
    make_instance();
    uint32_t count = 1;
    if (instance == VK_NULL_HANDLE) return;
    vkEnumeratePhysicalDevices(instance, &count, &physical);
    if (count == 0) return;
    make_device();
    make_kernel();
}

Engine::~Engine() {
    if (is_there()) {
        finish();
        vkDestroySemaphore(device, timeline_, nullptr);
        vkDestroyCommandPool(device, pool_, nullptr);
        vkDestroyPipeline(device, pipeline_, nullptr);
        vkDestroyPipelineLayout(device, layout_, nullptr);
        vkDestroyShaderModule(device, module_, nullptr);
        vkDestroyDevice(device, nullptr);
    }
    if (messenger_ != VK_NULL_HANDLE) {
        vkDestroyDebugUtilsMessengerEXT(instance, messenger_, nullptr);
    }
    if (instance != VK_NULL_HANDLE) vkDestroyInstance(instance, nullptr);
}

void Engine::make_instance() {
    VkApplicationInfo application{};
    application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
    application.apiVersion = VK_API_VERSION_1_3;
    VkDebugUtilsMessengerCreateInfoEXT messages{};
    messages.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
    messages.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                               VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    messages.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    messages.pfnUserCallback = end_on_message;
    VkValidationFeatureEnableEXT enabled =
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
    VkValidationFeaturesEXT features{};
    features.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
    features.pNext = &messages;
    features.enabledValidationFeatureCount = 1;
    features.pEnabledValidationFeatures = &enabled;
    const char *layer = "VK_LAYER_KHRONOS_validation";
    const char *extensions[] = {VK_EXT_DEBUG_UTILS_EXTENSION_NAME,
                                VK_EXT_VALIDATION_FEATURES_EXTENSION_NAME};
    VkInstanceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
    info.pApplicationInfo = &application;
    if (is_validating()) {
        info.pNext = &features;
        info.enabledLayerCount = 1;
        info.ppEnabledLayerNames = &layer;
        info.enabledExtensionCount = 2;
        info.ppEnabledExtensionNames = extensions;
    }
    if (vkCreateInstance(&info, nullptr, &instance) != VK_SUCCESS) return;
    volkLoadInstance(instance);
    if (!is_validating()) return;
    messages.pNext = nullptr;
    must(vkCreateDebugUtilsMessengerEXT(instance, &messages, nullptr, &messenger_), "a messenger");
}

void Engine::make_device() {
    VkPhysicalDeviceVulkan13Features v13{};
    v13.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_3_FEATURES;
    v13.synchronization2 = v13.maintenance4 = VK_TRUE;
    VkPhysicalDeviceVulkan12Features v12{};
    v12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    v12.pNext = &v13;
    v12.storageBuffer8BitAccess = v12.shaderInt8 = v12.bufferDeviceAddress = VK_TRUE;
    v12.timelineSemaphore = v12.scalarBlockLayout = VK_TRUE;
    VkPhysicalDeviceVulkan11Features v11{};
    v11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    v11.pNext = &v12;
    v11.storageBuffer16BitAccess = VK_TRUE;
    VkPhysicalDeviceFeatures2 features{};
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    features.pNext = &v11;
    features.features.shaderInt64 = features.features.shaderInt16 = VK_TRUE;
    float priority = 1.0f;
    VkDeviceQueueCreateInfo queues{};
    queues.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
    queues.queueFamilyIndex = family;
    queues.queueCount = 1;
    queues.pQueuePriorities = &priority;
    VkDeviceCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
    info.pNext = &features;
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queues;
    must(vkCreateDevice(physical, &info, nullptr, &device), "a device");
    volkLoadDevice(device);
    vkGetDeviceQueue(device, family, 0, &queue);
}

void Engine::make_kernel() {
    VkShaderModuleCreateInfo code{};
    code.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
    code.codeSize = sizeof kCode;
    code.pCode = kCode;
    must(vkCreateShaderModule(device, &code, nullptr, &module_), "a module");
    VkPushConstantRange range = {VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof(Push)};
    VkPipelineLayoutCreateInfo layout{};
    layout.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &range;
    must(vkCreatePipelineLayout(device, &layout, nullptr, &layout_), "a layout");
    VkComputePipelineCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module_;
    info.stage.pName = "main";
    info.layout = layout_;
    must(vkCreateComputePipelines(device, VK_NULL_HANDLE, 1, &info, nullptr, &pipeline_),
         "a pipeline");
    VkCommandPoolCreateInfo pool{};
    pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
    pool.queueFamilyIndex = family;
    must(vkCreateCommandPool(device, &pool, nullptr, &pool_), "a pool");
    timeline_ = make_semaphore();
}

quire_vulkan_device Engine::describe() {
    quire_vulkan_device given{};
    given.struct_type = QUIRE_STRUCT_VULKAN_DEVICE;
    given.struct_size = sizeof given;
    given.instance = instance;
    given.physical_device = physical;
    given.device = device;
    given.get_instance_proc_addr = reinterpret_cast<quire_vulkan_function>(vkGetInstanceProcAddr);
    given.queue = queue;
    given.queue_family = family;
    given.features = QUIRE_VULKAN_NEEDED_FEATURES;
    given.lock = lock;
    given.unlock = unlock;
    given.lock_user = this;
    return given;
}

quire_native Engine::queue_object() const {
    quire_native native{};
    native.kind = QUIRE_NATIVE_VULKAN_QUEUE;
    native.value = reinterpret_cast<uint64_t>(queue);
    native.aux0 = family;
    return native;
}

quire_native Engine::object_of(VkSemaphore semaphore, uint64_t value) {
    quire_native native{};
    native.kind = QUIRE_NATIVE_VULKAN_SEMAPHORE;
    native.value = reinterpret_cast<uint64_t>(semaphore);
    native.aux0 = value;
    return native;
}

EngineBuffer Engine::make_buffer(uint32_t count) {
    EngineBuffer made;
    VkBufferCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
    info.size = count * sizeof(float);
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    must(vkCreateBuffer(device, &info, nullptr, &made.handle), "a buffer");
    VkMemoryRequirements wanted;
    vkGetBufferMemoryRequirements(device, made.handle, &wanted);
    VkMemoryAllocateFlagsInfo flags{};
    flags.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO;
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo allocation{};
    allocation.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
    allocation.pNext = &flags;
    allocation.allocationSize = wanted.size;
    must(vkAllocateMemory(device, &allocation, nullptr, &made.memory), "memory");
    must(vkBindBufferMemory(device, made.handle, made.memory, 0), "to bind it");
    VkBufferDeviceAddressInfo where{};
    where.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    where.buffer = made.handle;
    made.address = vkGetBufferDeviceAddress(device, &where);
    void *mapped = nullptr;
    must(vkMapMemory(device, made.memory, 0, VK_WHOLE_SIZE, 0, &mapped), "to map it");
    made.numbers = static_cast<float *>(mapped);
    std::memset(mapped, 0, count * sizeof(float));
    return made;
}

void Engine::destroy(const EngineBuffer &buffer) {
    vkDestroyBuffer(device, buffer.handle, nullptr);
    vkFreeMemory(device, buffer.memory, nullptr);
}

VkSemaphore Engine::make_semaphore() {
    VkSemaphoreTypeCreateInfo type{};
    type.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO;
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO;
    info.pNext = &type;
    VkSemaphore made = VK_NULL_HANDLE;
    must(vkCreateSemaphore(device, &info, nullptr, &made), "a semaphore");
    return made;
}

void Engine::signal(VkSemaphore semaphore, uint64_t value) {
    VkSemaphoreSignalInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO;
    info.semaphore = semaphore;
    info.value = value;
    must(vkSignalSemaphore(device, &info), "to signal");
}

uint64_t Engine::read(VkSemaphore semaphore) {
    uint64_t value = 0;
    must(vkGetSemaphoreCounterValue(device, semaphore, &value), "to read a semaphore");
    return value;
}

void Engine::wait(VkSemaphore semaphore, uint64_t value) {
    VkSemaphoreWaitInfo info{};
    info.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO;
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore;
    info.pValues = &value;
    must(vkWaitSemaphores(device, &info, 60'000'000'000), "to wait a minute");
}

VkCommandBuffer Engine::record(uint64_t from, uint64_t to, uint32_t count) {
    VkCommandBufferAllocateInfo allocation{};
    allocation.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
    allocation.commandPool = pool_;
    allocation.commandBufferCount = 1;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    must(vkAllocateCommandBuffers(device, &allocation, &commands), "a command buffer");
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    must(vkBeginCommandBuffer(commands, &begin), "to record");
    Push push = {from, to, count, 0};
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline_);
    vkCmdPushConstants(commands, layout_, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
    vkCmdDispatch(commands, (count + 63) / 64, 1, 1);
    VkMemoryBarrier2 memory{};  // only to the host: the library orders its own accesses
    memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER_2;
    memory.srcStageMask = VK_PIPELINE_STAGE_2_COMPUTE_SHADER_BIT;
    memory.srcAccessMask = VK_ACCESS_2_SHADER_WRITE_BIT;
    memory.dstStageMask = VK_PIPELINE_STAGE_2_HOST_BIT;
    memory.dstAccessMask = VK_ACCESS_2_HOST_READ_BIT;
    VkDependencyInfo dependency{};
    dependency.sType = VK_STRUCTURE_TYPE_DEPENDENCY_INFO;
    dependency.memoryBarrierCount = 1;
    dependency.pMemoryBarriers = &memory;
    vkCmdPipelineBarrier2(commands, &dependency);
    must(vkEndCommandBuffer(commands), "to end");
    return commands;
}

void Engine::submit(uint64_t from, uint64_t to, uint32_t count,
                    const VkSemaphoreSubmitInfo *awaited, const VkSemaphoreSubmitInfo *done) {
    std::lock_guard hold(mutex);
    VkCommandBufferSubmitInfo run{};
    run.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_SUBMIT_INFO;
    run.commandBuffer = record(from, to, count);
    std::vector<VkSemaphoreSubmitInfo> signals(1);
    signals[0].sType = VK_STRUCTURE_TYPE_SEMAPHORE_SUBMIT_INFO;
    signals[0].semaphore = timeline_;
    signals[0].value = ++submitted_;
    signals[0].stageMask = VK_PIPELINE_STAGE_2_ALL_COMMANDS_BIT;
    if (done != nullptr) signals.push_back(*done);
    VkSubmitInfo2 info{};
    info.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO_2;
    info.waitSemaphoreInfoCount = awaited != nullptr ? 1 : 0;
    info.pWaitSemaphoreInfos = awaited;
    info.commandBufferInfoCount = 1;
    info.pCommandBufferInfos = &run;
    info.signalSemaphoreInfoCount = static_cast<uint32_t>(signals.size());
    info.pSignalSemaphoreInfos = signals.data();
    must(vkQueueSubmit2(queue, 1, &info, VK_NULL_HANDLE), "to submit");
}

void Engine::finish() { wait(timeline_, submitted_); }

}  // namespace quire::test
