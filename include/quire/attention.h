/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: writing K and V into the blocks of a committed batch, and attention over them.
 *
 * Both calls only enqueue on the given queue and take no lock of the cache, so layers of one batch
 * may be launched while another thread plans the next step. One thread at a time per batch.
 *
 * Shards: the queue's device says which shard of the cache a call is for. `layer` is the model's
 * number; q, k, v and out have the heads of that shard, and quire_attention_desc.q_heads counts
 * those of one call. Launch on every shard that holds the layer.
 *
 * Semantics: a row's new tokens sit at its last positions; the token at position p sees keys 0..p,
 * less what its group (cache.h) or its item's mask (step.h) takes away. For a query q at position p
 * and a key k at position j that it sees
 *     score = scale * (q . k)
 *     score = soft_cap * tanh(score / soft_cap)     with a soft cap
 *     score = score - slope[head] * |p - j|         with ALiBi
 *     out   = sum exp(score) v / Z,  Z = sum exp(score) + exp(sink[head])    with sink logits
 *     lse   = ln Z
 * Accumulation is fp32 or better. Without a key in sight out is zeros, and lse what the sink
 * leaves, else -inf. Slots behind a row's length may hold anything, NaN too. On the cpu backend the
 * result of a row is bit-equal whatever else is in the batch.
 */
#ifndef QUIRE_ATTENTION_H
#define QUIRE_ATTENTION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    QUIRE_ATTENTION_NOT_CAUSAL = 1 << 0, /* every new token sees the whole context */
    /* Bit-equal whatever else is in the batch and however its context was cached, chunked or
     * preempted. The cpu backend promises it unasked. */
    QUIRE_ATTENTION_BATCH_INVARIANT = 1 << 1,
    QUIRE_ATTENTION_MASK = 1 << 2,       /* steps may have masks */
    QUIRE_ATTENTION_SINK_LOGITS = 1 << 3 /* quire_attend_args.sinks is given */
};

/* Which elements of a head are turned together, i of n = rotated_dim / 2. */
enum {
    QUIRE_ROPE_HALVES = 0, /* i and i + n (NeoX, Llama as Hugging Face stores it) */
    QUIRE_ROPE_PAIRS = 1   /* 2 i and 2 i + 1 (GPT-J, Llama as published) */
};

/* How base frequencies base^(-i / n) become those used. */
enum {
    QUIRE_ROPE_PLAIN = 0,
    QUIRE_ROPE_LINEAR = 1, /* divided by factor (position interpolation, arXiv 2306.15595) */
    /* Divided by factor where a wavelength is above original_context / low_freq_factor, kept where
     * it is below original_context / high_freq_factor, blended between (Llama 3.1). */
    QUIRE_ROPE_LLAMA3 = 2,
    /* Divided by factor where fewer than beta_slow turns fit into original_context, kept where more
     * than beta_fast do, blended between (YaRN, arXiv 2309.00071, section 3.2). */
    QUIRE_ROPE_YARN = 3
};

/* Rotary embedding (arXiv 2104.09864) of the first rotated_dim elements of each head; in a latent
 * group of the last ones. */
typedef struct quire_rope_desc {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint32_t pairing;          /* QUIRE_ROPE_HALVES or QUIRE_ROPE_PAIRS */
    uint32_t rotated_dim;      /* even; 0 = k_head_dim, in a latent group k_head_dim - v_head_dim */
    uint32_t scaling;          /* QUIRE_ROPE_PLAIN to QUIRE_ROPE_YARN */
    uint32_t original_context; /* tokens that the model was first trained on: LLAMA3 and YARN */
    float base;                /* 0 = 10,000 */
    float factor;              /* >= 1; only where scaled */
    float low_freq_factor;     /* 0 = 1 */
    float high_freq_factor;    /* 0 = 4 */
    float beta_fast;           /* 0 = 32 */
    float beta_slow;           /* 0 = 1 */
    float magnitude;           /* of cosine and sine; 0 = 1, for YARN 0.1 ln(factor) + 1 */
    uint32_t reserved0;
    /* [rotated_dim / 2] radians a position, in place of base and scaling (LongRoPE, NTK and what
     * comes); copied. NULL: computed. A field that is not read must be 0. */
    const float *frequencies;
} quire_rope_desc;

typedef struct quire_attention_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_ATTENTION_* */
    const quire_chain *next;
    uint32_t q_heads; /* of a call on one shard; a multiple of the group's KV heads there */
    uint32_t q_dtype; /* of q and out; 0 = QUIRE_DTYPE_F32 */
    float scale;      /* 0 = 1 / sqrt(k_head_dim); a latent group needs one, for its query heads had
                         another dim before they were absorbed */
    float soft_cap;   /* 0 = none */
    const float *alibi_slopes; /* [q_heads], copied; NULL = none */
    /* quire_kv_write turns K, and q when quire_kv_args.q names it; NULL = neither. One description
     * for all groups is about the sequences' own tokens: a cross group has neither rope nor masks,
     * and every token sees all of it, QUIRE_ATTENTION_NOT_CAUSAL or not. */
    const quire_rope_desc *rope;
} quire_attention_desc;

/* In a latent group k is the latent, [query_tokens][v_head_dim], and v the rotated part of the key,
 * [query_tokens][k_head_dim - v_head_dim]. In a cross group both have the rows of the sequences
 * that quire_step_result.cross_tokens named, one behind another, instead of query_tokens. */
typedef struct quire_kv_args {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t k; /* address: [query_tokens][kv_heads][k_head_dim] */
    uint64_t v; /* address: [query_tokens][kv_heads][v_head_dim] */
    uint32_t layer;
    uint32_t dtype;         /* of k and v as given; 0 = QUIRE_DTYPE_F32. Converted to the pool's */
    int64_t k_token_stride; /* elements; 0 = dense */
    int64_t v_token_stride;
    /* address: the queries, as quire_attend will be given them, to be turned in place with K;
     * 0 = they are, or there is no rope. */
    uint64_t q;
    int64_t q_token_stride; /* elements; 0 = q_heads * k_head_dim */
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
    uint64_t sinks; /* address: f32 [q_heads], this layer's; with QUIRE_ATTENTION_SINK_LOGITS */
} quire_attend_args;

/* States of attention over parts of a context, to be made one. Parts that saw no key have
 * lse -inf and count for nothing. */
typedef struct quire_merge_args {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t parts; /* address: [part_count][token_count][heads][head_dim] */
    uint64_t lses;  /* address: f32 [part_count][token_count][heads] */
    uint64_t out;   /* address: [token_count][heads][head_dim] */
    uint64_t lse;   /* address: f32 [token_count][heads]; 0 = not wanted */
    uint32_t part_count;
    uint32_t token_count;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t dtype; /* of parts and out; 0 = QUIRE_DTYPE_F32 */
    uint32_t reserved0;
} quire_merge_args;

/* Writes the new tokens' K and V of one layer into their slots. The memory behind k and v is read
 * when `queue` gets there: leave it alone until then. `queue` is the step's own, or one that
 * quire_queue_after orders behind it and before finish.
 * Errors   QUIRE_E_ARG          no step is committed in the batch, `layer` is not one of the
 *                               cache's, or not one of the queue's shard's.
 *          QUIRE_E_UNSUPPORTED  the cache has no memory.
 * Time     O(1), and O(new tokens) on the device. */
QUIRE_EXPORT quire_status quire_kv_write(quire_batch *batch, const quire_kv_args *args,
                                         quire_queue *queue, quire_error *error);

/* Attention of the new tokens over their sequences, this layer's kv_write having been enqueued
 * before. The rows of q and out are those of the batch's items, one behind another, each with its
 * compute_count tokens; memory and queue as for quire_kv_write.
 * Errors   as quire_kv_write; QUIRE_E_ARG also when the batch has no attention options.
 * Time     O(1), and O(new tokens * keys that they see) on the device. */
QUIRE_EXPORT quire_status quire_attend(quire_batch *batch, const quire_attend_args *args,
                                       quire_queue *queue, quire_error *error);

/* out = sum exp(lse_i - lse) part_i, lse = ln sum exp(lse_i), in the order of the parts: attention
 * over the whole, from states over its parts (arXiv 2501.01005, section 2.2). A sink logit belongs
 * into one part. `out` may be one of the parts.
 * Errors   QUIRE_E_UNSUPPORTED  the backend has no merge.
 * Time     O(1), and O(parts * rows) on the device. */
QUIRE_EXPORT quire_status quire_attention_merge(quire_queue *queue, const quire_merge_args *args,
                                                quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_ATTENTION_H */
