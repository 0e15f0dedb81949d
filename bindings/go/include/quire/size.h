/* SPDX-License-Identifier: Apache-2.0
 *
 * size: how much a deployment holds and how fast it decodes, before anything is bought or loaded.
 *
 * A model and a machine in numbers; no instance, no device, no measurement. Decoding one token a
 * sequence reads every weight once and every live K and V once, and cannot be faster than the
 * memory hands them over, nor than the arithmetic is done: the roofline of Williams, Waterman and
 * Patterson (CACM 2009). What a kernel loses against it, and what devices exchange, comes on top.
 */
#ifndef QUIRE_SIZE_H
#define QUIRE_SIZE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* QUIRE_GROUP_LATENT: one row of k_head_dim elements a token, V within it; kv_heads is 1. Every
     * device holds it whole. */
    QUIRE_SIZE_LATENT = 1 << 0
};

/* What is left 0 is either its default or unknown; nothing is concluded from an unknown. */
typedef struct quire_size_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_SIZE_* */
    const quire_chain *next;
    /* The model. */
    uint64_t parameters; /* 0: its weights take no room and no time */
    uint32_t layer_count;
    uint32_t kv_heads;
    uint32_t q_heads; /* 0: attention's own operations are not counted */
    uint32_t k_head_dim;
    uint32_t v_head_dim;  /* 0 = k_head_dim */
    uint32_t kv_bits;     /* of an element: 4, 8, 16 or 32; 0 = 16 */
    uint32_t weight_bits; /* of a parameter: 4, 8, 16 or 32; 0 = 16 */
    /* The use. */
    uint32_t block_tokens;   /* a power of two, 1 to 256; 0 = 16 */
    uint32_t batch;          /* sequences decoded at once; 0 = 1 */
    uint32_t device_count;   /* that share the model (tensor parallelism); 0 = 1 */
    uint64_t context_tokens; /* of each sequence; 0: unknown, and so is the time of a step */
    /* One device. */
    uint64_t memory_bytes;        /* 0: unknown */
    uint64_t reserve_bytes;       /* left alone, beside what utilization leaves */
    double utilization;           /* share of memory_bytes that may be used; 0 = 1 */
    double bytes_per_second;      /* 0: unknown */
    double operations_per_second; /* a multiply and an add are two; 0: unknown */
    /* Of the scale that each row of K, and of V, of a token and KV head has: 4 with
     * QUIRE_SCALE_TOKEN_HEAD, 0 without. At most 4. */
    uint32_t scale_bytes;
    uint32_t reserved0;
} quire_size_desc;

/* With one of the two rates unknown, the other is the bound. */
enum { QUIRE_BOUND_UNKNOWN = 0, QUIRE_BOUND_BANDWIDTH = 1, QUIRE_BOUND_COMPUTE = 2 };

/* All devices together. KV heads are split between the devices; with fewer heads than devices each
 * device holds one, and a token takes so much more. */
typedef struct quire_size_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t kv_bytes_per_token;
    uint64_t pool_bytes;    /* left for K and V beside weights and reserve */
    uint64_t blocks;        /* usable ones: the null block comes on top. The same on each device */
    uint64_t tokens;        /* blocks * block_tokens */
    uint64_t max_sequences; /* of context_tokens each, none sharing a block */
    uint32_t batch;
    uint32_t bound; /* QUIRE_BOUND_*: what takes longer in a decode step */
    double step_seconds;
    double tokens_per_second; /* batch / step_seconds */
} quire_size_info;

/* Sizes a deployment.
 *
 * Errors   QUIRE_E_ARG    no layers, no heads, or a number that cannot be meant.
 *          QUIRE_E_LIMIT  the weights, one block, one sequence or the batch does not fit; the
 *                         message says by how much. Nothing was written.
 * Time     O(groups + shards). */
QUIRE_EXPORT quire_status quire_size_estimate(const quire_size_desc *desc, quire_size_info *info,
                                              quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_SIZE_H */
