/* SPDX-License-Identifier: Apache-2.0
 *
 * faulty: libvulkan.so.1, some of whose functions fail when a test says so.
 *
 * The backend opens it instead of libvulkan (QUIRE_VULKAN_LIBRARY). Functions not named here are
 * the real ones. A test sets the fault through the exported faulty_set(), or faulty_set_run() if
 * calls are to work again after some have failed; faulty_failures() returns how many failed, and
 * none does while faulty_pause() holds. "lost copy", "lost fill" and "lost wait" fail nothing: what
 * was asked for is left out. faulty_semaphores()
 * returns the number of semaphores (each queue of the backend has one), faulty_waits() how many
 * submissions waited for one, and faulty_has_module() whether a kernel of a given size was loaded.
 *
 * Threads: faulty_set() while no other call runs; the rest any.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

#define EXPORT __attribute__((visibility("default")))

/* Sizes of the kernels that were loaded since faulty_set(). */
static atomic_size_t modules[32];
static atomic_uint module_count;

/* The fault, how many calls still succeed before it, how many fail then, and how many have. */
static char the_fault[32];
static atomic_int calls_left;
static atomic_int failures_left;
static atomic_int failures;
static atomic_int is_paused;
static atomic_int semaphores;
static atomic_int waits;

static void *real_library(void) {
    static void *library;
    if (library == NULL) library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
    return library;
}

static PFN_vkVoidFunction real_of(VkInstance instance, const char *name) {
    PFN_vkGetInstanceProcAddr get;
    void *symbol = dlsym(real_library(), "vkGetInstanceProcAddr");
    memcpy(&get, &symbol, sizeof get);
    return get(instance, name);
}

EXPORT void faulty_set(const char *fault, int succeeding_calls) {
    strncpy(the_fault, fault, sizeof the_fault - 1);
    atomic_store(&calls_left, succeeding_calls);
    atomic_store(&failures_left, INT_MAX);
    atomic_store(&module_count, 0);
}

EXPORT void faulty_set_run(const char *fault, int succeeding_calls, int failing_calls) {
    faulty_set(fault, succeeding_calls);
    atomic_store(&failures_left, failing_calls);
}

EXPORT int faulty_failures(void) { return atomic_load(&failures); }
EXPORT void faulty_pause(int paused) { atomic_store(&is_paused, paused); }

EXPORT int faulty_has_module(size_t size_bytes) {
    unsigned int i, count = atomic_load(&module_count);
    for (i = 0; i < count && i < sizeof modules / sizeof *modules; ++i) {
        if (atomic_load(&modules[i]) == size_bytes) return 1;
    }
    return 0;
}

EXPORT int faulty_semaphores(void) { return atomic_load(&semaphores); }
EXPORT int faulty_waits(void) { return atomic_load(&waits); }

static int is_set(const char *fault) { return strcmp(the_fault, fault) == 0; }

/* True if the fault is set and the calls that should succeed are used up. */
static int fails(const char *fault) {
    if (!is_set(fault) || atomic_load(&is_paused)) return 0;
    if (atomic_fetch_sub(&calls_left, 1) > 0) return 0;
    if (atomic_fetch_sub(&failures_left, 1) <= 0) return 0;
    atomic_fetch_add(&failures, 1);
    return 1;
}

static VkInstance the_instance;

/* The loader's own function, which serves every device: several may be open, or one closed. */
static PFN_vkVoidFunction device_function(const char *name) {
    PFN_vkVoidFunction function;
    void *symbol = dlsym(real_library(), name);
    memcpy(&function, &symbol, sizeof function);
    return function;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_instance(const VkInstanceCreateInfo *info,
                                                      const VkAllocationCallbacks *allocator,
                                                      VkInstance *instance) {
    PFN_vkCreateInstance real = (PFN_vkCreateInstance)real_of(NULL, "vkCreateInstance");
    if (is_set("no driver")) return VK_ERROR_INCOMPATIBLE_DRIVER;
    if (is_set("broken driver")) return VK_ERROR_INITIALIZATION_FAILED;
    VkResult result = real(info, allocator, instance);
    the_instance = *instance;
    return result;
}

static VKAPI_ATTR VkResult VKAPI_CALL create_device(VkPhysicalDevice physical,
                                                    const VkDeviceCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkDevice *device) {
    PFN_vkCreateDevice real = (PFN_vkCreateDevice)real_of(the_instance, "vkCreateDevice");
    VkDeviceCreateInfo changed = *info;
    if (is_set("no device")) return VK_ERROR_INITIALIZATION_FAILED;
    VkDeviceQueueCreateInfo first = info->pQueueCreateInfos[0];
    if (is_set("transfer family")) {
        if (info->queueCreateInfoCount != 2) return VK_ERROR_INITIALIZATION_FAILED;
        changed.queueCreateInfoCount = 1;
    }
    if (is_set("compute family")) {
        if (first.queueFamilyIndex != 1) return VK_ERROR_INITIALIZATION_FAILED;
        first.queueFamilyIndex = 0;
        changed.pQueueCreateInfos = &first;
    }
    return real(physical, &changed, allocator, device);
}

static VKAPI_ATTR void VKAPI_CALL queue_families(VkPhysicalDevice physical, uint32_t *count,
                                                 VkQueueFamilyProperties *families) {
    uint32_t i, asked = *count;
    int has_another = is_set("transfer family") || is_set("compute family");
    if (has_another && families != NULL) --*count;
    ((PFN_vkGetPhysicalDeviceQueueFamilyProperties)real_of(
        the_instance, "vkGetPhysicalDeviceQueueFamilyProperties"))(physical, count, families);
    for (i = 0; is_set("no compute") && families != NULL && i < *count; ++i) {
        families[i].queueFlags &= ~(VkQueueFlags)VK_QUEUE_COMPUTE_BIT;
    }
    if (!has_another) return;
    if (families != NULL && asked > *count) {
        families[*count] = families[0];
        families[*count].queueFlags = VK_QUEUE_TRANSFER_BIT;
        if (is_set("compute family")) families[*count].queueFlags |= VK_QUEUE_COMPUTE_BIT;
    }
    ++*count;
}

/* "transfer family": one more family, which only copies; "compute family": one that does not draw.
 * It maps to the first one. */
static uint32_t real_family(uint32_t family) {
    return is_set("transfer family") || is_set("compute family") ? 0 : family;
}

static VKAPI_ATTR void VKAPI_CALL get_queue(VkDevice device, uint32_t family, uint32_t index,
                                            VkQueue *queue) {
    ((PFN_vkGetDeviceQueue)device_function("vkGetDeviceQueue"))(device, real_family(family), index,
                                                                queue);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_pool(VkDevice device,
                                                  const VkCommandPoolCreateInfo *info,
                                                  const VkAllocationCallbacks *allocator,
                                                  VkCommandPool *pool) {
    VkCommandPoolCreateInfo changed = *info;
    changed.queueFamilyIndex = real_family(info->queueFamilyIndex);
    return ((PFN_vkCreateCommandPool)device_function("vkCreateCommandPool"))(device, &changed,
                                                                             allocator, pool);
}

/* A buffer that both families use has to declare that. */
static VKAPI_ATTR VkResult VKAPI_CALL create_buffer(VkDevice device, const VkBufferCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkBuffer *buffer) {
    VkBufferCreateInfo changed = *info;
    if (is_set("transfer family")) {
        int is_shared = info->sharingMode == VK_SHARING_MODE_CONCURRENT &&
                        info->queueFamilyIndexCount == 2 && info->pQueueFamilyIndices[0] == 0 &&
                        info->pQueueFamilyIndices[1] == 1;
        if (!is_shared) return VK_ERROR_INITIALIZATION_FAILED;
        changed.sharingMode = VK_SHARING_MODE_EXCLUSIVE;
    }
    return ((PFN_vkCreateBuffer)device_function("vkCreateBuffer"))(device, &changed, allocator,
                                                                   buffer);
}

static VKAPI_ATTR void VKAPI_CALL properties(VkPhysicalDevice physical,
                                             VkPhysicalDeviceProperties *filled) {
    ((PFN_vkGetPhysicalDeviceProperties)real_of(the_instance, "vkGetPhysicalDeviceProperties"))(
        physical, filled);
    if (is_set("old version")) filled->apiVersion = VK_API_VERSION_1_1;
}

/* "forbidden memory": a type before the others, like the first, that no buffer may have. */
static VKAPI_ATTR void VKAPI_CALL memory_properties(VkPhysicalDevice physical,
                                                    VkPhysicalDeviceMemoryProperties *filled) {
    ((PFN_vkGetPhysicalDeviceMemoryProperties)real_of(
        the_instance, "vkGetPhysicalDeviceMemoryProperties"))(physical, filled);
    if (!is_set("forbidden memory")) return;
    memmove(&filled->memoryTypes[1], &filled->memoryTypes[0],
            (VK_MAX_MEMORY_TYPES - 1) * sizeof filled->memoryTypes[0]);
    ++filled->memoryTypeCount;
}

static void restrict_types(VkMemoryRequirements *filled) {
    if (is_set("forbidden memory")) filled->memoryTypeBits <<= 1;
    if (is_set("no memory type")) filled->memoryTypeBits = 0;
}

static VKAPI_ATTR void VKAPI_CALL buffer_requirements(VkDevice device, VkBuffer buffer,
                                                      VkMemoryRequirements *filled) {
    ((PFN_vkGetBufferMemoryRequirements)device_function("vkGetBufferMemoryRequirements"))(
        device, buffer, filled);
    restrict_types(filled);
}

static VKAPI_ATTR void VKAPI_CALL device_requirements(VkDevice device,
                                                      const VkDeviceBufferMemoryRequirements *info,
                                                      VkMemoryRequirements2 *filled) {
    ((PFN_vkGetDeviceBufferMemoryRequirements)device_function(
        "vkGetDeviceBufferMemoryRequirements"))(device, info, filled);
    restrict_types(&filled->memoryRequirements);
}

static VKAPI_ATTR VkResult VKAPI_CALL allocate(VkDevice device, const VkMemoryAllocateInfo *info,
                                               const VkAllocationCallbacks *allocator,
                                               VkDeviceMemory *memory) {
    VkMemoryAllocateInfo changed = *info;
    if (fails("no memory")) return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (is_set("forbidden memory") && changed.memoryTypeIndex-- == 0) {
        atomic_fetch_add(&failures, 1);
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    }
    return ((PFN_vkAllocateMemory)device_function("vkAllocateMemory"))(device, &changed, allocator,
                                                                       memory);
}

static VKAPI_ATTR VkResult VKAPI_CALL submit(VkQueue queue, uint32_t count,
                                             const VkSubmitInfo2 *infos, VkFence fence) {
    if (fails("lost")) return VK_ERROR_DEVICE_LOST;
    if (fails("refused submission")) return VK_ERROR_OUT_OF_HOST_MEMORY;
    if (count != 0 && infos[0].waitSemaphoreInfoCount != 0) atomic_fetch_add(&waits, 1);
    if (count == 1 && infos[0].waitSemaphoreInfoCount != 0 && fails("lost wait")) {
        VkSubmitInfo2 changed = infos[0];
        changed.waitSemaphoreInfoCount = 0;
        return ((PFN_vkQueueSubmit2)device_function("vkQueueSubmit2"))(queue, 1, &changed, fence);
    }
    return ((PFN_vkQueueSubmit2)device_function("vkQueueSubmit2"))(queue, count, infos, fence);
}

static VKAPI_ATTR void VKAPI_CALL copy_buffer(VkCommandBuffer commands, VkBuffer from, VkBuffer to,
                                              uint32_t count, const VkBufferCopy *regions) {
    if (fails("lost copy") && --count == 0) return;
    ((PFN_vkCmdCopyBuffer)device_function("vkCmdCopyBuffer"))(commands, from, to, count, regions);
}

static VKAPI_ATTR void VKAPI_CALL fill_buffer(VkCommandBuffer commands, VkBuffer buffer,
                                              VkDeviceSize offset, VkDeviceSize size,
                                              uint32_t word) {
    if (fails("lost fill")) return;
    ((PFN_vkCmdFillBuffer)device_function("vkCmdFillBuffer"))(commands, buffer, offset, size, word);
}

static VKAPI_ATTR VkResult VKAPI_CALL end_commands(VkCommandBuffer commands) {
    /* The test is about what follows; the real command buffer is left in a valid state. */
    VkResult result = ((PFN_vkEndCommandBuffer)device_function("vkEndCommandBuffer"))(commands);
    return fails("unended commands") ? VK_ERROR_OUT_OF_HOST_MEMORY : result;
}

static VKAPI_ATTR VkResult VKAPI_CALL wait(VkDevice device, const VkSemaphoreWaitInfo *info,
                                           uint64_t timeout_ns) {
    if (fails("lost while running")) return VK_ERROR_DEVICE_LOST;
    return ((PFN_vkWaitSemaphores)device_function("vkWaitSemaphores"))(device, info, timeout_ns);
}

static VKAPI_ATTR VkResult VKAPI_CALL read_counter(VkDevice device, VkSemaphore semaphore,
                                                   uint64_t *value) {
    if (fails("lost while running")) return VK_ERROR_DEVICE_LOST;
    return ((PFN_vkGetSemaphoreCounterValue)device_function("vkGetSemaphoreCounterValue"))(
        device, semaphore, value);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_module(VkDevice device,
                                                    const VkShaderModuleCreateInfo *info,
                                                    const VkAllocationCallbacks *allocator,
                                                    VkShaderModule *module) {
    unsigned int i = atomic_fetch_add(&module_count, 1);
    if (i < sizeof modules / sizeof *modules) atomic_store(&modules[i], info->codeSize);
    return ((PFN_vkCreateShaderModule)device_function("vkCreateShaderModule"))(device, info,
                                                                               allocator, module);
}

static VKAPI_ATTR VkResult VKAPI_CALL create_semaphore(VkDevice device,
                                                       const VkSemaphoreCreateInfo *info,
                                                       const VkAllocationCallbacks *allocator,
                                                       VkSemaphore *semaphore) {
    VkResult result = ((PFN_vkCreateSemaphore)device_function("vkCreateSemaphore"))(
        device, info, allocator, semaphore);
    if (result == VK_SUCCESS) atomic_fetch_add(&semaphores, 1);
    return result;
}

static VKAPI_ATTR void VKAPI_CALL destroy_semaphore(VkDevice device, VkSemaphore semaphore,
                                                    const VkAllocationCallbacks *allocator) {
    if (semaphore != VK_NULL_HANDLE) atomic_fetch_sub(&semaphores, 1);
    ((PFN_vkDestroySemaphore)device_function("vkDestroySemaphore"))(device, semaphore, allocator);
}

static PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name);

static PFN_vkVoidFunction replaced(const char *name) {
    static const struct {
        const char *name;
        PFN_vkVoidFunction function;
    } functions[] = {
        {"vkCreateInstance", (PFN_vkVoidFunction)create_instance},
        {"vkCreateDevice", (PFN_vkVoidFunction)create_device},
        {"vkGetPhysicalDeviceQueueFamilyProperties", (PFN_vkVoidFunction)queue_families},
        {"vkGetPhysicalDeviceProperties", (PFN_vkVoidFunction)properties},
        {"vkGetPhysicalDeviceMemoryProperties", (PFN_vkVoidFunction)memory_properties},
        {"vkGetBufferMemoryRequirements", (PFN_vkVoidFunction)buffer_requirements},
        {"vkGetDeviceBufferMemoryRequirements", (PFN_vkVoidFunction)device_requirements},
        {"vkAllocateMemory", (PFN_vkVoidFunction)allocate},
        {"vkQueueSubmit2", (PFN_vkVoidFunction)submit},
        {"vkEndCommandBuffer", (PFN_vkVoidFunction)end_commands},
        {"vkCmdCopyBuffer", (PFN_vkVoidFunction)copy_buffer},
        {"vkCmdFillBuffer", (PFN_vkVoidFunction)fill_buffer},
        {"vkGetDeviceQueue", (PFN_vkVoidFunction)get_queue},
        {"vkCreateCommandPool", (PFN_vkVoidFunction)create_pool},
        {"vkCreateBuffer", (PFN_vkVoidFunction)create_buffer},
        {"vkCreateShaderModule", (PFN_vkVoidFunction)create_module},
        {"vkCreateSemaphore", (PFN_vkVoidFunction)create_semaphore},
        {"vkDestroySemaphore", (PFN_vkVoidFunction)destroy_semaphore},
        {"vkWaitSemaphores", (PFN_vkVoidFunction)wait},
        {"vkGetSemaphoreCounterValue", (PFN_vkVoidFunction)read_counter},
        {"vkGetDeviceProcAddr", (PFN_vkVoidFunction)get_device},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; ++i) {
        if (strcmp(name, functions[i].name) == 0) return functions[i].function;
    }
    return NULL;
}

static PFN_vkVoidFunction VKAPI_CALL get_device(VkDevice device, const char *name) {
    PFN_vkVoidFunction function = replaced(name);
    if (function != NULL) return function;
    return ((PFN_vkGetDeviceProcAddr)real_of(the_instance, "vkGetDeviceProcAddr"))(device, name);
}

EXPORT VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance,
                                                                      const char *name) {
    PFN_vkVoidFunction function = replaced(name);
    return function != NULL ? function : real_of(instance, name);
}
