/* SPDX-License-Identifier: Apache-2.0
 *
 * vulkan: an engine's own VkDevice, VkQueue and VkSemaphore.
 *
 * A quire_vulkan_device in the chain of a quire_device_desc whose backend is "vulkan" opens the
 * engine's VkDevice instead of one of the library's. The engine can then read caches and memory
 * directly: their addresses are buffer device addresses of that VkDevice. Kernels accept addresses
 * of the engine's own buffers (VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) wherever they take an
 * address; only quire_memory_copy needs memory of the library. A pool or a memory larger than one
 * allocation of the physical device (maxMemoryAllocationSize and maxBufferSize, less 4,096 bytes)
 * is QUIRE_E_UNSUPPORTED, because memory divided into several allocations has no such address.
 *
 * Handles are Vulkan's, cast, so this header needs no vulkan.h. The library destroys no object of
 * the engine and creates no VkInstance, and the devices that it would find itself do not matter.
 * The engine keeps what it passes alive until quire_device_close has returned. That call waits
 * until the VkQueues given here and to quire_queue_create have run what was submitted to them
 * before, including the engine's work; the VkDevice stays usable.
 *
 * Vulkan 1.3 is needed, both as VkApplicationInfo.apiVersion of the instance and from the physical
 * device. No device extension is needed.
 *
 * Queues    With QUIRE_NATIVE_VULKAN_QUEUE (aux0: its family, aux1: its index in the family)
 *           quire_queue_create binds a VkQueue of queue_family. Each call on that quire_queue is
 *           submitted before it returns, and begins and ends with a full barrier: so it runs
 *           between the engine's earlier and later submissions, sees what the earlier ones wrote,
 *           and the later ones see what it wrote. A fence that the queue signals also waits for the
 *           engine's earlier work. A wait for a fence also holds up the engine's later submissions.
 *           It is QUIRE_E_BUSY if the fence has not been signalled, on the host or by a submission,
 *           because the library could not hold back what the engine submits meanwhile. Other queues
 *           of the library share `queue` with the engine: their submissions run after what the
 *           engine submitted there before, and where that waits for a semaphore they wait too.
 * Waits     So quire_cache_create, quire_memory_create and a migration, which wait for work of
 *           their own on `queue`, also wait for what the engine submitted before it.
 * Memory    New memory is zeroed on `queue`, and the call that creates it waits for that. Buffers
 *           of pools and memories are only for queue_family, and for transfer_family if a
 *           transfer_queue is given: the engine must not use them on other families.
 * Threads   A VkQueue is used by one thread at a time: the library calls lock(lock_user, VkQueue)
 *           before it submits, and unlock() afterwards. Both NULL: the engine itself ensures that
 *           no call of the library on this device runs while another thread submits. Neither
 *           function may call back into the library, and the engine must not call the library
 *           between its own lock and unlock.
 */
#ifndef QUIRE_VULKAN_H
#define QUIRE_VULKAN_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Features that the VkDevice was created with; all except the last are needed. Vulkan cannot be
 * asked which they were, so the engine states them. */
enum {
    QUIRE_VULKAN_SHADER_INT64 = 1 << 0, /* VkPhysicalDeviceFeatures */
    QUIRE_VULKAN_SHADER_INT16 = 1 << 1,
    QUIRE_VULKAN_STORAGE_16BIT = 1 << 2,         /* storageBuffer16BitAccess, 1.1 */
    QUIRE_VULKAN_STORAGE_8BIT = 1 << 3,          /* storageBuffer8BitAccess, 1.2 */
    QUIRE_VULKAN_SHADER_INT8 = 1 << 4,           /* 1.2 */
    QUIRE_VULKAN_BUFFER_DEVICE_ADDRESS = 1 << 5, /* 1.2 */
    QUIRE_VULKAN_TIMELINE_SEMAPHORE = 1 << 6,    /* 1.2 */
    QUIRE_VULKAN_SCALAR_BLOCK_LAYOUT = 1 << 7,   /* 1.2 */
    QUIRE_VULKAN_SYNCHRONIZATION2 = 1 << 8,      /* 1.3 */
    QUIRE_VULKAN_MAINTENANCE4 = 1 << 9,          /* 1.3 */
    QUIRE_VULKAN_NEEDED_FEATURES = (1 << 10) - 1,
    /* Not needed: the VkDevice has the extension VK_EXT_external_memory_host enabled, so that
     * memory of quire_memory_desc.host_pointer is used in place. Without it copies go through the
     * library's own memory, kernels on such memory are refused (QUIRE_E_UNSUPPORTED), and so is
     * quire_queue_signal_native while bytes for the host are in flight (QUIRE_E_BUSY). */
    QUIRE_VULKAN_EXTERNAL_MEMORY_HOST = 1 << 10
};

/* Any function of Vulkan, to be cast. */
typedef void (*quire_vulkan_function)(void);

/* Errors   QUIRE_E_ARG          a handle is NULL or contradicts the fields that describe it, only
 *                               one of lock and unlock is given, or `features` has an unknown bit.
 *          QUIRE_E_UNSUPPORTED  the VkDevice lacks something that is needed; the message names
 *                               it. */
typedef struct quire_vulkan_device {
    uint32_t struct_type; /* QUIRE_STRUCT_VULKAN_DEVICE */
    uint32_t struct_size;
    const quire_chain *next;
    void *instance;                               /* VkInstance */
    void *physical_device;                        /* VkPhysicalDevice, of the instance */
    void *device;                                 /* VkDevice, of the physical device */
    quire_vulkan_function get_instance_proc_addr; /* PFN_vkGetInstanceProcAddr */
    void *queue;                                  /* VkQueue of a family that computes */
    uint32_t queue_family;
    uint32_t queue_index; /* in the family */
    /* VkQueue for large copies between host and device: of calls on quire_queues that are not bound
     * to a VkQueue, if one call copies 1 MiB or more between host and device and nothing else. All
     * other copies, including swaps of steps on a bound queue, run on their own queue. NULL: all
     * copies do. */
    void *transfer_queue;
    uint32_t transfer_family;
    uint32_t transfer_index;
    uint64_t features; /* QUIRE_VULKAN_* */
    void (*lock)(void *user, void *queue);
    void (*unlock)(void *user, void *queue);
    void *lock_user;
} quire_vulkan_device;

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_VULKAN_H */
