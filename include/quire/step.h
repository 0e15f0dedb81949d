/* SPDX-License-Identifier: Apache-2.0
 *
 * step: what one engine iteration changes; batch: the memory that a step's tables are written to.
 *
 * begin, (add | drop | preempt)*, then commit or abort; after commit the engine enqueues its
 * kernels, then finish. One step is open per cache at a time; several may be committed and
 * unfinished (at most QUIRE_UNFINISHED_STEPS), so that step n + 1 is planned while step n runs.
 *
 * A step is *committed* when its copies and tables are enqueued, *finished* when the engine said
 * that its kernels are too, and *done* when all of that has run, which a later call on the cache
 * notices (quire_queue_sync, then any quire_step_begin). Queues and batches are freed when done.
 *
 * A step is all promises until commit: abort undoes every effect. After commit only a lost device
 * fails it.
 */
#ifndef QUIRE_STEP_H
#define QUIRE_STEP_H

#include "attention.h"
#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most steps that are committed and not done. (What depends on each of them is kept as a set of
 * 64 bits: it could grow that far.) */
#define QUIRE_UNFINISHED_STEPS 8u

/* With it an item that is short of blocks makes Quire preempt sequences that have no item in the
 * step yet: those that quire_cache_desc.victim names first, and only ones that were admitted after
 * the item's own (or have a lower priority), so that the oldest always gets through. So list items
 * oldest first. Items whose sequence has nothing on the device never preempt, and Quire admits
 * whatever fits: hold newer items back while an older one waits. How: quire_step_desc.preempt; a
 * swap that the host tier has no room for becomes a recompute. */
enum { QUIRE_STEP_MAY_PREEMPT = 1 << 0 };

enum { QUIRE_PREEMPT_AUTO = 0, QUIRE_PREEMPT_SWAP = 1, QUIRE_PREEMPT_RECOMPUTE = 2 };

typedef struct quire_step_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_STEP_* */
    const quire_chain *next;
    /* [queue_count], one a shard: where all of the step runs. Steps are on the same queue, and need
     * no fence between them, when every shard's is the same. */
    quire_queue *const *queues;
    uint32_t queue_count;
    uint32_t preempt;   /* QUIRE_PREEMPT_*, for QUIRE_STEP_MAY_PREEMPT */
    uint64_t queue_tag; /* bookkeeping-only caches: any number that names the engine's queue */
} quire_step_desc;

/* What a sequence wants of the step. An element of an array: no struct head, no pointer.
 * The tokens extend what is known; then at most max_compute of the known, not computed tokens are
 * computed now. token_count 0 goes on with what is known. One item a sequence and step. */
typedef struct quire_step_item {
    quire_seq seq;
    uint32_t token_offset; /* into the tokens given beside the items */
    uint32_t token_count;
    uint32_t max_compute; /* 0 = all */
    uint32_t draft_count; /* the last ones are provisional, all computed now: quire_seq_accept */
    uint32_t lookahead;   /* slots to reserve behind the last known token */
    uint32_t mask_kind;   /* QUIRE_MASK_* */
    uint32_t mask_offset; /* into the tokens given beside the items: where the mask's words begin */
    uint32_t mask_rows;   /* how many of the last known tokens the mask is about */
} quire_step_item;

/* What the last `mask_rows` known tokens of an item see, and their positions. They lie one behind
 * another in the cache, whatever their positions; other tokens see what comes before them. Batches
 * that are to hold masks say so: QUIRE_ATTENTION_MASK, quire_batch_desc.max_mask_words.
 * A mask over tokens that are no drafts must follow from the tokens and keys, as K and V do: blocks
 * that were computed under it are found by those. */
enum {
    QUIRE_MASK_NONE = 0,
    /* A tree of drafts; mask_rows is draft_count. Words: for each draft the index of its parent,
     * an earlier draft, or QUIRE_MASK_ROOT for the last token before the drafts. A draft sees its
     * ancestors, itself and all that comes before the drafts; its position is one above its
     * parent's. */
    QUIRE_MASK_PARENTS = 1,
    /* Anything. Words: the first key that the bits are about; the positions of the mask_rows
     * tokens, none below where the first of them lies nor above the last's; then for each of them
     * its bits, bit i % 32 of word i / 32 for the key at place first + i, ceil((known - first) /
     * 32) words a row, known counting the item's tokens. It sees the keys before `first`, and those
     * whose bit is set. In a window or chunked group it must be in sight by its position too. */
    QUIRE_MASK_BITS = 2
};
#define QUIRE_MASK_ROOT 0xFFFFFFFFu

enum {
    QUIRE_ITEM_WAIT = 0, /* not in this step: blocks_short are missing; known is as before */
    QUIRE_ITEM_RUN = 1   /* treat a value that you do not know as "not in this step" */
};

/* Why an item waits. */
enum {
    QUIRE_WAIT_POOL = 1,
    QUIRE_WAIT_WATERMARK = 2,
    QUIRE_WAIT_QUOTA = 3,
    QUIRE_WAIT_PREEMPTED = 4 /* it gave up its blocks in this step: add it to a later one */
};

typedef struct quire_step_result {
    uint32_t outcome; /* QUIRE_ITEM_* */
    uint32_t reason;  /* QUIRE_WAIT_*, 0 when it runs */
    /* Found by lookup, those that earlier rows compute included: whole blocks, and one token at
     * least is always left to compute. */
    uint32_t hit_tokens;
    uint32_t first_position; /* of the tokens to compute */
    uint32_t compute_count;
    /* In the group that is shortest of blocks. If no step is running and all other sequences
     * together hold fewer, the item will wait for ever: compute fewer tokens at a time
     * (quire_step_item.max_compute), or end the sequence. */
    uint32_t blocks_short;
    uint32_t row;          /* index among the items that run: its row in the batch */
    uint32_t cross_tokens; /* whose K and V the engine must write into cross groups in this step */
} quire_step_result;

/* Opens a step and adds items; item_count may be 0. Items are handled in their order, each all or
 * nothing over all groups, and results are written one an item. A later item of the same call may
 * be preempted by an earlier one; it then waits with QUIRE_WAIT_PREEMPTED. A row may read blocks
 * that an earlier row computes: of each layer write all rows' K and V before any row attends.
 * Blocks that a window or chunk has passed by an item's first position are given back at commit, or
 * at once when the item would have to wait otherwise: then it may have them itself, if no other
 * sequence holds them. What only its later tokens have passed, its earlier ones still read.
 *
 * tokens   [token_count] the flat array that the items' ranges point into.
 * Errors   QUIRE_E_BUSY   a step is open, QUIRE_UNFINISHED_STEPS are unfinished, a sequence has
 *                         drafts that were not accepted, or the step's own queue is another cache's
 *                         device.
 *          QUIRE_E_ARG    an item is wrong; the message names its index. No step was opened.
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
/* Adds items to the open step, as quire_step_begin does. On an error none of them was added.
 * Time     as quire_step_begin. */
QUIRE_EXPORT quire_status quire_step_add(quire_cache *cache, quire_step step,
                                         const quire_step_item *items, uint32_t item_count,
                                         uint32_t item_stride, const quire_token *tokens,
                                         uint32_t token_count, quire_step_result *results,
                                         uint32_t result_stride, quire_error *error);
/* Takes a sequence's item back, and with it later items that hit its blocks, or took a block that
 * it
 * gave up, to write in it or to find its content. Their sequences, the named one first, are
 * written to dropped[capacity]; `count` gets how
 * many. Rows behind it move up.
 * Errors   QUIRE_S_INCOMPLETE  capacity is too short; nothing changed.
 *          QUIRE_E_BUSY        a later preemption uses what the item gave up; nothing changed.
 * Time     O(items added since, and the blocks that they and this one took and gave up). */
QUIRE_EXPORT quire_status quire_step_drop(quire_cache *cache, quire_step step, quire_seq seq,
                                          quire_seq *dropped, uint32_t capacity, uint32_t *count,
                                          quire_error *error);
/* Gives up the blocks of a sequence that is not in the step. It keeps its known tokens and comes
 * back by being added again. freed_blocks counts those that this step can use, over all groups.
 * A swap that would keep no token, for all of them are to be moved (quire_seq_accept_path), is a
 * recompute.
 * Returns  QUIRE_S_NO_BLOCKS  how is QUIRE_PREEMPT_SWAP and the host tier is short; nothing
 *                             changed.
 * Errors   QUIRE_E_BUSY       how is QUIRE_PREEMPT_SWAP and its last step, on another queue, is not
 *                             finished; or it has drafts that were not accepted.
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
    quire_seq for_seq;        /* whose item needed the room; 0 when the caller chose */
} quire_preemption;

/* Lists who was preempted in the step, from begin until finish.
 * Time     O(preemptions). */
QUIRE_EXPORT quire_status quire_step_preempted(quire_cache *cache, quire_step step,
                                               quire_preemption *out, uint32_t capacity,
                                               uint32_t stride, uint32_t *count,
                                               quire_error *error);

/* Undoes everything since begin. The handle is stale afterwards.
 * Time     O(items + blocks taken, found, published and given up), and O(blocks) of each sequence
 *          that quire_seq_accept or quire_seq_set_tokens published beside the step. */
QUIRE_EXPORT quire_status quire_step_abort(quire_cache *cache, quire_step step, quire_error *error);

/* Makes the step real: copies on write, swaps and the batch's tables are enqueued on its queues.
 *
 * batch    NULL when the engine reads tables with quire_step_blocks.
 * Errors   QUIRE_E_LIMIT        the step has more rows, tokens or blocks than the batch holds;
 *                               still open.
 *          QUIRE_E_BUSY         the batch's last steps still run, more than it has room for or on
 *                               other queues: use another batch or wait. Or a queue of the
 *                               step's is an engine's own and has to wait for a step on another,
 *                               which waits for a fence that nobody has signalled: signal it.
 *                               Or the engine captures its stream: end that. Still open.
 *          QUIRE_E_DEVICE_LOST  a device refused its part, for whatever reason (message; the
 *                               backend's own status is in native_code), or QUIRE_E_BACKEND, the
 *                               backend broke its contract: the step was undone as by finish with
 *                               QUIRE_STEP_FAILED, and its handle is stale. Every other error
 *                               leaves the step open.
 * Time     O(items + blocks taken, given up and passed by windows + entries written to the views).
 *          After quire_step_drop, and O(blocks) of each sequence in the step.
 *          Where every group has a window and the prefix tree runs short of nodes, then and when
 *          again as many blocks as half of the pools were published: O(blocks of the pools +
 *          max_sequences). */
QUIRE_EXPORT quire_status quire_step_commit(quire_cache *cache, quire_step step, quire_batch *batch,
                                            quire_error *error);

enum { QUIRE_STEP_OK = 0, QUIRE_STEP_FAILED = 1 };

/* Says that everything of the step has been enqueued on its queues: a fence goes behind it. In a
 * bookkeeping-only cache it says that the step is done. QUIRE_STEP_FAILED takes *computed* back in
 * every sequence that depends on the step (QUIRE_SEQ_LOST): from the first token that the step
 * computed, moved or copied on, or that lies in a found block which was computed on top of such a
 * token, by whomever and however far removed. Tokens that were computed anew since do not. Known
 * tokens stay, but drafts that were not accepted are forgotten. The handle is stale afterwards, and
 * nothing may be launched on the step's batch before its next commit.
 * A block that the step was to zero or to copy over, and that a later step has handed to another
 * sequence or copied on, depends on it too while some of its slots are not written by work that did
 * not fail: its tokens, and lookahead reserved in it, are taken back, and it is zeroed before it is
 * handed out again.
 *
 * signal   What the engine's own work of the step ends with, where that is not on the step's queue:
 *          a semaphore as in quire_queue_after_native, for which the step's queue then waits.
 *          NULL: all is on its queues. Only with one shard, and not in a bookkeeping-only cache.
 *          With QUIRE_STEP_FAILED too, so only one that will be signalled: where the engine's
 *          submission failed nothing of it runs, and NULL is right.
 * Errors   QUIRE_E_BUSY         the engine captures a stream of its own that is one of the step's
 *                               queues: end the capture. Or with QUIRE_STEP_FAILED a step is open:
 *                               commit or abort it first. Nothing changed.
 *          QUIRE_E_DEVICE_LOST  a device that failed takes no signal; nothing changed. Finish the
 *                               step with QUIRE_STEP_FAILED: then none is needed.
 * Time     O(1); FAILED: O(blocks of the pools + max_sequences + copies of the step). */
QUIRE_EXPORT quire_status quire_step_finish(quire_cache *cache, quire_step step,
                                            const quire_native *signal, uint32_t outcome,
                                            quire_error *error);

/* Writes ids [first, first + capacity) of a sequence's block table in a group, planned changes of
 * the open step included; `count` gets the table's length. 0 is the null block. `step` may be 0.
 * Time     O(capacity). */
QUIRE_EXPORT quire_status quire_step_blocks(quire_cache *cache, quire_step step, quire_seq seq,
                                            uint32_t group, uint32_t first, int32_t *ids,
                                            uint32_t capacity, uint32_t *count, quire_error *error);

enum {
    QUIRE_COPY_ON_WRITE = 0,
    QUIRE_COPY_SWAP_OUT = 1,
    QUIRE_COPY_SWAP_IN = 2,
    QUIRE_COPY_TOKEN = 3, /* one token of a block, see quire_seq_accept_path */
    QUIRE_COPY_ZERO = 4   /* dst gets zeros, src is dst: see quire_namespace_create, and
                              QUIRE_CACHE_ZERO_ON_FREE */
};

/* One block to move: device to device, device to host, host to device; or to be zeroed. */
typedef struct quire_block_copy {
    uint32_t kind;
    uint32_t group;
    int32_t src;
    int32_t dst;
    uint32_t src_place; /* within its block; only for QUIRE_COPY_TOKEN */
    uint32_t dst_place;
} quire_block_copy;

/* Lists the copies of an open or committed step, in the order in which they must run. A
 * bookkeeping-only engine executes them after commit, before its kernels.
 * Time     O(copies). */
QUIRE_EXPORT quire_status quire_step_copies(quire_cache *cache, quire_step step,
                                            quire_block_copy *out, uint32_t capacity,
                                            uint32_t stride, uint32_t *count, quire_error *error);

/* Which views a batch keeps. */
enum {
    QUIRE_VIEW_BLOCK_TABLE =
        1 << 0,                /* int32 [rows][max_blocks_per_row], as vLLM and FlashAttention */
    QUIRE_VIEW_CSR = 1 << 1,   /* int32 indptr, indices, last_page_len, as FlashInfer */
    QUIRE_VIEW_SLOTS = 1 << 2, /* int64, one a new token: block * block_tokens + offset */
    QUIRE_VIEW_CONTEXT_SLOTS = 1 << 3, /* int32, one a context token, as SGLang and ggml */
    QUIRE_VIEW_LENGTHS = 1 << 4,       /* int32 [rows]: context length, new tokens included */
    QUIRE_VIEW_POSITIONS = 1 << 5,     /* int32, one a new token */
    QUIRE_VIEW_CU_Q = 1 << 6,          /* int32 [rows + 1]: where each row's new tokens begin */
    /* What items' masks say: mask uint32 words; mask_rows int32 a new token, where its bits begin
     * in the words, -1 = it has none; mask_first int32 [rows], the first key they are about. */
    QUIRE_VIEW_MASK = 1 << 7,
    QUIRE_VIEW_SHARED_PREFIX = 1 << 8 /* int32 [rows]: entries that equal the row before's */
};

enum {
    QUIRE_BATCH_PAD_NULL_SLOT =
        1 << 0, /* pad slots with 0, a slot of the null block, instead of -1; no calibration
                    measures what is written there */
    /* Find out what of each row's table is the same as in the row before it, so that attention may
     * read a common prefix once for all of them. List such items one behind another. */
    QUIRE_BATCH_SHARED_PREFIX = 1 << 1
};

typedef struct quire_batch_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_BATCH_* */
    const quire_chain *next;
    uint32_t max_rows;
    uint32_t max_blocks_per_row;
    uint32_t max_query_tokens;
    uint32_t max_context_tokens; /* of all rows, for CSR (in blocks of tokens) and context slots */
    uint32_t views;              /* QUIRE_VIEW_*; attention adds what it needs */
    /* 0: tables only. 1: for all groups and shards. One a group, for all shards; or
     * [shard][group]. */
    uint32_t attention_count;
    uint32_t attention_stride;
    /* Of all rows, each mask_rows * ceil(mask_rows / 32); 0: steps with masks are refused. */
    uint32_t max_mask_words;
    const quire_attention_desc *attention;
    uint32_t max_cross_tokens; /* written in one step, over all rows */
    uint32_t reserved0;
} quire_batch_desc;

/* Fixed addresses for the life of the batch; 0 where the view is not kept. The shard's
 * device addresses in a cache with memory, host addresses in a bookkeeping-only cache. Rows behind
 * row_count hold padding: block 0, length 0, slot -1 (or 0), position 0, and cu_q repeats its last
 * value. A block table's entries behind the row's last block are 0.
 *
 * Graphs: what was captured of the calls of a step (device.h, quire_queue_create) serves later
 * steps that are committed into the batch, launched in their place between commit and finish, on
 * the queue's stream. Capturing runs nothing: for its own step the graph is launched too. It holds
 * the addresses of q, K, V and results, and serves steps
 *   - of no more rows and new tokens than that step had: with more of these, attention stops the
 *     queue, and the step fails
 *   - of contexts of up to max_blocks_per_row blocks
 *   - with masks, and q that is turned, only if that step had them
 * Rows and tokens behind row_count are padding to it, and their results stay as they were; but q
 * that is turned with K is turned in padding too, by position 0. It serves until the cache is
 * migrated, and is destroyed before the batch and the queue. To capture before there is work,
 * commit a step of as many new sequences as the graph is for, capture, finish with
 * QUIRE_STEP_FAILED, and end them. */
typedef struct quire_batch_views {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t block_table;
    uint64_t csr_indptr; /* [rows + 1] */
    uint64_t csr_indices;
    uint64_t csr_last_page_len; /* [rows] */
    uint64_t slots;
    uint64_t context_slots; /* rows one behind another, cu by lengths */
    uint64_t lengths;
    uint64_t positions;
    uint64_t cu_q;
    uint32_t block_table_stride; /* elements a row */
    uint32_t row_count;          /* of the last commit */
    uint32_t query_tokens;       /* of the last commit */
    uint32_t max_length;         /* longest context of the last commit; in a cross group of those */
    uint64_t mask;
    uint64_t mask_rows;
    uint64_t mask_first;
    uint64_t shared_prefix;
    uint32_t write_tokens; /* entries of slots: query_tokens, in a cross group cross tokens */
    uint32_t reserved0;
} quire_batch_views;

/* Makes a batch of a cache. Errors   QUIRE_E_UNSUPPORTED  an attention option that no kernel
 * instance of the backend serves; or context slots in a pool of 2^31 slots or more.
 * Time     O(entries of the views). */
QUIRE_EXPORT quire_status quire_batch_create(quire_cache *cache, const quire_batch_desc *desc,
                                             quire_batch **out, quire_error *error);
/* Errors   QUIRE_E_BUSY  a step that was committed into it is not done.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_batch_destroy(quire_batch *batch, quire_error *error);
/* Time     O(1). */
QUIRE_EXPORT quire_status quire_batch_get_views(quire_batch *batch, uint32_t group, uint32_t shard,
                                                quire_batch_views *views, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_STEP_H */
