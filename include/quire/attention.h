/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: writing K and V into the blocks of a committed batch, and attention over them.
 *
 * Both calls only enqueue on the given queue and take no lock of the cache, so layers of one batch
 * may be launched while another thread plans the next step. One thread at a time per batch.
 *
 * Shards: the queue's device determines the shard of the cache. `layer` is the model's number; q,
 * k, v and out have the heads of that shard, and quire_attention_desc.q_heads counts those of one
 * call. Launch on every shard that holds the layer.
 *
 * Semantics: a row's new tokens are at its last positions; the token at position p sees keys 0..p,
 * except those that its group (cache.h) or its item's mask (step.h) hides. For a query q at
 * position p and a key k at position j that it sees
 *     score = scale * (q . k)
 *     score = soft_cap * tanh(score / soft_cap)     with a soft cap
 *     score = score - slope[head] * |p - j|         with ALiBi
 *     out   = sum exp(score) v / Z,  Z = sum exp(score) + exp(sink[head])    with sink logits
 *     lse   = ln Z
 * Accumulation is fp32 or better. If a token sees no key, out is zeros, and lse is the head's sink
 * logit, or -inf without sink logits. Slots past a row's length may hold anything, NaNs included.
 * On the cpu backend a row's result has the same bits whatever else is in the batch.
 */
#ifndef QUIRE_ATTENTION_H
#define QUIRE_ATTENTION_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    QUIRE_ATTENTION_NOT_CAUSAL = 1 << 0, /* every new token sees the whole context */
    /* A row's result has the same bits whatever else is in the batch, and however its context was
     * cached, chunked or preempted. The cpu backend guarantees this without the flag. */
    QUIRE_ATTENTION_BATCH_INVARIANT = 1 << 1,
    QUIRE_ATTENTION_MASK = 1 << 2,       /* steps may have masks */
    QUIRE_ATTENTION_SINK_LOGITS = 1 << 3 /* quire_attend_args.sinks is given */
};

/* Which two elements of a head are rotated together, for each i below n = rotated_dim / 2. */
enum {
    QUIRE_ROPE_HALVES = 0, /* i and i + n (NeoX, Llama as Hugging Face stores it) */
    QUIRE_ROPE_PAIRS = 1   /* 2 i and 2 i + 1 (GPT-J, Llama as published) */
};

/* How the frequencies are computed from the base frequencies base^(-i / n). */
enum {
    QUIRE_ROPE_PLAIN = 0,
    QUIRE_ROPE_LINEAR = 1, /* divided by factor (position interpolation, arXiv 2306.15595) */
    /* Divided by factor where the wavelength is above original_context / low_freq_factor, kept
     * where it is below original_context / high_freq_factor, blended in between (Llama 3.1). */
    QUIRE_ROPE_LLAMA3 = 2,
    /* Divided by factor where fewer than beta_slow turns fit into original_context, kept where more
     * than beta_fast do, blended in between (YaRN, arXiv 2309.00071, section 3.2). */
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
    uint32_t original_context; /* tokens, of the original training; LLAMA3 and YARN */
    float base;                /* 0 = 10,000 */
    float factor;              /* >= 1; only with a scaling */
    float low_freq_factor;     /* 0 = 1 */
    float high_freq_factor;    /* 0 = 4 */
    float beta_fast;           /* 0 = 32 */
    float beta_slow;           /* 0 = 1 */
    float magnitude;           /* factor of cosine and sine; 0 = 1, for YARN 0.1 ln(factor) + 1 */
    uint32_t reserved0;
    /* [rotated_dim / 2] in radians per position, copied; used instead of base and scaling, for
     * example for LongRoPE or NTK. NULL: they are computed. A field that is not read must be 0. */
    const float *frequencies;
} quire_rope_desc;

typedef struct quire_attention_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_ATTENTION_* */
    const quire_chain *next;
    uint32_t q_heads; /* of a call on one shard; a multiple of the group's KV heads there */
    uint32_t q_dtype; /* of q and out; 0 = QUIRE_DTYPE_F32 */
    float scale;      /* 0 = 1 / sqrt(k_head_dim); a latent group needs a value, because its query
                         heads had another dim before they were absorbed */
    float soft_cap;   /* 0 = none */
    const float *alibi_slopes; /* [q_heads], copied; NULL = none */
    /* quire_kv_write rotates K, and also q if quire_kv_args.q names it; NULL = neither. A cross
     * group has neither rope nor masks, and every token sees all of it, with or without
     * QUIRE_ATTENTION_NOT_CAUSAL: if one description is for all groups, its rope and masks apply to
     * the sequences' own tokens only. */
    const quire_rope_desc *rope;
} quire_attention_desc;

/* In a latent group k is the latent, [query_tokens][v_head_dim], and v the rotated part of the key,
 * [query_tokens][k_head_dim - v_head_dim]. In a cross group k and v have, instead of query_tokens
 * rows, those of the sequences for which quire_step_result.cross_tokens asked, one sequence after
 * another. */
typedef struct quire_kv_args {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    const quire_chain *next;
    uint64_t k; /* address: [query_tokens][kv_heads][k_head_dim] */
    uint64_t v; /* address: [query_tokens][kv_heads][v_head_dim] */
    uint32_t layer;
    uint32_t dtype;         /* of k and v, which are converted to the pool's; 0 = QUIRE_DTYPE_F32 */
    int64_t k_token_stride; /* elements; 0 = dense */
    int64_t v_token_stride;
    /* address: the queries that quire_attend will be given, to be rotated in place with K; 0 = they
     * are rotated already, or there is no rope. */
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

/* States of attention over parts of a context, to be merged into one. Parts that saw no key have
 * lse -inf and do not count. */
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

/* Writes the new tokens' K and V of one layer into their slots. The memory that k and v point to is
 * read when `queue` reaches this call's work: do not change it until then. `queue` is the step's
 * own, or one that quire_queue_after orders after it and before finish.
 * Errors   QUIRE_E_ARG          no step is committed in the batch; or `layer` is not in the cache,
 *                               or not in the shard of the queue.
 *          QUIRE_E_UNSUPPORTED  the cache has no memory.
 * Time     O(1), and O(new tokens) on the device. */
QUIRE_EXPORT quire_status quire_kv_write(quire_batch *batch, const quire_kv_args *args,
                                         quire_queue *queue, quire_error *error);

/* Computes attention of the new tokens over their sequences. This layer's kv_write must have been
 * enqueued before. The rows of q and out are those of the batch's items, one item after another,
 * each with its compute_count tokens; memory and queue as for quire_kv_write.
 * Errors   as quire_kv_write; QUIRE_E_ARG also if the batch has no attention options.
 * Time     O(1), and O(new tokens * keys that they see) on the device. */
QUIRE_EXPORT quire_status quire_attend(quire_batch *batch, const quire_attend_args *args,
                                       quire_queue *queue, quire_error *error);

/* Merges states over parts into the state over the whole (arXiv 2501.01005, section 2.2), in the
 * order of the parts:
 *     out = sum exp(lse_i - lse) part_i,  lse = ln sum exp(lse_i)
 * A sink logit belongs in exactly one part. `out` may be one of the parts.
 * Errors   QUIRE_E_UNSUPPORTED  the backend has no merge.
 * Time     O(1), and O(parts * rows) on the device. */
QUIRE_EXPORT quire_status quire_attention_merge(quire_queue *queue, const quire_merge_args *args,
                                                quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_ATTENTION_H */
