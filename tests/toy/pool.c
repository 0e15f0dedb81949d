/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: elements of three types, the places of a token's K and V, and KV writes.
 *
 * Why memcpy for each element: no address in the contract then needs an alignment, and the compiler
 * makes a plain load of it.
 *
 * Threads: any; writes run on the device's thread.  Units: a pool's strides are bytes, a call's are
 * elements.
 */
#include "pool.h"

#include <math.h>
#include <string.h>

#include "quire/cache.h"

struct kv_write {
    quire_be_kv_write call;
    quire_be_pool pool;
};

/* Elements. -------------------------------------------------------------------------------------*/

uint32_t element_bytes(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F32:
            return 4;
        case QUIRE_DTYPE_F16:
        case QUIRE_DTYPE_BF16:
            return 2;
        default:
            return 0;
    }
}

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15), 10 of fraction. */
static float from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u, fraction = half & 1023u;
    if (exponent == 31) return from_bits(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) {
        float magnitude = (float)fraction * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    return from_bits(sign | (exponent + 127 - 15) << 23 | fraction << 13);
}

static uint16_t to_half(float value) {
    uint32_t bits = to_bits(value), magnitude = bits & 0x7FFFFFFFu;
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    if (magnitude > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);  /* NaN */
    if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65,520 and more */
    if (magnitude < 0x38800000u) { /* below 2^-14: a multiple of 2^-24, ties to even */
        return (uint16_t)(sign | (uint16_t)lrintf(from_bits(magnitude) * 0x1p24f));
    }
    magnitude += 0xFFFu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | ((magnitude >> 13) - ((127u - 15u) << 10)));
}

static uint16_t to_bfloat(float value) {
    uint32_t bits = to_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u); /* NaN */
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float element_load(uint64_t address, uint32_t dtype) {
    uint16_t half;
    float value;
    if (dtype == QUIRE_DTYPE_F32) {
        memcpy(&value, (const void *)(uintptr_t)address, sizeof value);
        return value;
    }
    memcpy(&half, (const void *)(uintptr_t)address, sizeof half);
    return dtype == QUIRE_DTYPE_F16 ? from_half(half) : from_bits((uint32_t)half << 16);
}

void element_store(uint64_t address, uint32_t dtype, float value) {
    uint16_t half;
    if (dtype == QUIRE_DTYPE_F32) {
        memcpy((void *)(uintptr_t)address, &value, sizeof value);
        return;
    }
    half = dtype == QUIRE_DTYPE_F16 ? to_half(value) : to_bfloat(value);
    memcpy((void *)(uintptr_t)address, &half, sizeof half);
}

/* Pools. ----------------------------------------------------------------------------------------*/

/* Adds (count - 1) * stride to *end; returns 0 if a stride is invalid or 64 bits overflow. */
static int walk(uint64_t *end, uint64_t count, int64_t stride, uint32_t unit_bytes) {
    if (stride < 0 || stride % unit_bytes != 0) return 0;
    if (stride > 0 && count - 1 > (UINT64_MAX - *end) / (uint64_t)stride) return 0;
    *end += (count - 1) * (uint64_t)stride;
    return 1;
}

/* True if all K (or V) elements of all blocks lie within the pool. */
static int side_fits(const quire_be_pool *pool, int64_t offset, int64_t head_stride,
                     int64_t token_stride, uint32_t head_dim, uint32_t dtype) {
    uint32_t unit_bytes = element_bytes(dtype);
    uint64_t end = (uint64_t)head_dim * unit_bytes;
    return walk(&end, 2, offset, unit_bytes) &&
           walk(&end, pool->block_count, pool->block_stride, unit_bytes) &&
           walk(&end, pool->layer_count, pool->layer_stride, unit_bytes) &&
           walk(&end, pool->kv_heads, head_stride, unit_bytes) &&
           walk(&end, pool->block_tokens, token_stride, unit_bytes) && end <= pool->size_bytes;
}

quire_status pool_check(const quire_be_pool *pool, uint32_t layer, quire_error *error) {
    quire_status status = check_struct(pool, sizeof *pool, "pool", error);
    if (status < 0) return status;
    if (element_bytes(pool->k_dtype) == 0 || element_bytes(pool->v_dtype) == 0) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "the pool's types are 0x%x and 0x%x; at least one is unknown",
                    (unsigned)pool->k_dtype, (unsigned)pool->v_dtype);
    }
    if (pool->k_scale_kind != QUIRE_SCALE_NONE || pool->v_scale_kind != QUIRE_SCALE_NONE) {
        return fail(error, QUIRE_E_ARG, "the pool has scales, but its types are not codes");
    }
    if (pool->group_kind != QUIRE_GROUP_FULL && pool->group_kind != QUIRE_GROUP_WINDOW) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "the pool has group kind %u; valid kinds are 0 and 1",
                    (unsigned)pool->group_kind);
    }
    if (pool->address == 0 || pool->address > UINT64_MAX - pool->size_bytes) {
        return fail(error, QUIRE_E_ARG, "the pool's address is 0, or its end exceeds 64 bits");
    }
    if (pool->block_count == 0 || pool->block_tokens == 0 || pool->layer_count == 0 ||
        pool->kv_heads == 0 || pool->k_head_dim == 0 || pool->v_head_dim == 0) {
        return fail(error, QUIRE_E_ARG, "a count of the pool is 0");
    }
    if (layer >= pool->layer_count) {
        return fail(error, QUIRE_E_ARG, "layer %u is past the pool's %u", (unsigned)layer,
                    (unsigned)pool->layer_count);
    }
    if (!side_fits(pool, 0, pool->k_head_stride, pool->k_token_stride, pool->k_head_dim,
                   pool->k_dtype) ||
        !side_fits(pool, pool->v_offset, pool->v_head_stride, pool->v_token_stride,
                   pool->v_head_dim, pool->v_dtype)) {
        return fail(error, QUIRE_E_ARG,
                    "the pool's strides are negative, split an element, or exceed its %llu bytes",
                    (unsigned long long)pool->size_bytes);
    }
    return QUIRE_OK;
}

static uint64_t place(const quire_be_pool *pool, uint64_t block, uint32_t layer) {
    return pool->address + block * (uint64_t)pool->block_stride +
           layer * (uint64_t)pool->layer_stride;
}

uint64_t pool_k(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head) {
    return place(pool, block, layer) + token * (uint64_t)pool->k_token_stride +
           head * (uint64_t)pool->k_head_stride;
}

uint64_t pool_v(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head) {
    return place(pool, block, layer) + (uint64_t)pool->v_offset +
           token * (uint64_t)pool->v_token_stride + head * (uint64_t)pool->v_head_stride;
}

int rows_fit(uint64_t address, uint32_t dtype, int64_t token_stride, uint32_t heads,
             uint32_t head_dim) {
    return address % element_bytes(dtype) == 0 && token_stride >= 0 &&
           (uint64_t)token_stride >= (uint64_t)heads * head_dim;
}

/* Writes. ---------------------------------------------------------------------------------------*/

static void convert(uint64_t to, uint32_t to_dtype, uint64_t from, uint32_t from_dtype,
                    uint32_t count) {
    uint32_t to_bytes = element_bytes(to_dtype), from_bytes = element_bytes(from_dtype), i;
    if (to_dtype == from_dtype) { /* bit for bit, a NaN too */
        memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, (size_t)count * to_bytes);
        return;
    }
    for (i = 0; i < count; ++i) {
        element_store(to + (uint64_t)i * to_bytes, to_dtype,
                      element_load(from + (uint64_t)i * from_bytes, from_dtype));
    }
}

static int run_kv_write(const void *arguments, size_t size_bytes) {
    const struct kv_write *work = arguments;
    const quire_be_kv_write *call = &work->call;
    const quire_be_pool *pool = &work->pool;
    uint32_t unit_bytes = element_bytes(call->dtype), token, head;
    (void)size_bytes;
    for (token = 0; token < call->token_count; ++token) {
        uint64_t k = call->k + (uint64_t)token * (uint64_t)call->k_token_stride * unit_bytes;
        uint64_t v = call->v + (uint64_t)token * (uint64_t)call->v_token_stride * unit_bytes;
        uint64_t block;
        uint32_t at;
        int64_t slot;
        memcpy(&slot, (const int64_t *)(uintptr_t)call->slots + token, sizeof slot);
        if (slot < 0) continue;
        block = (uint64_t)slot / pool->block_tokens;
        at = (uint32_t)((uint64_t)slot % pool->block_tokens);
        if (block >= pool->block_count) return 0;
        for (head = 0; head < pool->kv_heads; ++head) {
            convert(pool_k(pool, call->layer, block, at, head), pool->k_dtype,
                    k + (uint64_t)head * pool->k_head_dim * unit_bytes, call->dtype,
                    pool->k_head_dim);
            convert(pool_v(pool, call->layer, block, at, head), pool->v_dtype,
                    v + (uint64_t)head * pool->v_head_dim * unit_bytes, call->dtype,
                    pool->v_head_dim);
        }
    }
    return 1;
}

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    struct kv_write work;
    quire_status status;
    if (queue == NULL) return fail(error, QUIRE_E_ARG, "queue is NULL");
    status = check_struct(args, sizeof *args, "args", error);
    if (status < 0) return status;
    status = pool_check(args->pool, args->layer, error);
    if (status < 0) return status;
    if (element_bytes(args->dtype) == 0) {
        return fail(error, QUIRE_E_UNSUPPORTED, "unknown type 0x%x of k and v",
                    (unsigned)args->dtype);
    }
    if (args->token_count > 0 && (args->k == 0 || args->v == 0 || args->slots == 0)) {
        return fail(error, QUIRE_E_ARG, "k, v or slots is address 0");
    }
    if (!rows_fit(args->k, args->dtype, args->k_token_stride, args->pool->kv_heads,
                  args->pool->k_head_dim) ||
        !rows_fit(args->v, args->dtype, args->v_token_stride, args->pool->kv_heads,
                  args->pool->v_head_dim) ||
        args->slots % sizeof(int64_t) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "k, v or slots is not aligned to its elements, or a token stride is below a "
                    "token's size");
    }
    work.call = *args;
    work.pool = *args->pool;
    return queue_push(queue, run_kv_write, &work, sizeof work, error);
}
