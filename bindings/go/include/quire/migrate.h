/* SPDX-License-Identifier: Apache-2.0
 *
 * migrate: moves a live cache to other devices, to another vendor's devices, to another set of
 * shards, or to pools of another size, between two steps.
 *
 * Sequences, their tables, the prefix tree and the host tier move along, and nothing is computed
 * again. Handles of sequences, namespaces and steps keep their meaning. Block ids may change, and
 * batches, views and queues from before can no longer be used:
 *
 *   finish the last step;  open the devices and their queues;  quire_cache_migrate_wait;
 *   quire_batch_create;  go on with the new queues and batches;  destroy the old ones
 *
 * Attention then runs on the target's kernels. The same tokens are guaranteed only if the
 * arithmetic is the same; otherwise logits are within the bounds that the target's backend
 * guarantees.
 */
#ifndef QUIRE_MIGRATE_H
#define QUIRE_MIGRATE_H

#include "base.h"
#include "cache.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* Copy the host tier even where its memory could be handed over, so that nothing stays on the
     * devices that the cache leaves, and they can be closed. */
    QUIRE_MIGRATE_COPY_HOST_TIER = 1 << 0
};

enum { QUIRE_TIER_DEVICE = 0, QUIRE_TIER_HOST = 1 };

/* A block that was moved, with its ids before and after. Those of a pool that all groups share
 * (QUIRE_CACHE_ONE_POOL) are told once, as of group 0. An array element: no struct head. */
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
    /* [shard_count] as in quire_cache_desc; their layers and heads may be divided differently than
     * now. Each needs a device object of its own. A device that the cache is on already is allowed,
     * if it has room for both pools. None for a bookkeeping-only cache, which stays one. */
    const quire_shard_desc *shards;
    /* [groups of the cache] blocks of each group's pool, the null block included; 0: from blocks,
     * pool_bytes or pool_fraction. NULL: all groups from those, which are as in quire_cache_desc. A
     * group whose number none of these gives keeps its number. */
    const uint32_t *group_blocks;
    quire_block_move *moves; /* [move_capacity] receives the moved blocks; NULL: not wanted */
    uint32_t shard_count;
    uint32_t shard_stride;
    uint32_t move_capacity;
    uint32_t move_stride;
    uint32_t blocks;
    float pool_fraction;
    uint64_t pool_bytes;
    uint64_t reserve_bytes;
    uint64_t host_bytes; /* per shard */
    /* Blocks of the host tier in each group. If host_bytes and host_blocks are both 0, the tier
     * keeps its number of blocks. */
    uint32_t host_blocks;
    uint32_t reserved0;
} quire_migrate_desc;

/* What a migration did. Bytes are counted at the target: those of a layer's KV head once for each
 * target shard that holds it. */
typedef struct quire_migrate_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t blocks_moved;   /* over all groups: held by sequences, and cached ones */
    uint64_t blocks_dropped; /* cached ones that did not fit */
    uint64_t bytes_moved;    /* of K, V and their scales */
    uint64_t live_bytes;     /* the part of bytes_moved in blocks that sequences hold */
    uint64_t host_blocks_kept;
    uint64_t host_blocks_copied;
    uint64_t host_bytes_copied;
    uint32_t move_count;   /* moved blocks, including those of the host tier */
    uint32_t blocks_short; /* with QUIRE_S_NO_BLOCKS: missing in the shortest pool or tier */
} quire_migrate_info;

/* Moves the whole cache, or nothing: after any failure it continues to work where it is.
 *
 * The call waits for its own copies, but not for any work of the caller, except on an engine's own
 * device (vulkan.h). Until it returns, other calls on the cache that only read are answered, and
 * those that change something are QUIRE_E_BUSY. The migration needs memory for both pools at once.
 *
 * Cached blocks that no sequence holds are dropped where the target has no room for them, the least
 * recently used first. Blocks that sequences hold must fit.
 *
 * The host tier's memory is handed over, not copied, where the target's copies can reach it: on the
 * same device, and between devices of one backend whose addresses are host pointers
 * (quire_device_info.host_visible), if the shard holds the same layers and heads and the tier keeps
 * its size. The device that allocated the memory then stays in use: closing it is QUIRE_E_BUSY
 * until the cache moves again or is destroyed. Everywhere else, and with
 * QUIRE_MIGRATE_COPY_HOST_TIER, the tier is copied once, from host to host.
 *
 * In a bookkeeping-only cache only ids and sizes change. The engine copies the blocks that `moves`
 * lists, all of them from the old memory to the new; the other blocks of the new memory hold zeros.
 *
 * A leader and a follower (log.h) keep their numbers of blocks, and so their block ids: each may be
 * moved by itself, and the log continues. A follower does not know which blocks its leader has
 * cached, so that all of its blocks move. Scales, and the magnitudes that QUIRE_CACHE_CALIBRATE
 * measured, move along.
 *
 * info     what was done; written on success and with the following results.
 * Returns  QUIRE_S_NO_BLOCKS      the blocks that are live do not fit; nothing changed.
 *          QUIRE_S_INCOMPLETE     moves is too short; move_count was written, nothing changed.
 * Errors   QUIRE_E_BUSY           a step is open, or committed and not done; or another call is
 *                                 moving the cache.
 *          QUIRE_E_ARG            as in quire_cache_create; or a shard of the target would hold
 *                                 something that no shard of this cache has.
 *          QUIRE_E_UNSUPPORTED    a backend of the target cannot serve a group, or cannot move the
 *                                 tokens that are still to be moved after quire_seq_accept_path; or
 *                                 the numbers of blocks of a leader or follower would change.
 *          QUIRE_E_DEVICE_MEMORY  the pool does not fit.
 *          QUIRE_E_DEVICE_LOST    a device failed while bytes were copied.
 * Time     O(blocks of both pools + max_sequences + bytes moved). */
QUIRE_EXPORT quire_status quire_cache_migrate(quire_cache *cache, const quire_migrate_desc *desc,
                                              quire_migrate_info *info, quire_error *error);

/* As quire_cache_migrate, but first waits until the finished steps have run. Other calls continue
 * to work during the wait, and the cache's queues must not be destroyed.
 * Returns  QUIRE_S_TIMEOUT  steps still run after timeout_ns; nothing changed. UINT64_MAX waits
 *                           forever.
 * Errors   QUIRE_E_BUSY     a step is open, or committed and not finished; or a step failed and a
 *                           queue of it accepts no fence, so that nothing says when it has run.
 * Time     as quire_cache_migrate, and the wait. */
QUIRE_EXPORT quire_status quire_cache_migrate_wait(quire_cache *cache,
                                                   const quire_migrate_desc *desc,
                                                   quire_migrate_info *info, uint64_t timeout_ns,
                                                   quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_MIGRATE_H */
