// SPDX-License-Identifier: Apache-2.0
//
// quantised: faults of pools of codes and of their amax.

#include <cmath>
#include <cstring>
#include <utility>

#include "faults.hpp"
#include "quire/cache.h"
#include "remember.hpp"

namespace quire::wrong {

namespace {

constexpr uint32_t kTokenHead = QUIRE_SCALE_TOKEN_HEAD;

// Multiplies every head's codes by the scale of the previous head; the first by its own.
quire_status scale_of_a_neighbour(quire_be_queue *queue, quire_be_plan *plan,
                                  const quire_be_attention *args, quire_error *error) {
    if (args == nullptr || args->pool == nullptr || args->pool->kv_heads != 2) {
        return right().attention(queue, plan, args, error);
    }
    quire_be_pool pool = *args->pool;
    pool.scale_head_stride = 0;
    bool has_static =
        pool.k_scale_kind == QUIRE_SCALE_HEAD || pool.v_scale_kind == QUIRE_SCALE_HEAD;
    if (has_static && pool.scales != 0) {
        size_t count = size_t{pool.layer_count} * 2 * pool.kv_heads;
        auto *scales = copy_of<float>(pool.scales, count);
        for (size_t i = 1; i < count; i += 2) scales[i] = scales[i - 1];
        pool.scales = address_of(scales);
    }
    quire_be_attention other = *args;
    other.pool = &pool;
    return right().attention(queue, plan, &other, error);
}

// Moves the codes without their scales.
quire_status leave_scales_behind(quire_be_queue *queue, const quire_be_pool *pool,
                                 const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (pool == nullptr) return right().move_tokens(queue, pool, moves, count, error);
    quire_be_pool other = *pool;
    if (other.k_scale_kind == kTokenHead) other.k_scale_kind = QUIRE_SCALE_TENSOR;
    if (other.v_scale_kind == kTokenHead) other.v_scale_kind = QUIRE_SCALE_TENSOR;
    other.scales = pool->address;  // not used
    return right().move_tokens(queue, &other, moves, count, error);
}

// True for calls whose rows may be changed before they are written.
bool is_plain_write(const quire_be_kv_write *args) {
    return args != nullptr && args->pool != nullptr && args->dtype == QUIRE_DTYPE_F32 &&
           args->pool->group_kind == QUIRE_GROUP_FULL && args->k != 0 && args->v != 0 &&
           args->token_count != 0 && args->k_token_stride > 0 && args->v_token_stride > 0;
}

// Writes with change(row, dim, is_v) applied to each given row.
template <typename Change>
quire_status write_changed(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error,
                           Change change) {
    quire_be_kv_write other = *args;
    const quire_be_pool &pool = *args->pool;
    for (bool is_v : {false, true}) {
        uint32_t dim = is_v ? pool.v_head_dim : pool.k_head_dim;
        auto stride = static_cast<size_t>(is_v ? args->v_token_stride : args->k_token_stride);
        size_t count = (args->token_count - 1) * stride + size_t{pool.kv_heads} * dim;
        auto *values = copy_of<float>(is_v ? args->v : args->k, count);
        for (uint32_t t = 0; t < args->token_count; ++t) {
            for (uint32_t h = 0; h < pool.kv_heads; ++h) {
                change(values + t * stride + size_t{h} * dim, dim, is_v);
            }
        }
        (is_v ? other.v : other.k) = address_of(values);
    }
    return right().kv_write(queue, &other, error);
}

// Truncates codes towards 0 instead of rounding.
quire_status cut_codes(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (!is_plain_write(args) || args->pool->k_dtype != QUIRE_DTYPE_I8 ||
        args->pool->k_scale_kind != kTokenHead) {
        return right().kv_write(queue, args, error);
    }
    return write_changed(queue, args, error, [](float *row, uint32_t dim, bool is_v) {
        float largest = 0.0f;
        for (uint32_t d = 0; d < dim; ++d) largest = std::fmax(largest, std::fabs(row[d]));
        float scale = largest / 127.0f;
        if (is_v || !(scale > 0.0f) || !std::isfinite(scale)) return;
        for (uint32_t d = 0; d < dim; ++d) {
            if (std::fabs(row[d]) != largest) row[d] = std::trunc(row[d] / scale) * scale;
        }
    });
}

// Puts the first element of a pair into the high half of the byte.
quire_status swap_halves(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (!is_plain_write(args)) return right().kv_write(queue, args, error);
    bool k = args->pool->k_dtype == QUIRE_DTYPE_I4, v = args->pool->v_dtype == QUIRE_DTYPE_I4;
    return write_changed(queue, args, error, [=](float *row, uint32_t dim, bool is_v) {
        if (!(is_v ? v : k)) return;
        for (uint32_t d = 0; d + 1 < dim; d += 2) std::swap(row[d], row[d + 1]);
    });
}

// Measures K before the rope: writes once without the plan, then correctly without an amax.
quire_status measure_before_the_rope(quire_be_queue *queue, const quire_be_kv_write *args,
                                     quire_error *error) {
    if (args == nullptr || args->pool == nullptr || args->plan == nullptr) {
        return right().kv_write(queue, args, error);
    }
    quire_be_kv_write unturned = *args, turned = *args;
    quire_be_pool pool = *args->pool;
    pool.amax = 0;
    unturned.plan = nullptr;
    turned.pool = &pool;
    quire_status status = right().kv_write(queue, &unturned, error);
    return status < 0 ? status : right().kv_write(queue, &turned, error);
}

// Measures numbers only: a NaN that is written counts as 0.
quire_status lose_a_nan(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (!is_plain_write(args) || args->pool->amax == 0) {
        return right().kv_write(queue, args, error);
    }
    return write_changed(queue, args, error, [](float *row, uint32_t dim, bool) {
        for (uint32_t d = 0; d < dim; ++d) {
            if (std::isnan(row[d])) row[d] = 0.0f;
        }
    });
}

}  // namespace

bool plant_in_codes(const char *fault, quire_backend_api *table) {
    auto is = [&](const char *name) { return std::strcmp(name, fault) == 0; };
    if (is("scale_of_a_neighbour")) return (table->attention = scale_of_a_neighbour) != nullptr;
    if (is("leave_scales_behind")) return (table->move_tokens = leave_scales_behind) != nullptr;
    if (is("cut_codes")) return (table->kv_write = cut_codes) != nullptr;
    if (is("swap_halves")) return (table->kv_write = swap_halves) != nullptr;
    if (is("measure_before_the_rope")) {
        return (table->kv_write = measure_before_the_rope) != nullptr;
    }
    if (is("lose_a_nan")) return (table->kv_write = lose_a_nan) != nullptr;
    return false;
}

}  // namespace quire::wrong
