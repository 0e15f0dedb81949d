/* SPDX-License-Identifier: Apache-2.0
 *
 * step: the changes that one iteration of an engine makes to a cache.
 *
 *   begin, (add | drop | preempt)*, commit, the engine enqueues its kernels, finish
 *   begin, (add | drop | preempt)*, abort
 *
 * A step is *open* from begin to commit or abort, *committed* when its copies and tables are
 * enqueued, *finished* when the engine has said that its kernels are enqueued too, and *done* when
 * all of that has run. The library notices that a step is done during a later call on the cache:
 * after quire_queue_sync, any quire_step_begin will do. Queues and batches are in use until then.
 *
 * One step is open per cache at a time. At most QUIRE_UNFINISHED_STEPS are committed and not done,
 * so step n + 1 can be planned while step n runs.
 *
 * Steps are done in the order of their commits, whichever queues they are on: a step whose work has
 * run before that of an earlier one counts as running until that one is done. So where steps run on
 * several queues, a slow one holds back the blocks that later steps gave up, and what they
 * published for other queues, until it is done.
 *
 * Until commit a step can be undone completely, by abort. After commit only a lost device can make
 * it fail. docs/guide.md shows the loop of an engine.
 */
#ifndef QUIRE_STEP_H
#define QUIRE_STEP_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most steps that may be committed and not done. (The library keeps what depends on each of
 * them as a set of 64 bits, so the limit could rise to 64.) */
#define QUIRE_UNFINISHED_STEPS 8u

/* An item that is short of blocks may make Quire preempt other sequences. Victims are sequences
 * without an item in the step so far that were admitted after the item's sequence, or have a lower
 * priority, in the order of quire_cache_desc.victim; what a quota lacks is taken from sequences of
 * the item's own namespace alone. So the oldest sequence always makes progress. List items
 * oldest first. An item with nothing on the device never preempts, and Quire admits whatever fits:
 * hold newer items back while an older one waits. Victims give up their blocks as
 * quire_step_desc.preempt says; without room in the host tier for a swap, by recompute. */
enum { QUIRE_STEP_MAY_PREEMPT = 1 << 0 };

enum { QUIRE_PREEMPT_AUTO = 0, QUIRE_PREEMPT_SWAP = 1, QUIRE_PREEMPT_RECOMPUTE = 2 };

typedef struct quire_step_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STEP_* */
    const quire_chain *next;
    /* [queue_count], one per shard: where all of the step runs. Two steps run on the same queue,
     * and need no fence between them, if they have the same queue in every shard. */
    quire_queue *const *queues;
    uint32_t queue_count;
    uint32_t preempt;   /* QUIRE_PREEMPT_*, for QUIRE_STEP_MAY_PREEMPT */
    uint64_t queue_tag; /* bookkeeping-only caches: any number that identifies the engine's queue */
} quire_step_desc;

/* One sequence's part of a step. An array element: no struct head, no pointers.
 * The item's tokens are appended to the known tokens; then at most max_compute of the known tokens
 * that are not computed are computed in this step. token_count 0 continues with what is known. A
 * sequence has at most one item per step. */
typedef struct quire_step_item {
    quire_seq seq;
    uint32_t token_offset; /* into the token array passed with the items */
    uint32_t token_count;
    uint32_t max_compute; /* 0 = all */
    uint32_t draft_count; /* the last ones are drafts, all computed now: quire_seq_accept */
    uint32_t lookahead;   /* token places to reserve after the last known token */
    uint32_t mask_kind;   /* QUIRE_MASK_* */
    uint32_t mask_offset; /* into the token array: where the words of the mask begin */
    uint32_t mask_rows;   /* number of last known tokens that the mask describes */
    /* At most this many tokens are found, in whole blocks unless the cache has
     * QUIRE_CACHE_PARTIAL_HITS; the rest is computed, even if it is cached. 0 = no limit;
     * QUIRE_NO_HITS = none is found. Ignored if the sequence has computed tokens. */
    uint32_t max_hit_tokens;
    uint32_t flags; /* QUIRE_ITEM_MAY_LOAD */
} quire_step_item;

#define QUIRE_NO_HITS 0xFFFFFFFFu

/* If nothing of the sequence is computed, and the cache's tier holds a longer run of its first
 * tokens than the device, the item waits for that: QUIRE_ITEM_LOADING. Without the flag, nothing is
 * loaded, and a load that is ready is not used. Ignored in a cache without a tier: see
 * cache_tier.h. */
enum { QUIRE_ITEM_MAY_LOAD = 1 << 0 };

/* A mask says what the last `mask_rows` known tokens of an item see, and their positions. In the
 * cache these tokens are stored in their order, whatever their positions. All other tokens see the
 * tokens before them. A batch for such steps needs QUIRE_ATTENTION_MASK and
 * quire_batch_desc.max_mask_words.
 * A mask over tokens that are not drafts must be determined by the tokens and keys, as K and V are:
 * blocks computed under it are found by tokens and keys alone. */
enum {
    QUIRE_MASK_NONE = 0,
    /* A tree of drafts; mask_rows equals draft_count. Words: for each draft the index of its
     * parent, which is an earlier draft, or QUIRE_MASK_ROOT for the last token before the drafts. A
     * draft sees its ancestors, itself, and all tokens before the drafts; its position is its
     * parent's plus 1. */
    QUIRE_MASK_PARENTS = 1,
    /* Any mask. Words, in this order: `first`, the first key that the bits describe; the positions
     * of the mask_rows tokens, each at least the place of the first of these tokens and at most the
     * place of the last; then for each token ceil((known - first) / 32) words of bits, where known
     * includes the item's tokens. Bit i % 32 of word i / 32 is for the key at place first + i. The
     * token sees the keys before `first` and the keys whose bit is set. In a window or chunked
     * group a key must also be visible by its position. */
    QUIRE_MASK_BITS = 2
};
#define QUIRE_MASK_ROOT 0xFFFFFFFFu

enum {
    QUIRE_ITEM_WAIT = 0, /* not in this step: blocks_short are missing, and the known tokens are as
                            before; send the item again in a later step */
    QUIRE_ITEM_RUN = 1,  /* treat a value that you do not know as "not in this step" */
    /* Not in this step: its prefix is being loaded from the tier into blocks of the host tier. The
     * known tokens are as before, and nothing of the device is held. Send the item again: with the
     * same tokens or more, which load no more than the same would. With fewer of them, or a
     * max_hit_tokens below the load, it finds the first blocks of the load, and the commit gives up
     * the others. Other tokens drop the load, even if the step is aborted; so do fewer, or a lower
     * limit, where a group has a window, whose blocks are those of the whole load. It runs once the
     * load has ended, with what came of it. The load belongs to the sequence and not to the step,
     * so it outlives an abort. */
    QUIRE_ITEM_LOADING = 2
};

/* Why an item waits. */
enum {
    QUIRE_WAIT_POOL = 1,
    QUIRE_WAIT_WATERMARK = 2,
    QUIRE_WAIT_QUOTA = 3,
    /* It was preempted in this step, by an earlier item or by quire_step_preempt: send it again
     * later. */
    QUIRE_WAIT_PREEMPTED = 4
};

typedef struct quire_step_result {
    uint32_t outcome; /* QUIRE_ITEM_* */
    uint32_t reason;  /* QUIRE_WAIT_*, 0 if it runs */
    /* Tokens found by lookup, in whole blocks unless the cache has QUIRE_CACHE_PARTIAL_HITS,
     * including blocks that earlier rows of this step compute. At least one token is always left to
     * compute. */
    uint32_t hit_tokens;
    uint32_t first_position; /* of the tokens to compute */
    uint32_t compute_count;
    /* Blocks missing in the group that is shortest of them. If no step is running and all other
     * sequences and leases together hold fewer blocks than this, the item can never run: compute
     * fewer tokens at a time (quire_step_item.max_compute), or end the sequence. */
    uint32_t blocks_short;
    uint32_t row;          /* index among the items that run: its row in the batch */
    uint32_t cross_tokens; /* whose K and V the engine must write to cross groups in this step */
} quire_step_result;

/* Opens a step and adds items; item_count may be 0. Items are admitted in their order, each
 * completely in all groups or not at all, with one result per item. A later item of the same call
 * may be preempted by an earlier one; it then waits with QUIRE_WAIT_PREEMPTED. A row may read
 * blocks that an earlier row computes: in each layer, write K and V of all rows before any row
 * attends.
 * Blocks that a window or chunk has passed before the item's first position are given back at
 * commit. If the item would have to wait otherwise they are given back at once, and the item may
 * use those that no other sequence holds; under a quota no other item may use them before commit.
 * Blocks that only its later tokens have passed are still read by its earlier ones.
 *
 * tokens   [token_count] the array that the items' ranges refer to.
 * Errors   QUIRE_E_BUSY   a step is open; QUIRE_UNFINISHED_STEPS are not done; a sequence is in
 *                         the step already, has drafts that were not accepted, or has a last step
 *                         on another queue that is not finished.
 *          QUIRE_E_ARG    an item is invalid; the message names its index. No step was opened.
 *          QUIRE_E_LIMIT  an item would grow past max_sequence_tokens.
 * Time     O(items + tokens added + blocks taken, found and published): O(1) for a decoding item.
 *          An item with nothing computed is looked up in O(known tokens). Items that preempt:
 *          O(max_sequences + n log n + blocks of the n victims) each. */
QUIRE_EXPORT quire_status quire_step_begin(quire_cache *cache, const quire_step_desc *desc,
                                           const quire_step_item *items, uint32_t item_count,
                                           uint32_t item_stride, const quire_token *tokens,
                                           uint32_t token_count, quire_step_result *results,
                                           uint32_t result_stride, quire_step *out,
                                           quire_error *error);
/* Adds items to the open step, as quire_step_begin does. After an error none of them was added.
 * Time     as quire_step_begin. */
QUIRE_EXPORT quire_status quire_step_add(quire_cache *cache, quire_step step,
                                         const quire_step_item *items, uint32_t item_count,
                                         uint32_t item_stride, const quire_token *tokens,
                                         uint32_t token_count, quire_step_result *results,
                                         uint32_t result_stride, quire_error *error);
/* Removes a sequence's item from the step, and with it every later item that found blocks of it, or
 * that took a block which it had given up, to write to the block or to find its content. Their
 * sequences, the named one first, are written to dropped[capacity]; `count` receives how many there
 * are. The rows of later items move up.
 * Errors   QUIRE_S_INCOMPLETE  capacity is too short; nothing changed.
 *          QUIRE_E_BUSY        a later preemption uses what the item gave up, or a lease what it
 *                              gave up or published; nothing changed.
 * Time     O(items added since, and the blocks that they and this one took and gave up). */
QUIRE_EXPORT quire_status quire_step_drop(quire_cache *cache, quire_step step, quire_seq seq,
                                          quire_seq *dropped, uint32_t capacity, uint32_t *count,
                                          quire_error *error);
/* Makes a sequence that has no item in the step give up its blocks. It keeps its known tokens and
 * comes back with a later item. freed_blocks receives how many blocks this step can use, over all
 * groups. A swap that would keep no token, because all of them are still to be moved
 * (quire_seq_accept_path), becomes a recompute.
 * Returns  QUIRE_S_NO_BLOCKS  how is QUIRE_PREEMPT_SWAP and the host tier is short; nothing
 *                             changed.
 * Errors   QUIRE_E_BUSY       how is QUIRE_PREEMPT_SWAP and the sequence's last step, on another
 *                             queue, is not finished; or it has drafts that were not accepted.
 * Time     O(blocks of the sequence). */
QUIRE_EXPORT quire_status quire_step_preempt(quire_cache *cache, quire_step step, quire_seq seq,
                                             uint32_t how, uint32_t *freed_blocks,
                                             quire_error *error);

typedef struct quire_preemption {
    quire_seq seq;
    uint32_t how;             /* QUIRE_PREEMPT_SWAP or QUIRE_PREEMPT_RECOMPUTE */
    uint32_t chosen_by;       /* 0 the caller, 1 Quire */
    uint32_t computed_tokens; /* that it had */
    uint32_t blocks;          /* that it gave up */
    quire_seq for_seq;        /* whose item needed the blocks; 0 if the caller chose */
} quire_preemption;

/* Lists the sequences preempted in the step. Available from begin until finish.
 * Time     O(preemptions). */
QUIRE_EXPORT quire_status quire_step_preempted(quire_cache *cache, quire_step step,
                                               quire_preemption *out, uint32_t capacity,
                                               uint32_t stride, uint32_t *count,
                                               quire_error *error);

/* Undoes everything since begin. The handle is stale afterwards.
 * Time     O(items + blocks taken, found, published and given up), and O(blocks) of each sequence
 *          for which quire_seq_accept or quire_seq_set_tokens published blocks meanwhile. */
QUIRE_EXPORT quire_status quire_step_abort(quire_cache *cache, quire_step step, quire_error *error);

/* Makes the step final: its copies on write, swaps and the batch's tables are enqueued on its
 * queues.
 *
 * batch    NULL if the engine reads tables with quire_step_blocks.
 * Errors   QUIRE_E_LIMIT        the step has more rows, tokens or blocks than the batch holds; the
 *                               step is still open.
 *          QUIRE_E_BUSY         the batch still has running steps, more than it has room for or on
 *                               other queues: use another batch or wait. Or a queue of the step is
 *                               an engine's own stream and would have to wait for a step on another
 *                               queue, which itself waits for a fence without a pending signal:
 *                               signal the fence. Or the engine is capturing its stream: end the
 *                               capture. The step is still open.
 *          QUIRE_E_DEVICE_LOST  a device failed, refused its part or violated its contract (see the
 *                               message; the backend's own status is in native_code): the step was
 *                               undone as by finish with QUIRE_STEP_FAILED, and its handle is
 *                               stale. After every other error the step is still open.
 * Time     O(items + blocks taken, given up and passed by windows + entries written to the views).
 *          After quire_step_drop also O(blocks) of each sequence in the step.
 *          In a cache in which every group has a window, when the prefix tree runs short of nodes,
 *          and then each time that as many blocks as half of the pools were published:
 *          O(blocks of the pools + max_sequences). */
QUIRE_EXPORT quire_status quire_step_commit(quire_cache *cache, quire_step step, quire_batch *batch,
                                            quire_error *error);

enum { QUIRE_STEP_OK = 0, QUIRE_STEP_FAILED = 1 };

/* Says that all work of the step has been enqueued on its queues: a fence is inserted after it. In
 * a bookkeeping-only cache it says that the step is done. The handle is stale afterwards, and
 * nothing may be launched on the step's batch before its next commit.
 * Where a step failed, also at its commit, and a queue refuses the fence, the step counts as
 * running until the queue accepts one or nothing runs on the queue's device: later calls see to it.
 * Until then, the commit of a step that must come after it is QUIRE_E_DEVICE_LOST.
 *
 * QUIRE_STEP_FAILED takes *computed* back in every sequence that depends on the step
 * (QUIRE_SEQ_LOST): from the first token that the step computed, moved or copied on, or that lies
 * in a found block, or in a copy of one, which was computed on top of such a token, however
 * indirectly and by whichever sequence. Tokens that were computed anew since then do not depend on
 * it. Known tokens stay, but drafts that were not accepted are forgotten.
 * Once sequences of a second namespace have run in the cache, and always with
 * QUIRE_CACHE_ZERO_ON_FREE, a block may still show what it held before. Then a block that the step
 * was to zero or to overwrite by a copy, and that a later step has given to another sequence or
 * copied, depends on the step too while some of its slots have not been written by work that did
 * not fail: the tokens in it and the lookahead reserved in it are taken back, and the block is
 * zeroed before it is handed out again. A slot counts as written only if a sequence or the prefix
 * cache still has a token there when the step fails: lookahead does not count, nor a token that
 * was given up before (truncated, preempted, a draft that was not kept, or of a sequence that
 * ended) in a block that is not published. A token that is given up later still counts.
 *
 * signal   Where the engine's own work of the step is not on the step's queue: a semaphore, as for
 *          quire_queue_after_native, that is signalled when that work ends. The step's queue waits
 *          for it. NULL: all work is on the step's queues. Only with one shard, and not in a
 *          bookkeeping-only cache. With QUIRE_STEP_FAILED too it must be one that will be
 *          signalled: if the engine's submission failed, nothing of it runs, so pass NULL.
 * Errors   QUIRE_E_BUSY         the engine is capturing a stream of its own that is a queue of the
 *                               step: end the capture. Or, with QUIRE_STEP_FAILED, a step is open:
 *                               commit or abort it first. Nothing changed.
 *          QUIRE_E_DEVICE_LOST  a failed device takes no signal; nothing changed. Finish the step
 *                               with QUIRE_STEP_FAILED, which needs none.
 * Time     O(1); FAILED: O(blocks of the pools + max_sequences + copies of the step). */
QUIRE_EXPORT quire_status quire_step_finish(quire_cache *cache, quire_step step,
                                            const quire_native *signal, uint32_t outcome,
                                            quire_error *error);

/* Writes ids [first, first + capacity) of a sequence's block table in a group, including the
 * planned changes of the open step; `count` receives the length of the table. 0 is the null block.
 * `step` may be 0. The ids come from the library's books: no device has to be waited for.
 * Time     O(capacity). */
QUIRE_EXPORT quire_status quire_step_blocks(quire_cache *cache, quire_step step, quire_seq seq,
                                            uint32_t group, uint32_t first, int32_t *ids,
                                            uint32_t capacity, uint32_t *count, quire_error *error);

enum {
    QUIRE_COPY_ON_WRITE = 0,
    QUIRE_COPY_SWAP_OUT = 1,
    QUIRE_COPY_SWAP_IN = 2,
    QUIRE_COPY_TOKEN = 3, /* one token of a block, see quire_seq_accept_path */
    QUIRE_COPY_ZERO = 4   /* dst is zeroed, and src equals dst: see quire_namespace_create, and
                              QUIRE_CACHE_ZERO_ON_FREE */
};

/* One block to copy, from device to device, device to host or host to device; or to zero. */
typedef struct quire_block_copy {
    uint32_t kind;
    uint32_t group;
    int32_t src;
    int32_t dst;
    uint32_t src_place; /* within its block; only for QUIRE_COPY_TOKEN */
    uint32_t dst_place;
} quire_block_copy;

/* Lists the copies of an open or committed step, in the order in which they must run. In a cache
 * with memory commit enqueues them. With a bookkeeping-only cache the engine runs them after commit
 * and before its kernels.
 * Time     O(copies). */
QUIRE_EXPORT quire_status quire_step_copies(quire_cache *cache, quire_step step,
                                            quire_block_copy *out, uint32_t capacity,
                                            uint32_t stride, uint32_t *count, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_STEP_H */
