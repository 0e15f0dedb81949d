/* SPDX-License-Identifier: Apache-2.0
 *
 * batch: the memory that a step's tables are written to, in the layouts that kernels read.
 *
 * A batch belongs to one cache. quire_step_commit writes the tables of a step into it, and
 * quire_kv_write and quire_attend (attention.h) read them there.
 *
 * Graphs. The addresses of a batch's views never change, so a graph that captured the calls of one
 * step (quire_queue_create says which calls) serves later steps: commit each into the same batch,
 * and launch the graph between commit and finish, on the queue's stream. Capturing runs nothing, so
 * launch the graph for the step that was captured too.
 *   A graph holds the addresses of q, K, V and results. It serves steps
 *     - with at most as many rows and new tokens as the captured step; with more of them attention
 *       stops the queue, and the step fails
 *     - whose contexts have at most max_blocks_per_row blocks
 *     - with masks, and with q that is rotated, only if the captured step had them
 *   Rows and tokens past row_count are padding. Their results are left as they were; but q that is
 *   rotated together with K is rotated in padding too, at position 0.
 *   A graph is valid until the cache is migrated. Destroy it before the batch and the queue.
 *   To capture before there is work, commit a step with as many new sequences as the graph is for,
 *   capture, finish with QUIRE_STEP_FAILED, and end the sequences.
 */
#ifndef QUIRE_BATCH_H
#define QUIRE_BATCH_H

#include "attention.h"
#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which views a batch keeps. */
enum {
    /* int32 [rows][max_blocks_per_row], as vLLM and FlashAttention */
    QUIRE_VIEW_BLOCK_TABLE = 1 << 0,
    QUIRE_VIEW_CSR = 1 << 1,           /* int32 indptr, indices, last_page_len, as FlashInfer */
    QUIRE_VIEW_SLOTS = 1 << 2,         /* int64 per new token: block * block_tokens + offset */
    QUIRE_VIEW_CONTEXT_SLOTS = 1 << 3, /* int32 per context token, as SGLang and ggml */
    QUIRE_VIEW_LENGTHS = 1 << 4,       /* int32 [rows]: context length, including new tokens */
    QUIRE_VIEW_POSITIONS = 1 << 5,     /* int32 per new token */
    QUIRE_VIEW_CU_Q = 1 << 6,          /* int32 [rows + 1]: where each row's new tokens begin */
    /* The items' masks: mask, uint32 words; mask_rows, int32 per new token, where its bits begin in
     * the words, -1 = it has none; mask_first, int32 [rows], the first key that they describe. */
    QUIRE_VIEW_MASK = 1 << 7,
    QUIRE_VIEW_SHARED_PREFIX = 1 << 8 /* int32 [rows]: leading entries equal to the row before */
};

enum {
    /* Pad slots with 0, a slot of the null block, instead of -1. Calibration ignores values written
     * there. */
    QUIRE_BATCH_PAD_NULL_SLOT = 1 << 0,
    /* Find the leading entries of each row's table that equal those of the row before it, so that
     * attention may read a common prefix once for all of these rows. List such items next to each
     * other. */
    QUIRE_BATCH_SHARED_PREFIX = 1 << 1
};

typedef struct quire_batch_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_BATCH_* */
    const quire_chain *next;
    uint32_t max_rows;
    uint32_t max_blocks_per_row;
    uint32_t max_query_tokens;
    uint32_t max_context_tokens; /* over all rows, for CSR (whole blocks) and context slots */
    uint32_t views;              /* QUIRE_VIEW_*; those that attention needs are added */
    /* 0: tables only. 1: for all groups and shards. Else one per group, for all shards; or
     * [shard][group]. */
    uint32_t attention_count;
    uint32_t attention_stride;
    /* Over all rows, the sum of mask_rows * ceil(mask_rows / 32); 0: steps with masks are
     * refused. */
    uint32_t max_mask_words;
    const quire_attention_desc *attention;
    uint32_t max_cross_tokens; /* written in one step, over all rows */
    uint32_t reserved0;
} quire_batch_desc;

/* Addresses, fixed for the life of the batch; 0 for a view that is not kept. In a cache with memory
 * they are device addresses of the shard, written by work on the step's queue: call
 * quire_queue_sync before the host reads them, even where they are host pointers. In a
 * bookkeeping-only cache they are host addresses, written when commit returns.
 * Rows past row_count hold padding: block 0, length 0, slot -1 (or 0), position 0, and cu_q repeats
 * its last value. Entries of a block table past the row's last block are 0. */
typedef struct quire_batch_views {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t block_table;
    uint64_t csr_indptr; /* [rows + 1] */
    uint64_t csr_indices;
    uint64_t csr_last_page_len; /* [rows] */
    uint64_t slots;
    uint64_t context_slots; /* the rows one after another, each as long as its entry in lengths */
    uint64_t lengths;
    uint64_t positions;
    uint64_t cu_q;
    uint32_t block_table_stride; /* elements per row */
    uint32_t row_count;          /* of the last commit */
    uint32_t query_tokens;       /* of the last commit */
    uint32_t max_length;         /* longest context of the last commit, in a cross group of those */
    uint64_t mask;
    uint64_t mask_rows;
    uint64_t mask_first;
    uint64_t shared_prefix;
    uint32_t write_tokens; /* entries of slots: query_tokens, or in a cross group cross tokens */
    uint32_t reserved0;
} quire_batch_views;

/* Creates a batch of a cache.
 * Errors   QUIRE_E_UNSUPPORTED  no kernel instance of the backend serves an attention option; or
 *                               context slots in a pool of 2^31 slots or more.
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
#endif /* QUIRE_BATCH_H */
