/* SPDX-License-Identifier: Apache-2.0
 *
 * vulkan: an engine's own VkDevice, VkQueue and VkSemaphore.
 *
 * A quire_vulkan_device in the chain of a quire_device_desc, whose backend is "vulkan", opens the
 * engine's VkDevice in place of one of the library's. Caches and memory are then the engine's to
 * read: their addresses are buffer device addresses of that VkDevice. And kernels take addresses of
 * the engine's own buffers (VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT) wherever they take one;
 * only quire_memory_copy needs memory of the library's. A pool or a memory larger than one
 * allocation of the physical device (maxMemoryAllocationSize and maxBufferSize, less 4,096 bytes)
 * is QUIRE_E_UNSUPPORTED, for what is divided has no such address.
 *
 * Handles are Vulkan's, cast: this header needs no vulkan.h. Nothing of the engine's is destroyed.
 * No VkInstance is made, and what the library would find itself does not count. What is given lives
 * until quire_device_close has returned, which waits until the VkQueues given here and to
 * quire_queue_create have run what was submitted to them before, the engine's work too; the
 * VkDevice goes on.
 *
 * Vulkan 1.3: VkApplicationInfo.apiVersion of the instance, and the physical device. No device
 * extension is needed.
 *
 * Queues    With QUIRE_NATIVE_VULKAN_QUEUE (aux0: its family, aux1: its index in the family)
 *           quire_queue_create binds a VkQueue of queue_family. Each call on that quire_queue is
 *           submitted before it returns, and begins and ends with a full barrier: so it runs
 *           between the engine's own submissions of before and after, sees what those before wrote,
 *           and is seen by those after. A fence that the queue signals is behind the engine's work
 *           as well. A wait for a fence holds up the engine's later submissions too; for one that
 *           nobody has signalled, on the host or by a submission, it is QUIRE_E_BUSY, because what
 *           the engine submits meanwhile could not be kept behind it. Other queues of the library
 *           share `queue` with the engine: what they submit runs behind what the engine submitted
 *           there before, and where that waits for a semaphore they wait too.
 * Waits     So quire_cache_create, quire_memory_create and a migration, which wait for work of
 *           their own on `queue`, wait for the engine's submissions in front of it as well.
 * Memory    What is made is zeroed on `queue`, and the call that makes it waits for that. Buffers
 *           of pools and memories are for queue_family alone, and transfer_family where there is a
 *           transfer_queue: on other families the engine must not use them.
 * Threads   A VkQueue is used by one thread at a time: the library calls lock(lock_user, VkQueue)
 *           before it submits, and unlock() behind. Both NULL: the engine itself sees to it that
 *           no call of the library on this device runs while another thread submits. Neither may
 *           call back into the library, and no call of the library may be made between the
 *           engine's own lock and unlock.
 */
#ifndef QUIRE_VULKAN_H
#define QUIRE_VULKAN_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Features that the VkDevice was made with; all but the last are needed. Vulkan does not tell which
 * were, so the engine does. */
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
     * memory of quire_memory_desc.host_pointer is used where it lies. Without it copies go by the
     * library's own memory, kernels are refused (QUIRE_E_UNSUPPORTED), and so is
     * quire_queue_signal_native while bytes for the host are on their way (QUIRE_E_BUSY). */
    QUIRE_VULKAN_EXTERNAL_MEMORY_HOST = 1 << 10
};

/* Any function of Vulkan's, to be cast. */
typedef void (*quire_vulkan_function)(void);

/* Errors   QUIRE_E_ARG          a handle is NULL or not what its neighbours say, or one of lock and
 *                               unlock is missing.
 *          QUIRE_E_UNSUPPORTED  the VkDevice lacks what is needed; the message names it. */
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
    /* VkQueue for large copies between host and device: those of quire_queues that are bound to no
     * VkQueue, where one call copies 1 MiB or more and nothing else. All other copies, and swaps of
     * steps on a bound queue, go the way of their queue. NULL: so do these. */
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
