/* SPDX-License-Identifier: Apache-2.0
 *
 * size: how much a deployment holds and how fast it decodes, before anything is bought or loaded.
 *
 * Input and output are numbers about a model and a machine: no instance, no device, no measurement.
 * Decoding one token per sequence reads every weight once, and all live K and V once. It cannot be
 * faster than the memory delivers them, nor faster than the arithmetic is done: the roofline of
 * Williams, Waterman and Patterson (CACM 2009). The losses of kernels against it, and the time of
 * exchanges between devices, are not included.
 */
#ifndef QUIRE_SIZE_H
#define QUIRE_SIZE_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    /* QUIRE_GROUP_LATENT: one row of k_head_dim elements per token, which contains V; kv_heads is
     * 1. Every device holds the whole row. */
    QUIRE_SIZE_LATENT = 1 << 0
};

/* A field that is 0 has its default value or is unknown; nothing is concluded from an unknown
 * value. */
typedef struct quire_size_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_SIZE_* */
    const quire_chain *next;
    /* The model. */
    uint64_t parameters; /* 0: the weights take no room and no time */
    uint32_t layer_count;
    uint32_t kv_heads;
    uint32_t q_heads; /* 0: attention's own operations are not counted */
    uint32_t k_head_dim;
    uint32_t v_head_dim;  /* 0 = k_head_dim */
    uint32_t kv_bits;     /* per element: 4, 8, 16 or 32; 0 = 16 */
    uint32_t weight_bits; /* per parameter: 4, 8, 16 or 32; 0 = 16 */
    /* The use. */
    uint32_t block_tokens;   /* a power of two, 1 to 256; 0 = 16 */
    uint32_t batch;          /* sequences decoded at once; 0 = 1 */
    uint32_t device_count;   /* that share the model (tensor parallelism); 0 = 1 */
    uint64_t context_tokens; /* of each sequence; 0: unknown, and so is the time of a step */
    /* One device. */
    uint64_t memory_bytes;        /* 0: unknown */
    uint64_t reserve_bytes;       /* not used, in addition to what utilization excludes */
    double utilization;           /* share of memory_bytes that may be used; 0 = 1 */
    double bytes_per_second;      /* 0: unknown */
    double operations_per_second; /* a multiply and an add are two; 0: unknown */
    /* Bytes of the scale of each row of K, and of V, of a token and KV head: 4 with
     * QUIRE_SCALE_TOKEN_HEAD, 0 without. At most 4. */
    uint32_t scale_bytes;
    uint32_t reserved0;
} quire_size_desc;

/* If one of the two rates is unknown, the other is the bound. */
enum { QUIRE_BOUND_UNKNOWN = 0, QUIRE_BOUND_BANDWIDTH = 1, QUIRE_BOUND_COMPUTE = 2 };

/* For all devices together. KV heads are split between the devices; with fewer heads than devices
 * each device holds one head, and a token takes correspondingly more bytes. */
typedef struct quire_size_info {
    uint32_t struct_size;
    uint32_t flags;
    const quire_chain *next;
    uint64_t kv_bytes_per_token;
    uint64_t pool_bytes;    /* left for K and V after weights and reserve */
    uint64_t blocks;        /* usable ones, without the null block; the same on each device */
    uint64_t tokens;        /* blocks * block_tokens */
    uint64_t max_sequences; /* of context_tokens each, not sharing any block */
    uint32_t batch;
    uint32_t bound; /* QUIRE_BOUND_*: what takes longer in a decode step */
    double step_seconds;
    double tokens_per_second; /* batch / step_seconds */
} quire_size_info;

/* Sizes a deployment.
 *
 * Errors   QUIRE_E_ARG    no layers, no heads, or an invalid number.
 *          QUIRE_E_LIMIT  the weights, one block, one sequence or the batch does not fit; the
 *                         message says by how much. Nothing was written.
 * Time     O(1). */
QUIRE_EXPORT quire_status quire_size_estimate(const quire_size_desc *desc, quire_size_info *info,
                                              quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_SIZE_H */
