/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: writing K and V into the blocks of a committed batch, and attention over them.
 *
 * Both calls only enqueue on the given queue and take no lock of the cache, so layers of one batch
 * may be launched while another thread plans the next step. One thread at a time per batch.
 *
 * Semantics: a row's new tokens sit at its last positions; the token at position p sees keys 0..p,
 * in a window group only the `window` newest of them. Accumulation is fp32 or better. An empty
 * context gives zeros and LSE = -inf. Slots behind a row's length may hold anything, NaN too. On
 * the cpu backend the result of a row is bit-equal whatever else is in the batch.
 */
#ifndef QUIRE_ATTENTION_H
#define QUIRE_ATTENTION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    QUIRE_ATTENTION_NOT_CAUSAL = 1 << 0 /* every new token sees the whole context */
};

typedef struct quire_attention_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_ATTENTION_* */
    const quire_chain *next;
    uint32_t q_heads; /* a multiple of the group's kv_heads */
    uint32_t q_dtype; /* of q and out; 0 = QUIRE_DTYPE_F32 */
    float scale;      /* 0 = 1 / sqrt(k_head_dim) */
    uint32_t reserved0;
} quire_attention_desc;

typedef struct quire_kv_args {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t k; /* address: [query_tokens][kv_heads][k_head_dim] */
    uint64_t v; /* address: [query_tokens][kv_heads][v_head_dim] */
    uint32_t layer;
    uint32_t dtype;         /* of k and v as given; 0 = QUIRE_DTYPE_F32. Converted to the pool's */
    int64_t k_token_stride; /* elements; 0 = kv_heads * k_head_dim */
    int64_t v_token_stride;
} quire_kv_args;

typedef struct quire_attend_args {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t q;   /* address: [query_tokens][q_heads][k_head_dim] */
    uint64_t out; /* address: [query_tokens][q_heads][v_head_dim] */
    uint64_t lse; /* address: [query_tokens][q_heads] f32, natural log; 0 = not wanted */
    uint32_t layer;
    uint32_t reserved0;
    int64_t q_token_stride; /* elements; 0 = q_heads * k_head_dim */
    int64_t out_token_stride;
} quire_attend_args;

/* Writes the new tokens' K and V of one layer into their slots. The memory behind k and v is read
 * when `queue` gets there: leave it alone until then. `queue` is the step's own, or one that
 * quire_queue_after orders behind it and before finish.
 * Errors   QUIRE_E_ARG          no step is committed in the batch, or `layer` is not one of the
 *                               cache's.
 *          QUIRE_E_UNSUPPORTED  the cache has no memory. */
QUIRE_EXPORT quire_status quire_kv_write(quire_batch *batch, const quire_kv_args *args,
                                         quire_queue *queue, quire_error *error);

/* Attention of the new tokens over their sequences, this layer's kv_write having been enqueued
 * before. The rows of q and out are those of the batch's items, one behind another, each with its
 * compute_count tokens; memory and queue as for quire_kv_write.
 * Errors   as quire_kv_write; QUIRE_E_ARG also when the batch has no attention options. */
QUIRE_EXPORT quire_status quire_attend(quire_batch *batch, const quire_attend_args *args,
                                       quire_queue *queue, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_ATTENTION_H */
