/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: what a device vendor implements. One shared object, one exported symbol, one table.
 *
 * A plugin exports quire_backend_query_v0. The core calls it once per load; it is pure: no threads,
 * no driver, no environment writes. Everything a backend offers is a function of quire_backend_api.
 * A NULL function means "unsupported" and never "does nothing". To begin, copy backends/null.
 *
 * Threads   Functions may be called from any thread; calls on one queue are serialised by the core.
 * Enqueue   Functions that take a queue only enqueue work, which runs in order on that queue. Only
 *           *_wait_host, quiesce and device_close wait. No function may unwind, change the caller's
 *           current device context, or install signal handlers.
 * Failure   A negative status means that nothing was enqueued or allocated. `error` is never NULL.
 *           An exception, a status that base.h does not define, QUIRE_S_TIMEOUT from a function
 *           that does not wait, or success without an object reaches the caller as QUIRE_E_BACKEND.
 * Memory    Addresses are uint64_t: device addresses, or host pointers where host_visible is 1.
 * Version   The plugin returns min(host minor, own minor) in abi_minor and behaves as that version.
 */
#ifndef QUIRE_PLUGIN_BACKEND_H
#define QUIRE_PLUGIN_BACKEND_H

#include "host.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QUIRE_BACKEND_ABI_MAJOR 0u
#define QUIRE_BACKEND_ABI_MINOR 1u
#define QUIRE_BACKEND_ENTRY "quire_backend_query_v0"

typedef struct quire_be_device quire_be_device;
typedef struct quire_be_queue quire_be_queue;
typedef struct quire_be_fence quire_be_fence;
typedef struct quire_be_plan quire_be_plan;

enum {
    QUIRE_BE_DEVICE_PIN_THREADS = 1 << 0,
    QUIRE_BE_DEVICE_FAST_16BIT = 1 << 1,
    QUIRE_BE_DEVICE_INLINE = 1 << 2
};

/* device.h describes `threads`, the flags and run_tasks, at quire_device_desc. `threads`,
 * PIN_THREADS, INLINE and run_tasks are requests about host threads: a backend that runs no kernels
 * on host threads ignores them. FAST_16BIT is a permission that no backend has to use. */
typedef struct quire_be_device_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_BE_DEVICE_* */
    uint32_t index;
    uint32_t threads; /* 0 = one per core */
    quire_run_tasks run_tasks;
    void *run_tasks_user;
    /* NULL, or a chain with at most one struct of each type, checked by the rules of base.h. A
     * struct that the backend does not know is QUIRE_E_UNSUPPORTED. */
    const quire_chain *next;
} quire_be_device_desc;

typedef struct quire_be_device_props {
    uint32_t struct_size;
    uint32_t host_visible; /* 0 or 1 */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint32_t copy_alignment; /* a power of 2 */
    uint32_t flags;          /* QUIRE_BE_DEVICE_*: the requested ones that are in effect */
    char name[64];
} quire_be_device_props;

/* Where one group's blocks are in memory: quire_pool_info for a backend. Strides are in bytes;
 * `layer` counts within the group. */
typedef struct quire_be_pool {
    uint32_t struct_size;
    uint32_t block_count;
    uint64_t address;
    uint64_t size_bytes;
    int64_t block_stride;
    int64_t layer_stride;
    int64_t v_offset;
    int64_t k_head_stride;
    int64_t k_token_stride;
    int64_t v_head_stride;
    int64_t v_token_stride;
    uint32_t block_tokens;
    uint32_t layer_count;
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t k_dtype;
    uint32_t v_dtype;
    uint32_t group_kind; /* QUIRE_GROUP_*; LATENT: V is the first v_head_dim elements of K */
    /* Scales, QUIRE_SCALE_*. Fields that a kind does not use are 0 and are not read. In a latent
     * pool V's fields equal K's.
     * TOKEN_HEAD: the f32 scale of block b, layer l, head h, place p is at the address
     *   + b * block_stride + l * layer_stride + {k,v}_scale_offset + h * scale_head_stride + p * 4.
     * TENSOR and HEAD: `scales` is the address of f32 [layer_count][2][kv_heads], K's before V's;
     * with TENSOR the number is the same for all heads of K, or of V, so that kernels have one
     * static case. */
    uint32_t k_scale_kind;
    uint32_t v_scale_kind;
    int64_t k_scale_offset;
    int64_t v_scale_offset;
    int64_t scale_head_stride;
    uint64_t scales;
    /* 0: not wanted. Else the address of f32 [layer_count][2][kv_heads], K's before V's. kv_write
     * raises each number to the largest magnitude that it writes, taken before values are rounded
     * or become codes, and of K after the rope. Tokens whose slot is negative or in block 0, the
     * null block, are left out. In a latent pool K's number is of the whole row, and V's stays as
     * it is. Magnitudes are compared by their bits: an infinity is above all numbers and a NaN
     * above infinity, so neither gets lost. Calls on two queues may raise one number at the same
     * time. */
    uint64_t amax;
} quire_be_pool;

enum { QUIRE_BE_NO = 0, QUIRE_BE_YES = 1, QUIRE_BE_SLOW = 2 };

/* In quire_be_attention_query.flags, together with QUIRE_ATTENTION_*: options that the plan's
 * pointers and numbers select. */
enum {
    QUIRE_BE_ATTENTION_SOFT_CAP = 1 << 16,
    QUIRE_BE_ATTENTION_ALIBI = 1 << 17,
    QUIRE_BE_ATTENTION_ROPE = 1 << 18,
    /* Only with q_heads 0, and never in a plan: asks for support of a pool with an amax. */
    QUIRE_BE_ATTENTION_AMAX = 1 << 19
};

/* Asks whether the backend has a kernel of this shape. Everything that determines a kernel instance
 * is here. */
typedef struct quire_be_attention_query {
    uint32_t struct_size;
    uint32_t flags;   /* QUIRE_ATTENTION_*, QUIRE_BE_ATTENTION_* */
    uint32_t q_heads; /* 0: the query is only about kv_write and copies */
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t q_dtype;
    uint32_t k_dtype;
    uint32_t v_dtype;
    uint32_t block_tokens;
    uint32_t window;      /* tokens, of a window or a chunk; 0 = none */
    uint32_t group_kind;  /* QUIRE_GROUP_*; for CROSS, flags have QUIRE_ATTENTION_NOT_CAUSAL */
    uint32_t sink_tokens; /* kept before a window */
    uint32_t rotated_dim; /* with QUIRE_BE_ATTENTION_ROPE */
    uint32_t rope_pairing;
    uint32_t k_scale_kind; /* QUIRE_SCALE_* */
    uint32_t v_scale_kind;
    uint32_t reserved0;
} quire_be_attention_query;

typedef struct quire_be_answer {
    uint32_t struct_size;
    uint32_t support;   /* QUIRE_BE_* */
    uint32_t alignment; /* of the pool's address, bytes */
    uint32_t reserved0;
    uint64_t workspace_bytes; /* 0: no slot takes one; backends allocate their own memory */
    char reason[160];         /* for QUIRE_BE_NO: what is missing */
} quire_be_answer;

enum {
    QUIRE_BE_MEMORY_DEVICE = 0,
    QUIRE_BE_MEMORY_HOST = 1,
    QUIRE_BE_MEMORY_IMPORTED = 2 /* for mem_free: from mem_import */
};

enum { QUIRE_BE_COPY_D2D = 0, QUIRE_BE_COPY_D2H = 1, QUIRE_BE_COPY_H2D = 2, QUIRE_BE_COPY_H2H = 3 };

/* The descriptors of one call are independent: no destination overlaps any other range of the call.
 * A backend refuses a descriptor whose destination overlaps its own source within one memory (D2D,
 * H2H) with QUIRE_E_ARG. It need not look for overlaps between descriptors: the destinations
 * concerned then hold anything. Sources may overlap each other. Host addresses are in memory of
 * kind QUIRE_BE_MEMORY_HOST, which the caller leaves untouched until the copy has run. That memory
 * is the device's own or, where host_visible is 1, that of any device of the backend. */
typedef struct quire_be_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t size_bytes;
    uint32_t kind;
    uint32_t reserved0;
} quire_be_copy;

/* A range of memory of any kind to be set to one byte value. Ranges of one call do not overlap; a
 * backend need not check. */
typedef struct quire_be_range {
    uint64_t address;
    uint64_t size_bytes;
} quire_be_range;

/* Token t of [0, token_count) is written to slot slots[t]; a negative slot means skip. Slot s is
 * block s / block_tokens, place s % block_tokens. The call converts `dtype` (f32, f16 or bf16) to
 * the pool's types, rounding to nearest even. In a latent pool k is [token_count][v_head_dim] and v
 * [token_count][k_head_dim - v_head_dim].
 * With a plan that has a rope, K is rotated by positions[t] before it is rounded, and q, in the
 * plan's q_dtype, is rotated in place, also for tokens with a negative slot.
 * A row of codes is computed as cache.h says at QUIRE_SCALE_*: code = x / scale is one division in
 * f32, and with TOKEN_HEAD scale = (largest |x|) / (largest code) is another. The row of such a
 * scale is what is contiguous in the pool: in a latent pool all of k and v. */
typedef struct quire_be_kv_write {
    uint32_t struct_size;
    uint32_t layer;
    uint32_t token_count;
    uint32_t dtype;
    const quire_be_pool *pool;
    uint64_t k; /* address: [token_count][kv_heads][k_head_dim] */
    uint64_t v;
    uint64_t slots;         /* address: int64 [token_count] */
    int64_t k_token_stride; /* elements */
    int64_t v_token_stride;
    quire_be_plan *plan;    /* NULL: no rope */
    uint64_t positions;     /* address: int32 [token_count]; with a rope */
    uint64_t q;             /* address: [token_count][q_heads][k_head_dim]; 0 = do not rotate q */
    int64_t q_token_stride; /* elements */
} quire_be_kv_write;

/* Angles are positions times frequencies; attention.h says which elements form a pair. Cosine and
 * sine are multiplied by magnitude, > 0. The first rotated_dim elements of each head are rotated,
 * in a latent pool the last ones. */
typedef struct quire_be_rope {
    uint32_t struct_size;
    float magnitude;
    const float *frequencies; /* host: [shape.rotated_dim / 2], copied */
} quire_be_rope;

/* Options of attention calls that are not in their arguments. A plan holds them, and a batch holds
 * the plan. */
typedef struct quire_be_plan_desc {
    uint32_t struct_size;
    uint32_t reserved0;
    quire_be_attention_query shape;
    float scale;
    uint32_t max_rows;
    uint32_t max_query_tokens;
    uint32_t max_blocks_per_row;
    float soft_cap; /* with QUIRE_BE_ATTENTION_SOFT_CAP: > 0 */
    uint32_t reserved1;
    const float *alibi_slopes; /* host: [q_heads], copied; with QUIRE_BE_ATTENTION_ALIBI */
    const quire_be_rope *rope; /* host, copied; with QUIRE_BE_ATTENTION_ROPE */
} quire_be_plan_desc;

/* Semantics: attention.h. Row r's new tokens are q rows cu_q[r] .. cu_q[r + 1], at positions
 * lengths[r] - (their count) .. lengths[r] - 1.
 * Masks: a token with mask_rows[t] >= 0 is at positions[t]. It sees the keys before mask_first[r],
 * and key mask_first[r] + i if bit i % 32 of mask[mask_rows[t] + i / 32] is set, up to the row's
 * length. In a window or chunked group it sees only those of them that a token at its position
 * would see without a mask. A row's tokens without a mask come before those with one. A key that
 * belongs to one of the row's new tokens is at that token's position, any other key at its place.
 * Shared prefixes: the first shared_prefix[r] entries of row r's table equal those of row r - 1. A
 * backend may read their keys once for both rows, and refuses a count for which this is not true,
 * as a fault. */
typedef struct quire_be_attention {
    uint32_t struct_size;
    uint32_t layer;
    const quire_be_pool *pool;
    uint64_t q;
    uint64_t out;
    uint64_t lse;           /* 0 = not wanted */
    uint64_t block_table;   /* int32 [row_count][block_table_stride] */
    uint64_t lengths;       /* int32 [row_count] */
    uint64_t cu_q;          /* int32 [row_count + 1]; in a captured call [max_rows + 1] of the plan,
                             * where the rest repeats the last value */
    int64_t q_token_stride; /* elements */
    int64_t out_token_stride;
    uint32_t block_table_stride;
    uint32_t row_count;
    uint32_t query_tokens;
    uint32_t max_length;    /* longest row at the commit; a replayed call may get longer ones */
    uint64_t sinks;         /* f32 [q_heads]; with QUIRE_ATTENTION_SINK_LOGITS */
    uint64_t positions;     /* int32 [query_tokens]; with QUIRE_ATTENTION_MASK */
    uint64_t mask;          /* uint32; with QUIRE_ATTENTION_MASK, 0 = no token has a mask */
    uint64_t mask_rows;     /* int32 [query_tokens] */
    uint64_t mask_first;    /* int32 [row_count] */
    uint64_t shared_prefix; /* int32 [row_count]; 0 = not known */
    uint64_t rows_id; /* not 0: table, lengths, cu_q and shared prefixes hold what they held at
                             * the queue's earlier calls with this id and the same addresses and
                             * sizes, so their rows need not be looked at again. An older host's
                             * struct ends before it */
} quire_be_attention;

/* attention.h, quire_attention_merge. */
typedef struct quire_be_merge {
    uint32_t struct_size;
    uint32_t part_count;
    uint32_t token_count;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t dtype;
    uint64_t parts;
    uint64_t lses;
    uint64_t out;
    uint64_t lse; /* 0 = not wanted */
} quire_be_merge;

/* One token's K and V of all layers, from one slot of a pool to another. */
typedef struct quire_be_move {
    int64_t src;
    int64_t dst;
} quire_be_move;

/* Optional fields that a plugin reads. */
enum {
    QUIRE_BE_FEATURE_ROWS_ID = 1 << 0 /* rows_id of quire_be_attention; it is 0 for others */
};

typedef struct quire_backend_api {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t min_host_minor;
    const char *name;    /* 1 to 31 bytes of a-z, 0-9, _ and - */
    const char *version; /* at most 31 bytes */

    /* Counts the devices; if there are none, `error` may say why. Creates no device context. */
    quire_status (*probe)(uint32_t *device_count, quire_error *error);
    /* Creates the device's context. An unknown flag, or PIN_THREADS with run_tasks, is
     * QUIRE_E_ARG. */
    quire_status (*device_open)(const quire_be_device_desc *desc, quire_be_device **out,
                                quire_error *error);
    /* Returns when no work of the device runs any more. Queues stop waiting for fences that were
     * not reached; the work after such a wait is dropped, and the fences that it would have
     * signalled fail. An engine's capture is not waited for, and stays intact. */
    void (*device_close)(quire_be_device *device);
    quire_status (*device_props)(quire_be_device *device, quire_be_device_props *props,
                                 quire_error *error);
    quire_status (*query_attention)(quire_be_device *device, const quire_be_attention_query *query,
                                    quire_be_answer *answer, quire_error *error);

    /* Allocates zeroed memory, aligned to 4,096 bytes. host_pointer receives NULL if the host
     * cannot access it. */
    quire_status (*mem_alloc)(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                              uint64_t *address, void **host_pointer, quire_error *error);
    void (*mem_free)(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

    /* `native` NULL or of kind QUIRE_NATIVE_NONE: a new queue. Releasing a queue waits for nothing:
     * enqueued work still runs. While the engine captures a stream of its own, kv_write, attention
     * and merge are added to its graph. All other calls on that queue are QUIRE_E_BUSY and change
     * nothing, even a fence_wait for a value that was reached long ago: with such a wait the core
     * checks for a capture before it begins. */
    quire_status (*queue_bind)(quire_be_device *device, const quire_native *native,
                               quire_be_queue **out, quire_error *error);
    void (*queue_release)(quire_be_queue *queue);

    /* A fence is a value that only grows; all ones means that work before it failed.
     * fence_signal_host refuses a value that would not grow; an enqueued signal whose value would
     * not grow is ignored. fence_wait_host returns QUIRE_S_TIMEOUT when the time runs out and
     * QUIRE_E_DEVICE_LOST when the fence failed; UINT64_MAX waits forever. Enqueued signals and
     * waits may outlive fence_destroy. A queue's wait for a failed fence ends, and is never refused
     * because the fence failed: either the queue goes on, or the queue fails there too. A backend
     * does the same whether the fence failed before the call or while the queue waited. */
    quire_status (*fence_create)(quire_be_device *device, uint64_t value, quire_be_fence **out,
                                 quire_error *error);
    void (*fence_destroy)(quire_be_fence *fence);
    quire_status (*fence_read)(quire_be_fence *fence, uint64_t *value, quire_error *error);
    quire_status (*fence_signal_host)(quire_be_fence *fence, uint64_t value, quire_error *error);
    quire_status (*fence_wait_host)(quire_be_fence *fence, uint64_t value, uint64_t timeout_ns,
                                    quire_error *error);
    quire_status (*fence_signal)(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                                 quire_error *error);
    quire_status (*fence_wait)(quire_be_queue *queue, quire_be_fence *fence, uint64_t value,
                               quire_error *error);

    quire_status (*copy)(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                         quire_error *error);
    /* `ranges` is host memory and is read before the call returns. */
    quire_status (*fill)(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                         uint32_t byte, quire_error *error);
    quire_status (*kv_write)(quire_be_queue *queue, const quire_be_kv_write *args,
                             quire_error *error);

    quire_status (*plan_create)(quire_be_device *device, const quire_be_plan_desc *desc,
                                quire_be_plan **out, quire_error *error);
    void (*plan_destroy)(quire_be_plan *plan);
    quire_status (*attention)(quire_be_queue *queue, quire_be_plan *plan,
                              const quire_be_attention *args, quire_error *error);

    /* Waits until nothing runs on the device; with timeout_ns 0 it only looks. QUIRE_S_TIMEOUT: the
     * time ran out. QUIRE_E_BUSY: everything is idle except an engine's own stream, which cannot be
     * queried. QUIRE_E_DEVICE_LOST: the device failed for good, and what was enqueued on it neither
     * runs nor will. After any other error the core frees no memory of the device any more. */
    quire_status (*quiesce)(quire_be_device *device, uint64_t timeout_ns, quire_error *error);
    /* Called when the last device is closed; live_objects receives how many objects were not
     * released. */
    quire_status (*shutdown)(uint64_t *live_objects, quire_error *error);

    quire_status (*merge)(quire_be_queue *queue, const quire_be_merge *args, quire_error *error);
    /* Moves run as if one after another: a slot may be read by one move and written by a later one.
     * `moves` is host memory and is read before the call returns; an index outside the pool is
     * refused. */
    quire_status (*move_tokens)(quire_be_queue *queue, const quire_be_pool *pool,
                                const quire_be_move *moves, uint32_t count, quire_error *error);
    /* queue.h, quire_queue_signal_native and quire_queue_after_native. An unknown kind is
     * QUIRE_E_UNSUPPORTED. */
    quire_status (*native_signal)(quire_be_queue *queue, const quire_native *native,
                                  quire_error *error);
    quire_status (*native_wait)(quire_be_queue *queue, const quire_native *native,
                                quire_error *error);
    /* Turns the engine's own host memory into memory of kind HOST, which keeps its content.
     * mem_free does not touch it. A range that is not aligned as the device requires is
     * QUIRE_E_ARG. */
    quire_status (*mem_import)(quire_be_device *device, void *host_pointer, uint64_t size_bytes,
                               uint64_t *address, quire_error *error);

    uint64_t features; /* QUIRE_BE_FEATURE_*; 0 for a table that ends before it */
} quire_backend_api;

QUIRE_EXPORT quire_status quire_backend_query_v0(const quire_host_info *host,
                                                 const quire_backend_api **out, quire_error *error);
typedef quire_status (*quire_backend_query_fn)(const quire_host_info *host,
                                               const quire_backend_api **out, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_PLUGIN_BACKEND_H */
