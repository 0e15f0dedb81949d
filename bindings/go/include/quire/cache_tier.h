/* SPDX-License-Identifier: Apache-2.0
 *
 * cache_tier: a store below a cache's prefixes. Cached blocks are written to it, and an item whose
 * prompt begins with what the store holds loads that instead of computing it.
 *
 *   quire_cache_attach_tier(cache, tier, &desc, &error);
 *   item.flags = QUIRE_ITEM_MAY_LOAD;
 *   quire_step_begin(...)          the item's outcome is QUIRE_ITEM_LOADING: leave it out
 *   ...                            other items run; each call on a step makes progress
 *   quire_step_begin(...)          the same item again: QUIRE_ITEM_RUN, hit_tokens from the store
 *   quire_cache_detach_tier_wait(cache, UINT64_MAX, &error);
 *
 * The library has no thread for this. Answers are read, values checked and writes begun within
 * quire_step_begin, quire_step_finish and the calls here, not in quire_step_add; only those named
 * _wait wait for the store or a device. An engine that has nothing else to run waits in
 * quire_cache_load_wait, or polls the descriptor of quire_cache_tier_progress.
 *
 * Found          The longest run of whole blocks from the first token on that the device and the
 *                store have together, of the same fingerprint, tenant, keys and tokens. A sequence
 *                asks once, and not again if that came to nothing, whatever its tokens are then:
 *                again only after other tokens dropped a load that was running or ready, after it
 *                was computed, or if the device has lost what a load was to continue, for which
 *                the item then waits once more.
 *                A store that does not know from memory what it has (QUIRE_STORE_UNKNOWN) is asked,
 *                and the item waits for these answers too. docs/tiers.md says how a block is named.
 *                Every value is checked when it arrives. If one is gone, wrong in any way or not to
 *                be read, the load ends before its block: the item finds the blocks before it, if
 *                these are still enough for a load, and computes the rest. In a cache with a window
 *                group such a load is a miss as a whole.
 * Tenants        A namespace is named by quire_namespace_desc.key, the default one by its being the
 *                default; one without a key has no name outside of the cache, so nothing of it is
 *                written or loaded. Two namespaces with equal keys are one tenant.
 * Failure        A store that is slow, full, damaged or gone costs hits, and never a step: a load
 *                that does not end in time is a miss, and a block that cannot be written is not.
 * Trust          Whoever can write to the store decides what the model reads.
 *
 * Leaders and followers (log.h) have a store each, or one that all share, and keep in it the layers
 * and heads that they hold. The leader decides; its log says which blocks are loaded, where to, and
 * which are written, and every rank does that with its part. A load is ready once all of them have
 * it, and is as long as on the rank that has least, so followers report to the leader:
 *
 *   leader     begin ... commit;  step_log;  send;      ...  receive;  quire_cache_take_report
 *   follower                      receive;  log_apply;  ...  quire_cache_report_loads;  send
 *
 * - The leader learns of an item that is LOADING in quire_step_begin; followers learn of it from
 *   the log of that step. Commit it even if it has no other item, and send its log before waiting.
 * - A follower without a store reports each load as a miss at once, and so must be asked too.
 * - A report that is lost costs its loads load_timeout_ns, and then they are computed.
 * - Give all ranks the same fingerprint. The leader's `write` decides which blocks are written; a
 *   follower writes them unless its own is QUIRE_TIER_WRITE_NONE. While the leader has leases, its
 *   followers write nothing.
 * - Detach the leader's tier first, then commit one more step, which may be empty, and let the
 *   followers apply its log: it says what the detach wrote. Then detach theirs.
 * - A follower whose device failed has stopped, and its store takes nothing more of it.
 */
#ifndef QUIRE_CACHE_TIER_H
#define QUIRE_CACHE_TIER_H

#include "base.h"
#include "tier.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which cached blocks are written to the store. */
enum {
    QUIRE_TIER_WRITE_NONE = 0,
    QUIRE_TIER_WRITE_THROUGH = 1,   /* each block, once the step that computes it has run */
    QUIRE_TIER_WRITE_SELECTIVE = 2, /* each block that an item found on the device once */
    QUIRE_TIER_WRITE_BACK = 3       /* each block that is soon to be evicted, oldest first, and at
                                       detach each that is cached and in no sequence */
};

typedef struct quire_cache_tier_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    /* Names the model's weights and everything else that decides K and V and that Quire does not
     * know: another fingerprint finds nothing of this one. */
    uint8_t fingerprint[32];
    uint32_t write;           /* QUIRE_TIER_WRITE_* */
    uint32_t min_load_tokens; /* a load must bring so many more tokens than the device has; 0 = one
                                 block */
    uint64_t load_timeout_ns; /* a load that takes longer is a miss; 0 = 2 s */
    uint64_t load_expiry_ns;  /* a load that is ready, and for which no item is sent for so long, is
                                 dropped; 0 = 10 s */
    uint64_t max_load_bytes;  /* asked for at once; 0 = 64 MiB */
    uint64_t max_write_bytes; /* given to the store at once; 0 = 16 MiB */
    /* Blocks of the store of which a reader of events is told, at most 2^26; past it the oldest are
     * told as removed. 0 = 65,536. Each takes about 100 bytes and its tokens, from the attachment
     * on, in a cache with QUIRE_CACHE_EVENTS. */
    uint64_t max_told_blocks;
    /* How many followers apply the logs of a leader (log.h), 1 to 63. 0 for all other caches. */
    uint32_t followers;
    uint32_t reserved0;
} quire_cache_tier_desc;

typedef struct quire_cache_tier_progress {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t loads_running;
    uint32_t loads_ready;   /* for an item to use */
    uint64_t loads_ended;   /* since the tier was attached, whatever came of them */
    uint64_t blocks_queued; /* to be written, or being written */
    int32_t descriptor;     /* poll() reports it readable when the store has answered; the store's:
                               not to be read or closed. -1: the store has no such thing */
    uint32_t reserved0;
} quire_cache_tier_progress;

/* Counts since the tier was attached. A block counts once for each group. */
typedef struct quire_cache_tier_stats {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t loads_begun;
    uint64_t loads_ready;
    uint64_t loads_used;    /* whose blocks a committed step swapped in */
    uint64_t loads_missed;  /* a value was gone, damaged or foreign, or the store was asked and did
                                 not have it, and too little was left */
    uint64_t loads_failed;  /* the store refused the request, or FAILED to find or to read a
                                 block, and too little was left */
    uint64_t loads_late;    /* past load_timeout_ns */
    uint64_t loads_expired; /* past load_expiry_ns */
    uint64_t loads_cancelled; /* by quire_cache_cancel_load, with their sequence, by an item with
                                 other tokens or that needed nothing of it, a reset, a migration or
                                 a detach, or because the device has lost the blocks before them */
    uint64_t loads_short; /* not begun, or ended once the store had said what it has: the host tier
                                 had too few free blocks, or too many loads are running */
    uint64_t tokens_loaded;  /* by loads that were used, beyond what the device had */
    uint64_t bytes_loaded;   /* of values that arrived and were right */
    uint64_t values_damaged; /* that arrived and failed their check */
    uint64_t values_foreign; /* of another model, tenant, prefix, cache or size */
    uint64_t blocks_written; /* a put was DONE, also where the store had the value */
    uint64_t bytes_written;
    uint64_t blocks_known;   /* not written: a store that is not REMOTE has them */
    uint64_t blocks_refused; /* the store was full or failed */
    uint64_t blocks_dropped; /* not written: the queue was full, or the tier was detached */
    uint64_t blocks_evicted; /* not written: they left the cache first */
    uint64_t blocks_lost;    /* that loads were to bring and did not, because their value, or that
                                of a block before them, was gone, damaged, foreign or not to be
                                read */
} quire_cache_tier_stats;

/* Puts a tier below the cache. From now on it serves this cache alone: quire_tier_request_wait and
 * quire_tier_close_wait are QUIRE_E_BUSY until it is detached.
 *
 * Errors   QUIRE_E_BUSY         the cache has a tier, the tier a cache, or requests of
 *                               quire_tier_request_wait are still under way.
 *          QUIRE_E_ARG          a field is out of range; the store takes no value as large as a
 *                               block, or is open READ_ONLY and desc.write is not NONE; more
 *                               followers than desc.followers have reported.
 *          QUIRE_E_UNSUPPORTED  the cache keeps books only, has no host tier
 *                               (quire_cache_desc.host_bytes), finds no prefixes
 *                               (QUIRE_CACHE_NO_PREFIX), has a cross-attention group, or is a rank
 *                               whose shards hold no rectangle of layers and heads of a group.
 *          QUIRE_E_STALE        the tier served a cache that was abandoned.
 * Time     O(max_sequences + blocks). */
QUIRE_EXPORT quire_status quire_cache_attach_tier(quire_cache *cache, quire_tier *tier,
                                                  const quire_cache_tier_desc *desc,
                                                  quire_error *error);
/* Takes the tier away: loads are cancelled; blocks that wait to be written and whose step has run
 * are written; the store is flushed.
 * Returns  QUIRE_S_TIMEOUT  not in time: the tier is still attached, loads nothing and takes no
 *                           more blocks; call this again. A request that the store never answers
 *                           keeps its memory, so this lasts: quire_cache_abandon gives up then, and
 *                           the tier can be closed, but serves no other cache.
 * Errors   QUIRE_E_ARG      the cache has no tier.
 *          QUIRE_E_BUSY     a step is open.
 * Time     O(blocks queued), and what the store takes. */
QUIRE_EXPORT quire_status quire_cache_detach_tier_wait(quire_cache *cache, uint64_t timeout_ns,
                                                       quire_error *error);
/* Makes progress and says how far it is.
 * Errors   QUIRE_E_ARG      the cache has no tier.
 *          QUIRE_E_BACKEND  the store broke its contract. The tier loads and writes nothing more:
 *                           detach it.
 *          and those of a device that does not say whether the cache's steps have run.
 * Time     O(loads + answers + bytes of the values that arrived or are written, of at most 16 MiB
 *          and a block). */
QUIRE_EXPORT quire_status quire_cache_poll_tier(quire_cache *cache,
                                                quire_cache_tier_progress *progress,
                                                quire_error *error);
/* Waits until a load ends; returns at once if none is running. progress may be NULL. A leader's
 * load ends only with the followers' reports: take them before, or on another thread.
 * Returns  QUIRE_S_TIMEOUT  none ended in time.
 * Errors   as quire_cache_poll_tier.
 * Time     what the store takes. */
QUIRE_EXPORT quire_status quire_cache_load_wait(quire_cache *cache, uint64_t timeout_ns,
                                                quire_cache_tier_progress *progress,
                                                quire_error *error);
/* On a follower: makes progress, and writes the next report for its leader, which says how the
 * loads went that have ended here since the last one. Send it to the leader, which takes the
 * reports of a follower in their order. Each load is in one report, so one that is not sent is
 * lost. docs/follower-log.md describes the bytes.
 *
 * buffer      [capacity] receives the report; may be NULL if capacity is 0.
 * size_bytes  receives the size of the report; 0: there is nothing to report.
 * Returns  QUIRE_S_INCOMPLETE   capacity is too short; nothing was written, and the report is still
 *                               due.
 * Errors   QUIRE_E_UNSUPPORTED  the cache follows no leader.
 *          and those of a device that does not say whether the cache's steps have run.
 * Time     as quire_cache_poll_tier. */
QUIRE_EXPORT quire_status quire_cache_report_loads(quire_cache *cache, void *buffer,
                                                   uint64_t capacity, uint64_t *size_bytes,
                                                   quire_error *error);
/* On a leader: takes a report of a follower, with or without a tier, and makes progress. What it
 * says of loads that have ended here meanwhile is ignored. A report need not be trusted to be read:
 * a damaged or foreign one is refused. Reports are not authenticated: whoever can write to the
 * channel can say that a follower has blocks that it does not have.
 *
 * bytes    [size_bytes] of any alignment, from any source.
 * Errors   QUIRE_E_ARG           the report is damaged, repeated, older than one that was taken, of
 *                                another leader's follower, or of one more follower than
 *                                quire_cache_tier_desc.followers. Nothing changed.
 *          QUIRE_E_INCOMPATIBLE  the report's format has another version. Nothing changed.
 *          QUIRE_E_UNSUPPORTED   the cache leads no others. Nothing changed.
 *          and those of a device that does not say whether the cache's steps have run. Nothing
 *          changed.
 * Time     O(size_bytes), and as quire_cache_poll_tier. */
QUIRE_EXPORT quire_status quire_cache_take_report(quire_cache *cache, const void *bytes,
                                                  uint64_t size_bytes, quire_error *error);
/* Drops the sequence's load, if it has one; the next item that may load begins anew.
 * Errors   QUIRE_E_BUSY  an item of the open step uses it: drop the item first.
 *          QUIRE_E_ARG   the cache has no tier.
 * Time     O(blocks of the load). */
QUIRE_EXPORT quire_status quire_cache_cancel_load(quire_cache *cache, quire_seq seq,
                                                  quire_error *error);
/* Errors   QUIRE_E_ARG  the cache has no tier.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_cache_get_tier_stats(quire_cache *cache,
                                                     quire_cache_tier_stats *stats,
                                                     quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_CACHE_TIER_H */
