/* SPDX-License-Identifier: Apache-2.0
 *
 * lease: blocks held by something that is not a sequence: a radix tree, a connector, a KV store.
 *
 * A lease holds blocks of one namespace, each as often as it was told to. It takes blocks for the
 * caller to fill, publishes what the caller filled, finds and pins what is cached, and gives all of
 * it back. Its whole-sequence keys are those of the prefixes that it publishes and finds, so
 * sequences and leases with the same namespace and keys find the same blocks.
 *
 * A radix tree that owns the slots of its requests:
 *
 *   step = begin
 *   take(lease, n) -> ids          the engine's kernels write K and V into these blocks
 *   publish(lease, tokens, ids)    -> named, the blocks that are found there from now on
 *   give(lease, ids that differ from named), commit, kernels, finish
 *   ...
 *   match(step, lease, tokens, PIN) -> ids  nothing evicts them until
 *   give(step, lease, ids)                  as often as they were pinned
 *
 * A call that changes who holds a block is a change of the open step: take, give, pin, match with
 * QUIRE_MATCH_PIN, publish. Abort undoes it, followers receive it, and the step's queues say where
 * it happens: work on a block that was given back comes before the step on its queues, or the
 * caller orders it so; the K and V of a block that is published are written there before any row of
 * the step attends. A step may have such changes and no items.
 *
 * Give and pin with step 0, and quire_lease_insert, are final at once, and need that no step is
 * open. Followers receive them with the next step. Blocks that are given back so are used by other
 * queues when all steps that are committed by then are done.
 *
 * Blocks that a lease holds are never evicted, swapped or taken by preemption, so an item that is
 * short counts them as missing. Each counts once against the namespace's quota, however often the
 * lease holds it. A block that another namespace wrote is zeroed before the lease gets it. A
 * migration reports the new ids (quire_migrate_desc.moves); the order of quire_lease_blocks stays.
 *
 * Runs of tokens are published and found in *spans* of quire_cache_info.span_tokens, each with
 * span_blocks ids: one per group; or where groups have block_tokens of their own, as many of each
 * group as fill the span, in the order of their tokens, first group 0's, then group 1's, and so on.
 * A cross group has one, which is always 0.
 *
 * Ids are those of quire_step_blocks. An id says nothing about the content: only publish and match
 * compare tokens. In a call that takes ids, each id that the lease may not name, because it is out
 * of range, or another namespace's, or held by no one, is QUIRE_E_ARG.
 *
 * If a step fails, published blocks whose content depends on it are withdrawn, and the lease still
 * holds them. A block that a publish named depends on every step that was not done at that time. A
 * block that the failed step was to zero, and that was not published without it, leaves the lease;
 * so may one that an earlier failed step was to zero, if what filled it since depends on this step.
 * quire_lease_info.blocks_lost counts both. Nothing else that the step changed of leases is taken
 * back.
 *
 * A follower keeps the blocks of its leader's leases and has no leases of its own: on it every call
 * here is QUIRE_E_UNSUPPORTED, and its statistics count none.
 *
 * Leases count among the sequences of quire_cache_desc.max_sequences. In a cache without sequences
 * they insert and find blocks of few tokens faster (QUIRE_CACHE_LEASES_ONLY).
 */
#ifndef QUIRE_LEASE_H
#define QUIRE_LEASE_H

#include "base.h"
#include "sequence.h"
#include "step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct quire_lease_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    quire_namespace ns;    /* 0: the default namespace */
    const quire_key *keys; /* [key_count], whole-sequence keys, copied; at most 64 */
    uint32_t key_count;
    uint32_t key_stride;
} quire_lease_desc;

typedef struct quire_lease_info {
    uint32_t struct_size;
    uint32_t flags; /* 0, written */
    const quire_chain *next;
    quire_namespace ns;   /* 0: the default namespace */
    uint64_t blocks_held; /* over all groups, each once */
    uint64_t holds;       /* the same, each as often as it is held */
    uint64_t blocks_lost; /* withdrawn, plus those that left the lease, by steps that failed */
} quire_lease_info;

/* The result of a call that may lack blocks. */
typedef struct quire_lease_result {
    uint32_t struct_size;
    uint32_t flags; /* 0, written */
    const quire_chain *next;
    uint32_t blocks;       /* match: spans found. publish: new ones. take and pin: as asked */
    uint32_t blocks_short; /* with QUIRE_S_NO_BLOCKS: missing in the shortest pool */
    uint32_t reason;       /* with QUIRE_S_NO_BLOCKS: QUIRE_WAIT_POOL or QUIRE_WAIT_QUOTA */
    uint32_t reserved0;
} quire_lease_result;

enum {
    QUIRE_LEASE_PUBLISHED = 1 << 0, /* the block is in the prefix tree */
    QUIRE_LEASE_OWNED = 1 << 1      /* the lease took it, so it may publish it */
};

/* A block that a lease holds. An array element: no struct head. */
typedef struct quire_lease_block {
    int32_t block;
    uint32_t holds; /* how often */
    uint32_t flags; /* QUIRE_LEASE_* */
    uint32_t reserved0;
} quire_lease_block;

/* Creates a lease that holds nothing.
 * Errors   QUIRE_E_ARG          a key is a span: a lease has no positions.
 *          QUIRE_E_STALE        no such namespace.
 *          QUIRE_E_LIMIT        as for quire_seq_create.
 *          QUIRE_E_HOST_MEMORY  not enough for it; nothing changed.
 * Time     as quire_seq_create. */
QUIRE_EXPORT quire_status quire_lease_create(quire_cache *cache, const quire_lease_desc *desc,
                                             quire_lease *out, quire_error *error);
/* Ends a lease and gives all its blocks back; published ones stay cached, the last of the lease's
 * list are evicted first. They are used by other queues when all steps that are committed by now
 * are done.
 * Errors   QUIRE_E_STALE  it was ended before.
 *          QUIRE_E_BUSY   the open step has changed it: commit or abort that step.
 * Time     O(blocks of the lease). */
QUIRE_EXPORT quire_status quire_lease_end(quire_cache *cache, quire_lease lease,
                                          quire_error *error);
/* Time     O(blocks of the lease). */
QUIRE_EXPORT quire_status quire_lease_get_info(quire_cache *cache, quire_lease lease,
                                               quire_lease_info *info, quire_error *error);
/* Lists what a lease holds in a group, from entry `first` on, including the changes of the open
 * step; `count` receives how many entries there are. A block that leaves the lease is replaced by
 * the last one of the list.
 * Returns  QUIRE_S_INCOMPLETE  capacity is too short for the rest; what fits was written.
 * Errors   QUIRE_E_ARG  `first` is past the end.
 * Time     O(capacity). */
QUIRE_EXPORT quire_status quire_lease_blocks(quire_cache *cache, quire_lease lease, uint32_t group,
                                             uint32_t first, quire_lease_block *out,
                                             uint32_t capacity, uint32_t stride, uint32_t *count,
                                             quire_error *error);

/* Takes `count` blocks of a group for the caller to fill, free ones before cached ones; each is
 * held once. The watermark is not kept, for that is about the admission of sequences, and no
 * sequence is preempted. With QUIRE_CACHE_LEASES_ONLY what it evicts stays evicted if the step is
 * aborted.
 *
 * ids      [count]
 * Returns  QUIRE_S_NO_BLOCKS  the pool or the quota is short; the lease got none of them.
 * Errors   QUIRE_E_STALE      no such lease, or no such step.
 *          QUIRE_E_BUSY       the step is committed; or the last step that changed the lease is on
 *                             another queue and not finished.
 * Time     O(count). */
QUIRE_EXPORT quire_status quire_lease_take(quire_cache *cache, quire_step step, quire_lease lease,
                                           uint32_t group, uint32_t count, int32_t *ids,
                                           quire_lease_result *result, quire_error *error);
/* Gives blocks back: the lease holds each once less, and not at all if that was its last hold. An
 * id may occur as often as the lease holds it. A block that no one holds any more stays cached if
 * it is published, else it is free: the step's own items may get it, so the step's own work must
 * not use it through the lease. So what is published and given back in one step was filled before.
 *
 * step     the open step; or 0: final at once
 * Errors   as quire_lease_take; QUIRE_E_ARG  the lease does not hold a block, or not that often;
 *                                            nothing changed.
 *          QUIRE_E_BUSY         step is 0, and one is open.
 *          QUIRE_E_HOST_MEMORY  not enough to check the ids; nothing changed.
 * Time     O(count). */
QUIRE_EXPORT quire_status quire_lease_give(quire_cache *cache, quire_step step, quire_lease lease,
                                           uint32_t group, const int32_t *ids, uint32_t count,
                                           quire_error *error);
/* Makes the lease hold blocks once more: its own, or any published block of its namespace. No
 * tokens are compared: the ids come from a match or an event, and what was evicted since may hold
 * other content of the namespace.
 *
 * step     the open step; or 0: final at once
 * Returns  QUIRE_S_NO_BLOCKS  the quota is short; nothing changed.
 * Errors   as quire_lease_take; QUIRE_E_ARG  a block is neither held by the lease nor published in
 *                                            its namespace; nothing changed.
 *          QUIRE_E_BUSY  step is 0, and one is open.
 * Time     O(count). */
QUIRE_EXPORT quire_status quire_lease_pin(quire_cache *cache, quire_step step, quire_lease lease,
                                          uint32_t group, const int32_t *ids, uint32_t count,
                                          quire_lease_result *result, quire_error *error);

enum {
    QUIRE_MATCH_LOOK = 0,  /* changes nothing */
    QUIRE_MATCH_TOUCH = 1, /* what is found is evicted as if it had been given back just now */
    QUIRE_MATCH_PIN = 2    /* the lease holds what is found once more */
};

/* Finds the longest cached run of whole spans at the front of `tokens`, all of it compared token
 * by token. In a group with a window only the blocks that the next token sees are named and pinned.
 * With QUIRE_MATCH_PIN, blocks of the host tier are brought back to the device; otherwise their
 * ids are 0. The open step's queues decide what may be read: content of an unfinished step counts
 * only on its queue.
 *
 * step     the open step; or 0, if `how` is not QUIRE_MATCH_PIN: then content of all steps counts.
 * ids      [token_count / span_tokens][span_blocks] receives the blocks; 0 where a group holds no
 *          block. Entries after result->blocks spans are not written.
 * Returns  QUIRE_S_NO_BLOCKS  QUIRE_MATCH_PIN: the quota is short, or the pool, for blocks of the
 *                             host tier; nothing changed.
 * Errors   QUIRE_E_ARG          how is unknown, or a token is QUIRE_TOKEN_UNKNOWN.
 *          QUIRE_E_UNSUPPORTED  no group of the cache has full attention.
 * Time     O(token_count). */
QUIRE_EXPORT quire_status quire_lease_match(quire_cache *cache, quire_step step, quire_lease lease,
                                            const quire_token *tokens, uint32_t token_count,
                                            uint32_t how, int32_t *ids, quire_lease_result *result,
                                            quire_error *error);
/* Publishes blocks that the caller filled: those of span i hold its tokens, of the run that begins
 * at the root of the lease's namespace and keys. The caller is trusted for their
 * content, and for nothing else. Where the tree has the same tokens already, after a comparison of
 * all of them, that block stays; the lease then holds it as well, unless it did already, and still
 * holds the caller's, which is for the caller to give back. So everything before a block that is
 * newly published is held by the lease.
 *
 * token_count  a multiple of span_tokens
 * ids      [token_count / span_tokens][span_blocks] that the lease holds. Where the tree has
 *          none, the lease must have taken it for that group (QUIRE_LEASE_OWNED), hold it alone,
 *          and not have published it elsewhere. In a group that is not of full attention 0 stands
 *          for none.
 * named    [the same] receives the block that the tree has now; may be `ids`.
 * Returns  QUIRE_S_NO_BLOCKS  the quota is short for what is held in addition; nothing changed.
 * Errors   QUIRE_E_ARG          token_count, a token or an id is wrong; nothing changed.
 *          QUIRE_E_BUSY         a block of the run is in the tree, but was computed on another
 *                               queue in a step that is not done; nothing changed.
 *          QUIRE_E_LIMIT        the run is longer than max_sequence_tokens, or the tree has no room
 *                               for it; nothing changed.
 *          QUIRE_E_UNSUPPORTED  the cache has QUIRE_CACHE_NO_PREFIX or QUIRE_CACHE_LEASES_ONLY, or
 *                               no group with full attention.
 * Time     O(token_count). */
QUIRE_EXPORT quire_status quire_lease_publish(quire_cache *cache, quire_step step,
                                              quire_lease lease, const quire_token *tokens,
                                              uint32_t token_count, const int32_t *ids,
                                              int32_t *named, quire_lease_result *result,
                                              quire_error *error);
/* quire_lease_match() without a step, of tokens as engines keep them.
 *
 * tokens   [token_count] each 0 to 2^32 - 2
 * how      QUIRE_MATCH_LOOK or QUIRE_MATCH_TOUCH
 * Errors   as quire_lease_match; QUIRE_E_HOST_MEMORY  not enough to read the tokens.
 * Time     O(token_count). */
QUIRE_EXPORT quire_status quire_lease_find(quire_cache *cache, quire_lease lease,
                                           const int64_t *tokens, uint32_t token_count,
                                           uint32_t how, int32_t *ids, quire_lease_result *result,
                                           quire_error *error);
/* Publishes blocks that the caller filled and gives them back, final at once: what an engine does
 * with a request's blocks when the request is over, where a lease holds all that is not cached. The
 * caller is trusted for their content, and for nothing else. Slot s is token s % block_tokens of
 * block s / block_tokens.
 *
 * Where the tree has the same tokens already, after a comparison of all of them, that block stays,
 * held or not as it was, and the caller's is left alone. Where it lacks them, the lease must have
 * taken the caller's block (QUIRE_LEASE_OWNED), hold it alone, and not have published it elsewhere.
 * That block is published, and the lease holds it once less. What is then cached of the run is
 * evicted as if it had been given back just now, the end first.
 *
 * tokens   [token_count] each 0 to 2^32 - 2
 * slots    [token_count] of whole blocks: slots[i] is i % block_tokens after a block's first slot
 * token_count  a multiple of block_tokens
 * named    [token_count / block_tokens] receives the block that the tree has now; not written if
 *          the call fails
 * result   blocks: newly published
 * Errors   QUIRE_E_ARG          token_count, a token or a slot is wrong; nothing changed.
 *          QUIRE_E_STALE        no such lease.
 *          QUIRE_E_BUSY         a step is open, or is not done; nothing changed.
 *          QUIRE_E_LIMIT        as quire_lease_publish; nothing changed.
 *          QUIRE_E_HOST_MEMORY  not enough to read the run; nothing changed.
 *          QUIRE_E_UNSUPPORTED  the cache has QUIRE_CACHE_NO_PREFIX, QUIRE_CACHE_HOST_PREFIXES, or
 *                               any but one group with full attention.
 * Time     O(token_count). */
QUIRE_EXPORT quire_status quire_lease_insert(quire_cache *cache, quire_lease lease,
                                             const int64_t *tokens, const int64_t *slots,
                                             uint32_t token_count, int32_t *named,
                                             quire_lease_result *result, quire_error *error);
/* Withdraws published blocks of the lease's namespace, of all groups at the same tokens: none of
 * them is found any more, nor anything after them. Those that a sequence or another lease holds
 * stay published, and do not count. In a recurrent group only the states are withdrawn: no hit ends
 * at them. `forgotten` receives how many of the ids were withdrawn.
 * Errors   QUIRE_E_ARG   a block is neither held by the lease nor published in its namespace;
 *                        nothing changed.
 *          QUIRE_E_BUSY  a step is open.
 *          QUIRE_E_UNSUPPORTED  no group of the cache has full attention.
 * Time     O(count). */
QUIRE_EXPORT quire_status quire_lease_forget(quire_cache *cache, quire_lease lease, uint32_t group,
                                             const int32_t *ids, uint32_t count,
                                             uint32_t *forgotten, quire_error *error);
/* Evicts up to `count` cached blocks of a group, whichever namespace has them, the least recently
 * used first, and with each the cached blocks of its span in the other groups. A block that is
 * held, or that unfinished work may touch, stays. The content is lost, even in a cache with
 * QUIRE_CACHE_HOST_PREFIXES. Cached blocks after it, which are in the host tier or stay, are not
 * found any more, and count as cached until they are evicted. With QUIRE_CACHE_ONE_POOL any group
 * stands for the pool, whose blocks are evicted whichever groups they are of.
 *
 * Where a group of full attention has several blocks in a span, those that are cached go together,
 * whatever may still touch the others; the call ends before a span of which they do not all fit
 * into `count`.
 *
 * ids      [count] receives the blocks of the group, or of the pool, that are free now; not those
 *          of the same spans in other groups
 * evicted  receives how many
 * Errors   QUIRE_E_BUSY  a step is open.
 * Time     O(evicted), and the cached blocks that unfinished work may touch. */
QUIRE_EXPORT quire_status quire_cache_evict(quire_cache *cache, uint32_t group, uint32_t count,
                                            int32_t *ids, uint32_t *evicted, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_LEASE_H */
