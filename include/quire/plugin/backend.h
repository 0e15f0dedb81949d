/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: what a device vendor implements. One shared object, one exported symbol, one table.
 *
 * A plugin exports quire_backend_query_v0. The core calls it once per load; it is pure: no threads,
 * no driver, no environment writes. Everything a backend offers is a slot of quire_backend_api; a
 * NULL slot means "unsupported" and never "does nothing". Copy backends/null to begin.
 *
 * Threads   Slots may be called from any thread; calls on one queue are serialised by the core.
 * Enqueue   Slots that take a queue only enqueue, and run in order on it. Only *_wait_host and
 *           quiesce wait. None may unwind, change the caller's current device context, or install
 *           signal handlers.
 * Failure   A negative status means that nothing was enqueued or allocated. `error` is never NULL.
 *           An exception, a status that base.h does not have, QUIRE_S_TIMEOUT of a slot that does
 *           not wait, or success without an object reaches the caller as QUIRE_E_BACKEND.
 * Memory    Addresses are uint64_t: device addresses, or host pointers where host_visible is 1.
 * Version   The plugin answers min(host minor, own minor) in abi_minor and behaves as that version.
 */
#ifndef QUIRE_PLUGIN_BACKEND_H
#define QUIRE_PLUGIN_BACKEND_H

#include "../base.h"

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

/* What the core offers a backend. `self` goes first into each function. */
typedef struct quire_host_info {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t reserved0;
    void *self;
    void *(*allocate)(void *self, uint64_t size_bytes, uint64_t alignment);
    void (*release)(void *self, void *pointer, uint64_t size_bytes, uint64_t alignment);
    void (*log)(void *self, int32_t level, const char *component, const char *message);
} quire_host_info;

enum { QUIRE_BE_DEVICE_PIN_THREADS = 1 << 0, QUIRE_BE_DEVICE_FAST_16BIT = 1 << 1 };

/* device.h, quire_device_desc: what `threads`, the flags and run_tasks mean. `threads`, PIN_THREADS
 * and run_tasks are wishes of one who has threads to spare or to save: a backend that runs no
 * kernels on the host's looks at none of them. FAST_16BIT is a permission that none has to use. */
typedef struct quire_be_device_desc {
    uint32_t struct_size;
    uint32_t flags; /* QUIRE_BE_DEVICE_* */
    uint32_t index;
    uint32_t threads; /* 0 = one per core */
    quire_run_tasks run_tasks;
    void *run_tasks_user;
    /* NULL, or one struct of each type at most, checked by the rules of base.h. One that the
     * backend does not know is QUIRE_E_UNSUPPORTED. */
    const quire_chain *next;
} quire_be_device_desc;

typedef struct quire_be_device_props {
    uint32_t struct_size;
    uint32_t host_visible; /* 0 or 1 */
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes;
    uint32_t copy_alignment; /* a power of 2 */
    uint32_t flags;          /* QUIRE_BE_DEVICE_*: of those asked for, what is in effect */
    char name[64];
} quire_be_device_props;

/* One group's blocks in memory: quire_pool_info, for a backend. Strides in bytes; `layer` counts
 * within the group. */
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
    /* Scales, QUIRE_SCALE_*: what a kind has no use for is 0, and is not looked at. In a latent
     * pool V's are K's.
     * TOKEN_HEAD: the f32 scale of block b, layer l, head h, place p lies at the address
     *   + b * block_stride + l * layer_stride + {k,v}_scale_offset + h * scale_head_stride + p * 4.
     * TENSOR and HEAD: `scales` is the address of f32 [layer_count][2][kv_heads], K's before V's;
     * with TENSOR all heads of a side hold one number, so that kernels know one static case. */
    uint32_t k_scale_kind;
    uint32_t v_scale_kind;
    int64_t k_scale_offset;
    int64_t v_scale_offset;
    int64_t scale_head_stride;
    uint64_t scales;
    /* 0: not wanted. Else the address of f32 [layer_count][2][kv_heads], K's before V's, which
     * kv_write raises to the largest magnitude of what it writes: of K after the rope, before it
     * is rounded or becomes a code, negative slots and those of block 0, the null block, left out;
     * in a latent pool K's of the whole row, and V's stays as it is. Magnitudes are compared by
     * their bits: an infinity is above all numbers and a NaN above it, so neither gets lost. Calls
     * on two queues may raise one number at once. */
    uint64_t amax;
} quire_be_pool;

enum { QUIRE_BE_NO = 0, QUIRE_BE_YES = 1, QUIRE_BE_SLOW = 2 };

/* In quire_be_attention_query.flags, beside QUIRE_ATTENTION_*: what the plan's pointers and numbers
 * ask for. */
enum {
    QUIRE_BE_ATTENTION_SOFT_CAP = 1 << 16,
    QUIRE_BE_ATTENTION_ALIBI = 1 << 17,
    QUIRE_BE_ATTENTION_ROPE = 1 << 18,
    /* Without q_heads, and in no plan: may the pool have an amax? */
    QUIRE_BE_ATTENTION_AMAX = 1 << 19
};

/* May a kernel of this shape be had? Everything that decides a kernel instance is here. */
typedef struct quire_be_attention_query {
    uint32_t struct_size;
    uint32_t flags;   /* QUIRE_ATTENTION_*, QUIRE_BE_ATTENTION_* */
    uint32_t q_heads; /* 0: only kv_write and copies are asked about */
    uint32_t kv_heads;
    uint32_t k_head_dim;
    uint32_t v_head_dim;
    uint32_t q_dtype;
    uint32_t k_dtype;
    uint32_t v_dtype;
    uint32_t block_tokens;
    uint32_t window;      /* tokens, of a window or a chunk; 0 = none */
    uint32_t group_kind;  /* QUIRE_GROUP_*; a cross group asks for QUIRE_ATTENTION_NOT_CAUSAL */
    uint32_t sink_tokens; /* kept in front of a window */
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
    uint64_t workspace_bytes;
    char reason[160]; /* for QUIRE_BE_NO: what is missing, in words */
} quire_be_answer;

enum {
    QUIRE_BE_MEMORY_DEVICE = 0,
    QUIRE_BE_MEMORY_HOST = 1,
    QUIRE_BE_MEMORY_IMPORTED = 2 /* for mem_free: of mem_import */
};

enum { QUIRE_BE_COPY_D2D = 0, QUIRE_BE_COPY_D2H = 1, QUIRE_BE_COPY_H2D = 2, QUIRE_BE_COPY_H2H = 3 };

/* Descriptors of one call are independent: no destination overlaps any other range of the call. Of
 * this a backend refuses what one descriptor shows, a destination that overlaps its own source
 * within one memory (D2D, H2H), with QUIRE_E_ARG; what two show it need not look for, and those
 * destinations then hold anything. Sources may overlap each other. Host addresses lie in memory of
 * kind QUIRE_BE_MEMORY_HOST and stay untouched until the copy has run; it is the device's own, or,
 * where host_visible is 1, that of any device of the backend. */
typedef struct quire_be_copy {
    uint64_t dst;
    uint64_t src;
    uint64_t size_bytes;
    uint32_t kind;
    uint32_t reserved0;
} quire_be_copy;

/* Memory of any kind to be set to one byte. Ranges of one call do not overlap; a backend need not
 * look. */
typedef struct quire_be_range {
    uint64_t address;
    uint64_t size_bytes;
} quire_be_range;

/* Token t of [0, token_count): slot = slots[t]; negative = skip. Slot s is block s / block_tokens,
 * place s % block_tokens. Converts `dtype` (f32, f16 or bf16) to the pool's types, round to nearest
 * even. In a latent pool k is [token_count][v_head_dim] and v [token_count][k_head_dim -
 * v_head_dim].
 * With a plan that has a rope, K is turned by positions[t] before it is rounded, and q, in the
 * plan's q_dtype, in place, tokens with a negative slot too.
 * A row of codes is made as cache.h says at QUIRE_SCALE_*: code = x / scale, one division in f32,
 * and with TOKEN_HEAD scale = (largest |x|) / (largest code), another; its row is what lies side by
 * side in the pool, so in a latent pool the whole of k and v. */
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
    quire_be_plan *plan; /* NULL: no rope */
    uint64_t positions;  /* address: int32 [token_count]; with a rope */
    uint64_t q;          /* address: [token_count][q_heads][k_head_dim]; 0 = is not to be turned */
    int64_t q_token_stride; /* elements */
} quire_be_kv_write;

/* Angles are positions times frequencies; attention.h says which elements make a pair. Cosine and
 * sine are multiplied by magnitude, > 0. Turned are the first rotated_dim elements of each head, in
 * a latent pool the last ones. */
typedef struct quire_be_rope {
    uint32_t struct_size;
    float magnitude;
    const float *frequencies; /* host: [shape.rotated_dim / 2], copied */
} quire_be_rope;

/* What an attention call does beyond its arguments; a plan holds it, a batch holds the plan. */
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
 * Masks: a token with mask_rows[t] >= 0 is at positions[t] and sees the keys before mask_first[r],
 * and key mask_first[r] + i where bit i % 32 of mask[mask_rows[t] + i / 32] is set, up to the row's
 * length; of these, in a window or chunked group, those that a token at its position would see
 * without a mask. A row's tokens without one come before those with one. A key that is one of the
 * row's new tokens is at that token's position, any other at its place.
 * Shared prefixes: the first shared_prefix[r] entries of row r's table equal those of row r - 1; a
 * backend may read their keys once for both, and refuses, as a fault, a count that is not so. */
typedef struct quire_be_attention {
    uint32_t struct_size;
    uint32_t layer;
    const quire_be_pool *pool;
    uint64_t q;
    uint64_t out;
    uint64_t lse;           /* 0 = not wanted */
    uint64_t block_table;   /* int32 [row_count][block_table_stride] */
    uint64_t lengths;       /* int32 [row_count] */
    uint64_t cu_q;          /* int32 [row_count + 1]; of a captured call [max_rows + 1] of the plan,
                             * whose rest repeats the last value */
    int64_t q_token_stride; /* elements */
    int64_t out_token_stride;
    uint32_t block_table_stride;
    uint32_t row_count;
    uint32_t query_tokens;
    uint32_t max_length; /* longest row at the commit; a call that is replayed meets longer ones */
    uint64_t sinks;      /* f32 [q_heads]; with QUIRE_ATTENTION_SINK_LOGITS */
    uint64_t positions;  /* int32 [query_tokens]; with QUIRE_ATTENTION_MASK */
    uint64_t mask;       /* uint32; with QUIRE_ATTENTION_MASK, 0 = no token has one */
    uint64_t mask_rows;  /* int32 [query_tokens] */
    uint64_t mask_first; /* int32 [row_count] */
    uint64_t shared_prefix; /* int32 [row_count]; 0 = not known */
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

typedef struct quire_backend_api {
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t min_host_minor;
    const char *name;    /* 1 to 31 bytes of a-z, 0-9, _ and - */
    const char *version; /* at most 31 bytes */

    /* How many devices there are; of 0 `error` may say why. No device context is made. */
    quire_status (*probe)(uint32_t *device_count, quire_error *error);
    /* Makes the device's context. A flag that is not known, or PIN_THREADS with run_tasks, is
     * QUIRE_E_ARG. */
    quire_status (*device_open)(const quire_be_device_desc *desc, quire_be_device **out,
                                quire_error *error);
    /* Returns when nothing of the device runs any more. Waits of queues for fences that were not
     * reached end; what is behind them is dropped, and the fences it would have signalled fail. A
     * capture of the engine's is not waited for, and stays whole. */
    void (*device_close)(quire_be_device *device);
    quire_status (*device_props)(quire_be_device *device, quire_be_device_props *props,
                                 quire_error *error);
    quire_status (*query_attention)(quire_be_device *device, const quire_be_attention_query *query,
                                    quire_be_answer *answer, quire_error *error);

    /* Zeroed memory, aligned to 4,096 bytes. host_pointer gets NULL where the host cannot reach
     * it. */
    quire_status (*mem_alloc)(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                              uint64_t *address, void **host_pointer, quire_error *error);
    void (*mem_free)(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

    /* `native` NULL or of kind QUIRE_NATIVE_NONE: a new queue. Releasing waits for nothing: what
     * was enqueued runs on. While the engine captures a stream of its own, kv_write, attention and
     * merge go to its graph; all else on that queue is QUIRE_E_BUSY and changes nothing, a
     * fence_wait for what was reached long ago too: the core asks by one before it begins. */
    quire_status (*queue_bind)(quire_be_device *device, const quire_native *native,
                               quire_be_queue **out, quire_error *error);
    void (*queue_release)(quire_be_queue *queue);

    /* A value that only grows; all ones means that work before it failed. fence_signal_host refuses
     * a value that would not grow; an enqueued one that would not is ignored. fence_wait_host
     * returns QUIRE_S_TIMEOUT when time runs out and QUIRE_E_DEVICE_LOST when the fence failed;
     * UINT64_MAX waits for ever. What was enqueued may outlive fence_destroy. A queue's wait for a
     * fence that failed ends, and is never refused for that: either the queue goes on, or it fails
     * there as well; a backend does the same whether the fence failed before the call or while the
     * queue waited. */
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
    /* `ranges` is host memory and read before the call returns. */
    quire_status (*fill)(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                         uint32_t byte, quire_error *error);
    quire_status (*kv_write)(quire_be_queue *queue, const quire_be_kv_write *args,
                             quire_error *error);

    quire_status (*plan_create)(quire_be_device *device, const quire_be_plan_desc *desc,
                                quire_be_plan **out, quire_error *error);
    void (*plan_destroy)(quire_be_plan *plan);
    quire_status (*attention)(quire_be_queue *queue, quire_be_plan *plan,
                              const quire_be_attention *args, quire_error *error);

    /* Waits until nothing runs on the device; QUIRE_S_TIMEOUT when time runs out, QUIRE_E_BUSY when
     * all but an engine's own stream is idle, and that cannot be asked. */
    quire_status (*quiesce)(quire_be_device *device, uint64_t timeout_ns, quire_error *error);
    /* Called when the last device is closed; live_objects gets how many objects were not
     * released. */
    quire_status (*shutdown)(uint64_t *live_objects, quire_error *error);

    quire_status (*merge)(quire_be_queue *queue, const quire_be_merge *args, quire_error *error);
    /* As if one after another: a slot may be read by one move and written by a later one. `moves`
     * is host memory and read before the call returns; an index outside the pool is refused. */
    quire_status (*move_tokens)(quire_be_queue *queue, const quire_be_pool *pool,
                                const quire_be_move *moves, uint32_t count, quire_error *error);
    /* device.h, quire_queue_signal_native and quire_queue_after_native. A kind that is not known is
     * QUIRE_E_UNSUPPORTED. */
    quire_status (*native_signal)(quire_be_queue *queue, const quire_native *native,
                                  quire_error *error);
    quire_status (*native_wait)(quire_be_queue *queue, const quire_native *native,
                                quire_error *error);
    /* The engine's own host memory becomes memory of kind HOST, and keeps what it holds. mem_free
     * touches nothing of it. What is not aligned as the device wants is QUIRE_E_ARG. */
    quire_status (*mem_import)(quire_be_device *device, void *host_pointer, uint64_t size_bytes,
                               uint64_t *address, quire_error *error);
} quire_backend_api;

QUIRE_EXPORT quire_status quire_backend_query_v0(const quire_host_info *host,
                                                 const quire_backend_api **out, quire_error *error);
typedef quire_status (*quire_backend_query_fn)(const quire_host_info *host,
                                               const quire_backend_api **out, quire_error *error);

#ifdef __cplusplus
}
#endif
#endif /* QUIRE_PLUGIN_BACKEND_H */
