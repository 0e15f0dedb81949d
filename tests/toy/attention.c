/* SPDX-License-Identifier: Apache-2.0
 *
 * attention: the shapes that have a kernel, plans for them, and the one kernel.
 *
 * Why double: scores, weights and sums then need no care, and this is not run for speed. One pass
 * over the keys, as in Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018):
 * when a larger score comes, the sums so far shrink by exp(old - new).
 *
 * Threads: any; the kernel runs on the device's thread.
 */
#include "attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool.h"
#include "quire/attention.h"
#include "quire/cache.h"

#define LARGEST_HEAD_DIM 512u /* a row's sum is 4 KiB of stack */

/* BATCH_INVARIANT changes nothing here: each row is computed by itself. */
#define KNOWN_FLAGS ((uint32_t)(QUIRE_ATTENTION_NOT_CAUSAL | QUIRE_ATTENTION_BATCH_INVARIANT))

/* Why groups of this kind are refused, in words; NULL if they are not. */
static const char *group_refusal(const quire_be_attention_query *shape) {
    switch (shape->group_kind) {
        case QUIRE_GROUP_FULL:
            if (shape->window != 0) return "only a window group takes a window";
            break;
        case QUIRE_GROUP_WINDOW:
            if (shape->window == 0) return "a window group needs a window";
            break;
        case QUIRE_GROUP_CHUNKED:
            return "there is no kernel for chunked groups";
        case QUIRE_GROUP_LATENT:
            return "there is no kernel for latent groups";
        case QUIRE_GROUP_CROSS:
            return "there is no kernel for cross groups";
        default:
            return "unknown group kind";
    }
    return shape->sink_tokens != 0 ? "sink tokens are not supported" : NULL;
}

/* Why there is no kernel for this shape, in words; NULL if there is one. */
static const char *refusal(const quire_be_attention_query *shape) {
    if (element_bytes(shape->k_dtype) == 0 || element_bytes(shape->v_dtype) == 0) {
        return "K and V must be f32, f16 or bf16";
    }
    if (shape->k_scale_kind != QUIRE_SCALE_NONE || shape->v_scale_kind != QUIRE_SCALE_NONE) {
        return "f32, f16 and bf16 take no scales";
    }
    if (shape->kv_heads == 0 || shape->block_tokens == 0) return "kv_heads or block_tokens is 0";
    if (shape->k_head_dim == 0 || shape->k_head_dim > LARGEST_HEAD_DIM || shape->v_head_dim == 0 ||
        shape->v_head_dim > LARGEST_HEAD_DIM) {
        return "head dims must be 1 to 512";
    }
    if (group_refusal(shape) != NULL) return group_refusal(shape);
    if ((shape->flags & QUIRE_BE_ATTENTION_AMAX) != 0) return "AMAX is not supported";
    if (shape->q_heads == 0) return NULL; /* the query is about the pool alone */
    if (element_bytes(shape->q_dtype) == 0) return "q must be f32, f16 or bf16";
    if (shape->q_heads % shape->kv_heads != 0) return "q_heads is not a multiple of kv_heads";
    if ((shape->flags & QUIRE_ATTENTION_MASK) != 0) return "masks are not supported";
    if ((shape->flags & QUIRE_ATTENTION_SINK_LOGITS) != 0) return "sink logits are not supported";
    if ((shape->flags & QUIRE_BE_ATTENTION_SOFT_CAP) != 0) return "a soft cap is not supported";
    if ((shape->flags & QUIRE_BE_ATTENTION_ALIBI) != 0) return "ALiBi is not supported";
    if ((shape->flags & QUIRE_BE_ATTENTION_ROPE) != 0) return "a rope at write is not supported";
    if ((shape->flags & ~KNOWN_FLAGS) != 0) return "flags contain an unknown flag";
    if (shape->rotated_dim != 0 || shape->rope_pairing != 0) {
        return "rotated_dim or rope_pairing is set without a rope";
    }
    if ((shape->flags & QUIRE_ATTENTION_NOT_CAUSAL) != 0 && shape->window != 0) {
        return "windows need causal attention";
    }
    return NULL;
}

quire_status query_attention(quire_be_device *device, const quire_be_attention_query *query,
                             quire_be_answer *answer, quire_error *error) {
    quire_be_answer filled;
    const char *reason;
    quire_status status;
    if (device == NULL || answer == NULL) {
        return fail(error, QUIRE_E_ARG, "device or answer is NULL");
    }
    status = check_struct(query, sizeof *query, "query", error);
    if (status < 0) return status;
    if (answer->struct_size < sizeof filled) {
        return fail(error, QUIRE_E_STRUCT,
                    "answer has struct_size %u; set it to sizeof, which is %zu",
                    (unsigned)answer->struct_size, sizeof filled);
    }
    memset(&filled, 0, sizeof filled);
    filled.struct_size = answer->struct_size;
    reason = refusal(query);
    if (reason == NULL) {
        filled.support = QUIRE_BE_YES;
        filled.alignment = 1;
    } else {
        snprintf(filled.reason, sizeof filled.reason, "%s", reason);
    }
    memcpy(answer, &filled, sizeof filled);
    return QUIRE_OK;
}

/* Plans. ----------------------------------------------------------------------------------------*/

struct quire_be_plan {
    quire_be_device *device;
    quire_be_plan_desc desc; /* with a resolved scale, never 0 */
};

quire_status plan_create(quire_be_device *device, const quire_be_plan_desc *desc,
                         quire_be_plan **out, quire_error *error) {
    quire_be_plan *plan;
    const char *reason;
    quire_status status;
    if (device == NULL || out == NULL) return fail(error, QUIRE_E_ARG, "device or out is NULL");
    status = check_struct(desc, sizeof *desc, "desc", error);
    if (status < 0) return status;
    if (desc->shape.struct_size != sizeof desc->shape) { /* it lies within desc: it cannot grow */
        return fail(error, QUIRE_E_STRUCT, "desc.shape has struct_size %u; set it to sizeof: %zu",
                    (unsigned)desc->shape.struct_size, sizeof desc->shape);
    }
    if (desc->shape.q_heads == 0) return fail(error, QUIRE_E_ARG, "a plan needs q_heads");
    if (!isfinite(desc->scale)) return fail(error, QUIRE_E_ARG, "scale is not finite");
    reason = refusal(&desc->shape);
    if (reason != NULL) return fail(error, QUIRE_E_UNSUPPORTED, "%s", reason);
    if (desc->soft_cap != 0 || desc->alibi_slopes != NULL || desc->rope != NULL) {
        return fail(error, QUIRE_E_ARG,
                    "soft_cap, alibi_slopes or rope is given, but shape.flags lacks its flag");
    }
    plan = object_new(sizeof *plan, error);
    if (plan == NULL) return QUIRE_E_HOST_MEMORY;
    plan->device = device;
    plan->desc = *desc;
    if (desc->scale == 0) plan->desc.scale = (float)(1 / sqrt(desc->shape.k_head_dim));
    device_keep(device);
    *out = plan;
    return QUIRE_OK;
}

/* Enqueued calls hold copies of their plan, so nothing waits here. */
void plan_destroy(quire_be_plan *plan) {
    quire_be_device *device;
    if (plan == NULL) return;
    device = plan->device;
    free(plan);
    object_count(-1);
    device_drop(device);
}

/* The kernel. -----------------------------------------------------------------------------------*/

struct attention {
    quire_be_attention call;
    quire_be_plan_desc plan;
    quire_be_pool pool;
};

static int32_t int_at(uint64_t address, uint64_t index) {
    int32_t value;
    memcpy(&value, (const int32_t *)(uintptr_t)address + index, sizeof value);
    return value;
}

/* Computes one query head of one token over keys [first, end) of its row. */
static int attend(const struct attention *work, uint32_t row, uint32_t token, uint32_t head,
                  int64_t first, int64_t end) {
    const quire_be_attention *call = &work->call;
    const quire_be_pool *pool = &work->pool;
    uint32_t type = work->plan.shape.q_dtype, unit_bytes = element_bytes(type), dim;
    uint32_t kv_head = head / (work->plan.shape.q_heads / pool->kv_heads);
    uint32_t k_bytes = element_bytes(pool->k_dtype), v_bytes = element_bytes(pool->v_dtype);
    uint64_t q = call->q + ((uint64_t)token * (uint64_t)call->q_token_stride +
                            (uint64_t)head * pool->k_head_dim) *
                               unit_bytes;
    uint64_t out = call->out + ((uint64_t)token * (uint64_t)call->out_token_stride +
                                (uint64_t)head * pool->v_head_dim) *
                                   unit_bytes;
    double sums[LARGEST_HEAD_DIM] = {0}, total = 0, largest = -INFINITY;
    int64_t key;
    for (key = first; key < end; ++key) {
        uint64_t entry =
            (uint64_t)row * call->block_table_stride + (uint64_t)key / pool->block_tokens;
        int32_t block = int_at(call->block_table, entry);
        uint32_t at = (uint32_t)(key % pool->block_tokens);
        double score = 0, weight;
        uint64_t k, v;
        if (block < 0 || (uint32_t)block >= pool->block_count) return 0;
        k = pool_k(pool, call->layer, (uint64_t)block, at, kv_head);
        v = pool_v(pool, call->layer, (uint64_t)block, at, kv_head);
        for (dim = 0; dim < pool->k_head_dim; ++dim) {
            score += (double)element_load(q + (uint64_t)dim * unit_bytes, type) *
                     element_load(k + (uint64_t)dim * k_bytes, pool->k_dtype);
        }
        score *= work->plan.scale;
        if (score == -INFINITY) continue; /* its weight is 0, and -inf - -inf is NaN */
        if (score > largest) {
            double shrink = exp(largest - score);
            for (dim = 0; dim < pool->v_head_dim; ++dim) sums[dim] *= shrink;
            total *= shrink;
            largest = score;
        }
        weight = exp(score - largest);
        total += weight;
        for (dim = 0; dim < pool->v_head_dim; ++dim) {
            sums[dim] += weight * element_load(v + (uint64_t)dim * v_bytes, pool->v_dtype);
        }
    }
    for (dim = 0; dim < pool->v_head_dim; ++dim) {
        element_store(out + (uint64_t)dim * unit_bytes, type,
                      total == 0 ? 0.0f : (float)(sums[dim] / total));
    }
    if (call->lse != 0) {
        element_store(
            call->lse + ((uint64_t)token * work->plan.shape.q_heads + head) * sizeof(float),
            QUIRE_DTYPE_F32, total == 0 ? -INFINITY : (float)(largest + log(total)));
    }
    return 1;
}

static int run_attention(const void *arguments, size_t size_bytes) {
    const struct attention *work = arguments;
    const quire_be_attention *call = &work->call;
    const quire_be_attention_query *shape = &work->plan.shape;
    uint32_t row, head;
    (void)size_bytes;
    for (row = 0; row < call->row_count; ++row) {
        int64_t length = int_at(call->lengths, row);
        int64_t begin = int_at(call->cu_q, row), end = int_at(call->cu_q, row + 1), token;
        if (begin < 0 || end < begin || end > call->query_tokens) return 0;
        if (length > (int64_t)call->block_table_stride * shape->block_tokens) return 0;
        for (token = begin; token < end; ++token) {
            int is_causal = (shape->flags & QUIRE_ATTENTION_NOT_CAUSAL) == 0;
            int64_t sees = is_causal ? length - (end - token) + 1 : length;
            int64_t first = shape->window > 0 ? sees - (int64_t)shape->window : 0;
            for (head = 0; head < shape->q_heads; ++head) {
                if (!attend(work, row, (uint32_t)token, head, first > 0 ? first : 0, sees))
                    return 0;
            }
        }
    }
    return 1;
}

/* Checks that the call fits its plan. */
static quire_status check_call(const quire_be_plan_desc *plan, const quire_be_attention *args,
                               quire_error *error) {
    const quire_be_attention_query *shape = &plan->shape;
    const quire_be_pool *pool = args->pool;
    if (pool->kv_heads != shape->kv_heads || pool->k_head_dim != shape->k_head_dim ||
        pool->v_head_dim != shape->v_head_dim || pool->k_dtype != shape->k_dtype ||
        pool->v_dtype != shape->v_dtype || pool->block_tokens != shape->block_tokens ||
        pool->group_kind != shape->group_kind) {
        return fail(error, QUIRE_E_ARG,
                    "the pool's kind, heads, dims, types or blocks differ from the plan's");
    }
    if (args->sinks != 0 || args->mask != 0) {
        return fail(error, QUIRE_E_ARG, "sinks or a mask is given, but the plan supports neither");
    }
    if (args->row_count > plan->max_rows || args->query_tokens > plan->max_query_tokens) {
        return fail(error, QUIRE_E_ARG,
                    "%u rows and %u tokens exceed the plan's maximum of %u and %u",
                    (unsigned)args->row_count, (unsigned)args->query_tokens,
                    (unsigned)plan->max_rows, (unsigned)plan->max_query_tokens);
    }
    if (args->query_tokens == 0) return QUIRE_OK;
    if (args->q == 0 || args->out == 0 || args->block_table == 0 || args->lengths == 0 ||
        args->cu_q == 0) {
        return fail(error, QUIRE_E_ARG, "q, out, block_table, lengths or cu_q is address 0");
    }
    if (!rows_fit(args->q, shape->q_dtype, args->q_token_stride, shape->q_heads,
                  shape->k_head_dim) ||
        !rows_fit(args->out, shape->q_dtype, args->out_token_stride, shape->q_heads,
                  shape->v_head_dim) ||
        (args->lse | args->block_table | args->lengths | args->cu_q | args->shared_prefix) %
                sizeof(int32_t) !=
            0) {
        return fail(
            error, QUIRE_E_ARG,
            "an address is not aligned to its elements, or a token stride is below a token's size");
    }
    return QUIRE_OK;
}

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    struct attention work;
    quire_status status;
    if (queue == NULL || plan == NULL) return fail(error, QUIRE_E_ARG, "queue or plan is NULL");
    status = check_struct(args, sizeof *args, "args", error);
    if (status < 0) return status;
    if (plan->device != queue->device) {
        return fail(error, QUIRE_E_ARG, "the plan and the queue belong to different devices");
    }
    status = pool_check(args->pool, args->layer, error);
    if (status < 0) return status;
    status = check_call(&plan->desc, args, error);
    if (status < 0) return status;
    work.call = *args;
    work.plan = plan->desc;
    work.pool = *args->pool;
    if (args->query_tokens == 0) return QUIRE_OK;
    return queue_push(queue, run_attention, &work, sizeof work, error);
}
