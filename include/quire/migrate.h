/* SPDX-License-Identifier: Apache-2.0
 *
 * migrate: a live cache moves to other devices, to another vendor's, to another set of shards, or
 * to pools of another size, between two steps.
 *
 * Sequences, their tables, the prefix tree and the host tier go along: nothing is computed again.
 * What a sequence's handle, a namespace's or a step's means stays. Block ids may change, and
 * batches, views and queues of before are of no use any more:
 *
 *   finish the last step;  open the devices and their queues;  quire_cache_migrate_wait;
 *   quire_batch_create;  go on with the new queues and batches;  destroy the old ones
 *
 * Attention then runs on the target's kernels: equal tokens are promised for equal arithmetic only,
 * else logits within what its backend promises.
 */
#ifndef QUIRE_MIGRATE_H
#define QUIRE_MIGRATE_H

#include "base.h"
#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Copy the host tier even where its memory could change hands, so that nothing stays on devices
     * that the cache leaves and they may be closed. */
    QUIRE_MIGRATE_COPY_HOST_TIER = 1 << 0
};

enum { QUIRE_TIER_DEVICE = 0, QUIRE_TIER_HOST = 1 };

/* A block that went along, and its id before and after. An element of an array: no struct head. */
typedef struct quire_block_move {
    uint32_t group;
    uint32_t tier; /* QUIRE_TIER_* */
    int32_t src;
    int32_t dst;
} quire_block_move;

typedef struct quire_migrate_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_MIGRATE_* */
    const quire_chain *next;
    /* [shard_count] as in quire_cache_desc: what they hold may be cut in another way than now. Each
     * needs a device object that no other of them has; one that the cache is on already will do,
     * with room for both pools. None for a bookkeeping-only cache, which stays one. */
    const quire_shard_desc *shards;
    /* [groups of the cache] blocks of each group's pool, the null block included; 0: from blocks,
     * pool_bytes or pool_fraction. NULL: all from those, which are as in quire_cache_desc. When
     * nothing says how many, every group keeps its number. */
    const uint32_t *group_blocks;
    quire_block_move *moves; /* [move_capacity] gets all that went along; NULL: not wanted */
    uint32_t shard_count;
    uint32_t shard_stride;
    uint32_t move_capacity;
    uint32_t move_stride;
    uint32_t blocks;
    float pool_fraction;
    uint64_t pool_bytes;
    uint64_t reserve_bytes;
    uint64_t host_bytes; /* a shard's */
    /* Blocks of the host tier in each group. With neither it keeps its number. */
    uint32_t host_blocks;
    uint32_t reserved0;
} quire_migrate_desc;

/* What a migration did. Bytes are counted where they arrive: a layer's KV head as often as shards
 * of the target hold it. */
typedef struct quire_migrate_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t blocks_moved;   /* over all groups: held by sequences, and cached ones */
    uint64_t blocks_dropped; /* cached ones for which there was no room */
    uint64_t bytes_moved;    /* of K, V and their scales */
    uint64_t live_bytes;     /* of those, of blocks that sequences hold */
    uint64_t host_blocks_kept;
    uint64_t host_blocks_copied;
    uint64_t host_bytes_copied;
    uint32_t move_count;   /* blocks that went along, those of the host tier too */
    uint32_t blocks_short; /* with QUIRE_S_NO_BLOCKS: what the shortest group or tier lacks */
} quire_migrate_info;

/* Moves the cache. All of it, or nothing: whatever fails leaves it serving where it is.
 *
 * Waits for its own copies and for none of the caller's work, but on an engine's own device
 * (vulkan.h). Meanwhile other calls on the cache that only read are answered; those that change
 * something are QUIRE_E_BUSY. It needs memory for both pools at once.
 *
 * Cached blocks that nobody holds leave where the target has no room for them, the least recent
 * first. What sequences hold must fit.
 *
 * The host tier's memory changes hands where the target's copies can reach it: on the same device,
 * and between devices of one backend where addresses are the host's own (quire_device_info,
 * host_visible), if the shard holds the same layers and heads and the tier keeps its size. The
 * device that gave it then stays in use: closing it is QUIRE_E_BUSY until the cache moves again or
 * is destroyed. Elsewhere, and with QUIRE_MIGRATE_COPY_HOST_TIER, it is copied once, from host to
 * host.
 *
 * In a bookkeeping-only cache only ids and sizes change, and the engine copies what `moves` lists,
 * all of it from the old memory to the new; the new one's other blocks hold zeros.
 *
 * A leader and a follower (log.h) keep their numbers of blocks and so their block ids: each may
 * move by itself, and the log goes on. Scales and what QUIRE_CACHE_CALIBRATE measured go along.
 *
 * info     what was done; written on success and with the results that follow.
 * Returns  QUIRE_S_NO_BLOCKS      what is live does not fit; nothing changed.
 *          QUIRE_S_INCOMPLETE     moves is too short; move_count was written, nothing changed.
 * Errors   QUIRE_E_BUSY           a step is open, or committed and not done; or the cache is being
 *                                 moved by another call.
 *          QUIRE_E_ARG            as in quire_cache_create; or no shard of this cache has what one
 *                                 of the target's would hold.
 *          QUIRE_E_UNSUPPORTED    a target's backend cannot serve a group, or not move tokens that
 *                                 quire_seq_accept_path left to be moved; or block counts of a
 *                                 leader or follower would change.
 *          QUIRE_E_DEVICE_MEMORY  the pool does not fit.
 *          QUIRE_E_DEVICE_LOST    a device failed while bytes were copied.
 * Time     O(blocks of both pools + max_sequences + bytes moved). */
QUIRE_EXPORT quire_status quire_cache_migrate(quire_cache *cache, const quire_migrate_desc *desc,
                                              quire_migrate_info *info, quire_error *error);

/* As quire_cache_migrate, but first waits until the finished steps have run. Other calls go on
 * meanwhile, and the cache's queues must not be destroyed.
 * Returns  QUIRE_S_TIMEOUT  steps still run after timeout_ns; nothing changed. UINT64_MAX waits for
 *                           ever.
 * Errors   QUIRE_E_BUSY     a step is open, or committed and not finished.
 * Time     as quire_cache_migrate, and the wait. */
QUIRE_EXPORT quire_status quire_cache_migrate_wait(quire_cache *cache,
                                                   const quire_migrate_desc *desc,
                                                   quire_migrate_info *info, uint64_t timeout_ns,
                                                   quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_MIGRATE_H */
