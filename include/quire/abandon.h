/* SPDX-License-Identifier: Apache-2.0
 *
 * abandon: gives up objects of a device that no longer responds: its driver hangs, a fence is never
 * reached, or reads keep failing.
 *
 * Destroying an object is refused while work may still run on it (QUIRE_E_BUSY), because a device
 * must not write into memory that has been given to others. If that never ends, abandon the objects
 * instead:
 *
 *   quire_cache_abandon     each cache that is on the device
 *   quire_device_abandon    the device, with its queues, fences and memory
 *   quire_instance_destroy  as usual; the process can go on with another instance
 *
 * Waiting  An abandon call waits for nothing: not for a device, and not for a lock that another
 *          thread's call holds while a backend runs, even if that call is stuck inside the driver.
 * Handles  From then on every call on the object is QUIRE_E_STALE, including calls of threads that
 *          were waiting to enter, calls on what belongs to the object (sequences, steps and batches
 *          of a cache; queues, fences and memory of a device), and a second abandon. The pointers
 *          may still be passed, because none of these objects is freed. A call that is inside the
 *          driver returns when the driver lets it return, with its result or QUIRE_E_STALE, and
 *          changes no live object.
 * Memory   Memory that the device may still read or write is neither freed nor unregistered. It
 *          stays until the process ends, and so do the books of the cache (about 400 bytes per
 *          block) and the handles. quire_abandon_info says how much memory the device may still
 *          access. The device may also still write to the engine's own memory
 *          (quire_memory_desc.host_pointer): keep it mapped, and do not rely on its content.
 * Plugins  Plugins stay loaded, as always. A call that returns from the driver after
 *          quire_instance_destroy may call the instance's allocator once more: keep it callable.
 */
#ifndef QUIRE_ABANDON_H
#define QUIRE_ABANDON_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was left behind. */
typedef struct quire_abandon_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t device_bytes; /* allocated on the device: pools, tables, activations */
    uint64_t host_bytes;   /* host memory that the device can access: host tiers, staging */
    uint64_t engine_bytes; /* the engine's own, imported; the device may still write to it */
} quire_abandon_info;

/* Gives up a cache with its namespaces, sequences, steps and batches, whatever state it is in.
 * After that, the devices that the cache was on and the queues of its unfinished steps can only be
 * abandoned. A bookkeeping-only cache can be abandoned too; it leaves nothing on a device.
 *
 * info     what the cache left, over all its shards, including batches.
 * Errors   QUIRE_E_STALE  the cache was abandoned before.
 * Time     O(shards + batches + unfinished steps). */
QUIRE_EXPORT quire_status quire_cache_abandon(quire_cache *cache, quire_abandon_info *info,
                                              quire_error *error);

/* Gives up a queue whose work never ends, and keeps its device: calls of other threads that wait
 * for their turn on the queue return. Steps of a cache on the queue are never done, and their
 * blocks are never reused: finish these steps with QUIRE_STEP_FAILED, or abandon the cache. After
 * that, the device can only be abandoned.
 *
 * Errors   QUIRE_E_STALE  the queue, or its device, was abandoned before.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_abandon(quire_queue *queue, quire_error *error);

/* Gives up a device with its queues, fences and memory.
 *
 * info     what is left of all that was ever allocated or imported on the device, including by
 *          abandoned caches.
 * Errors   QUIRE_E_BUSY   caches on it are neither destroyed nor abandoned; nothing changed.
 *          QUIRE_E_STALE  the device was abandoned before.
 * Time     O(queues, fences and memories of the device). */
QUIRE_EXPORT quire_status quire_device_abandon(quire_device *device, quire_abandon_info *info,
                                               quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_ABANDON_H */
