// SPDX-License-Identifier: Apache-2.0

#include "shared/pool_view.hpp"

#include <cinttypes>

#include "quire/cache.h"
#include "shared/checks.hpp"

namespace quire {

namespace {

// Per token, in elements: a row's address must not overflow for any token of a batch.
constexpr int64_t kLongestStride = int64_t{1} << 28;

// The largest offset of a walk; every step checks for overflow.
class Extent {
 public:
    // Adds `count` places, `stride_bytes` apart, the last of which may be reached.
    void walk(uint64_t count, int64_t stride_bytes) {
        uint64_t distance = 0;
        valid_ =
            valid_ && stride_bytes >= 0 && count != 0 &&
            !__builtin_mul_overflow(count - 1, static_cast<uint64_t>(stride_bytes), &distance) &&
            !__builtin_add_overflow(bytes_, distance, &bytes_);
    }
    bool is_within(uint64_t size_bytes) const { return valid_ && bytes_ <= size_bytes; }

 private:
    uint64_t bytes_ = 0;
    bool valid_ = true;
};

bool is_within(const quire_be_pool &pool, int64_t offset, int64_t head_stride, int64_t token_stride,
               uint64_t row_bytes) {
    Extent extent;
    extent.walk(pool.block_count, pool.block_stride);
    extent.walk(pool.layer_count, pool.layer_stride);
    extent.walk(2, offset);
    extent.walk(pool.kv_heads, head_stride);
    extent.walk(pool.block_tokens, token_stride);
    extent.walk(row_bytes + 1, 1);
    return extent.is_within(pool.size_bytes);
}

quire_status check_shape(const quire_be_pool &pool, uint32_t layer, quire_error *error) {
    if (pool.block_count == 0 || pool.block_tokens == 0 || pool.kv_heads == 0 ||
        pool.k_head_dim == 0 || pool.v_head_dim == 0) {
        return fail(error, QUIRE_E_ARG,
                    "the pool has %u blocks of %u tokens and %u KV heads of head dims %u and %u; "
                    "all must be above 0",
                    pool.block_count, pool.block_tokens, pool.kv_heads, pool.k_head_dim,
                    pool.v_head_dim);
    }
    if (layer >= pool.layer_count) {
        return fail(error, QUIRE_E_ARG, "layer %u is not one of the pool's %u layers", layer,
                    pool.layer_count);
    }
    return QUIRE_OK;
}

// A latent row is one plane: V is its first elements.
quire_status check_kind(const quire_be_pool &pool, quire_error *error) {
    if (pool.group_kind > QUIRE_GROUP_CROSS) {
        return fail(error, QUIRE_E_UNSUPPORTED, "unknown group kind %u", pool.group_kind);
    }
    if (pool.group_kind != QUIRE_GROUP_LATENT) return QUIRE_OK;
    if (pool.kv_heads == 1 && pool.v_head_dim <= pool.k_head_dim && pool.k_dtype == pool.v_dtype &&
        pool.v_offset == 0 && pool.v_head_stride == pool.k_head_stride &&
        pool.v_token_stride == pool.k_token_stride && pool.v_scale_kind == pool.k_scale_kind &&
        pool.v_scale_offset == pool.k_scale_offset) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_ARG,
                "a latent pool needs one KV head and a V at the beginning of K: v_offset 0, K's "
                "strides, type and scales, and a head dim no larger than K's");
}

quire_status check_elements_of_pool(const quire_be_pool &pool, const ElementType &k,
                                    const ElementType &v, quire_error *error) {
    auto k_misfit = static_cast<uint64_t>(pool.k_head_stride | pool.k_token_stride);
    auto v_misfit = static_cast<uint64_t>(pool.v_offset | pool.v_head_stride | pool.v_token_stride);
    uint64_t misfit = pool.address | static_cast<uint64_t>(pool.block_stride) |
                      static_cast<uint64_t>(pool.layer_stride);
    if (pool.address == 0 || (misfit | k_misfit) % k.size_bytes != 0 ||
        (misfit | v_misfit) % v.size_bytes != 0) {
        return fail(error, QUIRE_E_ARG,
                    "the pool's address is NULL, or it or a stride is not a multiple of the "
                    "element size of %s or %s",
                    k.name, v.name);
    }
    if ((k.bits == 4 && pool.k_head_dim % 2 != 0) || (v.bits == 4 && pool.v_head_dim % 2 != 0)) {
        return fail(error, QUIRE_E_ARG,
                    "the pool's head dims are %u (K) and %u (V); a head dim of int4, which packs "
                    "two elements per byte, must be even",
                    pool.k_head_dim, pool.v_head_dim);
    }
    if (!is_within(pool, 0, pool.k_head_stride, pool.k_token_stride,
                   k.row_bytes(pool.k_head_dim)) ||
        !is_within(pool, pool.v_offset, pool.v_head_stride, pool.v_token_stride,
                   v.row_bytes(pool.v_head_dim))) {
        return fail(error, QUIRE_E_ARG,
                    "the pool's strides are negative or exceed its %" PRIu64 " bytes",
                    pool.size_bytes);
    }
    return QUIRE_OK;
}

// Checks where one side's scales are.
quire_status check_side(const quire_be_pool &pool, const ElementType &element, uint32_t kind,
                        int64_t offset, char side, quire_error *error) {
    constexpr uint64_t kFloat = sizeof(float);
    if (kind > QUIRE_SCALE_TOKEN_HEAD) {
        return fail(error, QUIRE_E_UNSUPPORTED, "the pool's %c has the unknown scale kind %u", side,
                    kind);
    }
    if (element.holds_codes() != (kind != QUIRE_SCALE_NONE)) {
        return fail(error, QUIRE_E_ARG, "the pool's %c is %s with scale kind %u: %s", side,
                    element.name, kind,
                    element.holds_codes() ? "codes need a scale" : "values have no scale");
    }
    if (kind == QUIRE_SCALE_NONE) return QUIRE_OK;
    if (kind != QUIRE_SCALE_TOKEN_HEAD) {
        if (pool.scales != 0 && pool.scales % kFloat == 0) return QUIRE_OK;
        return fail(
            error, QUIRE_E_ARG,
            "the pool's %c has scale kind %u, but `scales` is NULL or not aligned to 4 bytes", side,
            kind);
    }
    uint64_t misfit = pool.address | static_cast<uint64_t>(pool.block_stride) |
                      static_cast<uint64_t>(pool.layer_stride) | static_cast<uint64_t>(offset) |
                      static_cast<uint64_t>(pool.scale_head_stride);
    if (misfit % kFloat == 0 && is_within(pool, offset, pool.scale_head_stride, kFloat, kFloat)) {
        return QUIRE_OK;
    }
    return fail(error, QUIRE_E_ARG,
                "the scales of the pool's %c are not aligned to 4 bytes, or their strides are "
                "negative or exceed its %" PRIu64 " bytes",
                side, pool.size_bytes);
}

quire_status check_scales(const quire_be_pool &pool, const ElementType &k, const ElementType &v,
                          quire_error *error) {
    if (quire_status status =
            check_side(pool, k, pool.k_scale_kind, pool.k_scale_offset, 'K', error)) {
        return status;
    }
    return check_side(pool, v, pool.v_scale_kind, pool.v_scale_offset, 'V', error);
}

}  // namespace

quire_status check_pool(const quire_be_pool *pool, uint32_t layer, quire_error *error) {
    if (quire_status status = check_struct(pool, sizeof *pool, "pool", error)) return status;
    if (quire_status status = check_shape(*pool, layer, error)) return status;
    if (quire_status status = check_kind(*pool, error)) return status;
    const ElementType *k = find_type(pool->k_dtype);
    const ElementType *v = find_type(pool->v_dtype);
    if (k == nullptr || v == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "unknown pool type (K 0x%x, V 0x%x); valid types are %s", pool->k_dtype,
                    pool->v_dtype, kPoolElementNames);
    }
    if (quire_status status = check_elements_of_pool(*pool, *k, *v, error)) return status;
    if (pool->amax % alignof(float) != 0) {
        return fail(error, QUIRE_E_ARG, "the pool's amax is not aligned to 4 bytes");
    }
    return check_scales(*pool, *k, *v, error);
}

quire_status check_elements(uint64_t address, const ElementType &element, const char *name,
                            quire_error *error) {
    if (address != 0 && address % element.size_bytes == 0) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "%s is NULL or not aligned to its %s elements", name,
                element.name);
}

quire_status resolve_stride(int64_t *stride, uint64_t token_elements, const char *name,
                            quire_error *error) {
    if (*stride == 0) *stride = static_cast<int64_t>(token_elements);
    if (*stride > kLongestStride) {
        return fail(error, QUIRE_E_ARG, "%s is %" PRId64 ", more than %" PRId64 " elements", name,
                    *stride, kLongestStride);
    }
    if (*stride >= 0 && static_cast<uint64_t>(*stride) >= token_elements) return QUIRE_OK;
    return fail(error, QUIRE_E_ARG, "%s is %" PRId64 ", less than a token's %" PRIu64 " elements",
                name, *stride, token_elements);
}

}  // namespace quire
