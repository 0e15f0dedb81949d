/* SPDX-License-Identifier: Apache-2.0
 *
 * abandon: the way out when a device answers no more: a driver that hangs, a fence that never
 * comes, reads that fail for good.
 *
 * Destroying refuses while work may run (QUIRE_E_BUSY), for a device must not write into memory
 * that has been given to others. Where that never ends, the objects are given up instead:
 *
 *   quire_cache_abandon     each cache that is on the device
 *   quire_device_abandon    the device, with its queues, fences and memory
 *   quire_instance_destroy  as ever; with another instance the process goes on
 *
 * Waiting  An abandon waits for nothing: for no device, and for no lock that a call of another
 *          thread holds while a backend runs, be that call stuck inside the driver.
 * Handles  From then on every call on the object is QUIRE_E_STALE: of threads that were waiting to
 *          get in too, on what belongs to it (sequences, steps and batches of a cache; queues,
 *          fences and memory of a device), and of a second abandon. The pointers may still be
 *          passed, for nothing of theirs is freed. A call that is inside the driver returns when
 *          the driver lets it go, with what that says or QUIRE_E_STALE, and changes nothing that
 *          lives.
 * Memory   What the device may still read or write is neither freed nor unregistered: it stays
 *          until the process ends, and so do the books of the cache (about 400 bytes per block)
 *          and the handles. quire_abandon_info says how much of the device's that is. Memory of the
 *          engine's own (quire_memory_desc.host_pointer) may still be written too: leave it mapped,
 *          and do not rely on what is in it.
 * Plugins  stay loaded, as ever. The instance's allocator may be called once more by a call that
 *          comes out of the driver after quire_instance_destroy: leave it callable.
 */
#ifndef QUIRE_ABANDON_H
#define QUIRE_ABANDON_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was left as it is. */
typedef struct quire_abandon_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t device_bytes; /* allocated on the device: pools, tables, activations */
    uint64_t host_bytes;   /* of the host's memory that the device reaches: host tiers, staging */
    uint64_t engine_bytes; /* the engine's own, imported, which the device may still write */
} quire_abandon_info;

/* Gives a cache up, with its namespaces, sequences, steps and batches, whatever state it is in. The
 * devices that it was on, and the queues of its unfinished steps, can then only be abandoned.
 * A cache that keeps books only can be abandoned too: nothing of it is on a device.
 *
 * info     what of the cache was left: over all its shards, batches included.
 * Errors   QUIRE_E_STALE  it was abandoned before.
 * Time     O(shards + batches + unfinished steps). */
QUIRE_EXPORT quire_status quire_cache_abandon(quire_cache *cache, quire_abandon_info *info,
                                              quire_error *error);

/* Gives a queue up whose work never ends, while its device goes on: threads that wait for the queue
 * return. Steps of a cache on it are never done, and their blocks go to nobody: finish them with
 * QUIRE_STEP_FAILED, or abandon the cache. The device can then only be abandoned.
 *
 * Errors   QUIRE_E_STALE  it, or its device, was abandoned before.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_queue_abandon(quire_queue *queue, quire_error *error);

/* Gives a device up, with its queues, fences and memory.
 *
 * info     what was left of all that was ever allocated or imported on the device, by abandoned
 *          caches too.
 * Errors   QUIRE_E_BUSY   caches on it are neither destroyed nor abandoned; nothing changed.
 *          QUIRE_E_STALE  it was abandoned before.
 * Time     O(queues, fences and memories of the device). */
QUIRE_EXPORT quire_status quire_device_abandon(quire_device *device, quire_abandon_info *info,
                                               quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_ABANDON_H */
