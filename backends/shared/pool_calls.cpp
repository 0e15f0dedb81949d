// SPDX-License-Identifier: Apache-2.0

#include "shared/pool_calls.hpp"

#include <cinttypes>
#include <cstddef>
#include <cstring>

#include "quire/attention.h"
#include "quire/cache.h"
#include "shared/checks.hpp"
#include "shared/element_type.hpp"
#include "shared/pool_view.hpp"

namespace quire {

namespace {

// A kernel's work items are counted in 32 bits, and each covers at least this many rows.
constexpr uint32_t kMergeRows = 64;

quire_status resolve_given(const ElementType &given, quire_be_kv_write *args, quire_error *error) {
    const quire_be_pool &pool = *args->pool;
    if (args->slots == 0 || args->slots % alignof(int64_t) != 0) {
        return fail(error, QUIRE_E_ARG, "slots is NULL or not aligned to 8 bytes");
    }
    uint64_t k_elements = uint64_t{pool.kv_heads} * pool.k_head_dim;
    uint64_t v_elements = uint64_t{pool.kv_heads} * pool.v_head_dim;
    if (pool.group_kind == QUIRE_GROUP_LATENT) {  // the latent, and the rotated part
        k_elements = pool.v_head_dim;
        v_elements = pool.k_head_dim - pool.v_head_dim;
    }
    if (quire_status status = check_elements(args->k, given, "k", error)) return status;
    if (quire_status status =
            resolve_stride(&args->k_token_stride, k_elements, "k_token_stride", error)) {
        return status;
    }
    if (v_elements == 0) return QUIRE_OK;
    if (quire_status status = check_elements(args->v, given, "v", error)) return status;
    return resolve_stride(&args->v_token_stride, v_elements, "v_token_stride", error);
}

quire_status check_fits_plan(const PlanOptions &plan, const quire_be_attention &args,
                             quire_error *error) {
    if (args.row_count > plan.max_rows || args.query_tokens > plan.max_query_tokens) {
        return fail(error, QUIRE_E_ARG,
                    "%u rows and %u query tokens exceed the plan's maximum of %u and %u",
                    args.row_count, args.query_tokens, plan.max_rows, plan.max_query_tokens);
    }
    bool has_sinks = plan.has(QUIRE_ATTENTION_SINK_LOGITS);
    if (has_sinks != (args.sinks != 0)) {
        return fail(error, QUIRE_E_ARG,
                    "sinks are %s, but the plan was created %s QUIRE_ATTENTION_SINK_LOGITS",
                    has_sinks ? "missing" : "given", has_sinks ? "with" : "without");
    }
    if (args.mask != 0 && !plan.has(QUIRE_ATTENTION_MASK)) {
        return fail(error, QUIRE_E_ARG,
                    "a mask is given, but the plan was created without QUIRE_ATTENTION_MASK");
    }
    return QUIRE_OK;
}

constexpr uint64_t kIntAlignment = alignof(int32_t) - 1;

quire_status check_tables(const quire_be_attention &args, quire_error *error) {
    uint64_t tables = args.block_table | args.lengths | args.cu_q | args.lse | args.sinks;
    if (args.block_table == 0 || args.lengths == 0 || args.cu_q == 0 ||
        (tables & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "block_table, lengths or cu_q is NULL, or one of them, sinks or lse is not "
                    "aligned to 4 bytes");
    }
    if ((args.shared_prefix & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG, "shared_prefix is not aligned to 4 bytes");
    }
    if (args.mask == 0) return QUIRE_OK;
    uint64_t masks = args.mask | args.mask_rows | args.mask_first | args.positions;
    if (args.mask_rows == 0 || args.mask_first == 0 || args.positions == 0 ||
        (masks & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "a mask requires mask_rows, mask_first and positions, all aligned to 4 bytes");
    }
    return QUIRE_OK;
}

quire_status check_attention(const PlanOptions &plan, quire_be_attention *args,
                             quire_error *error) {
    const quire_be_attention_query &shape = plan.shape;
    if (quire_status status = check_tables(*args, error)) return status;
    const ElementType &q_type = *find_value_type(shape.q_dtype);
    if (quire_status status = check_elements(args->q, q_type, "q", error)) return status;
    if (quire_status status = check_elements(args->out, q_type, "out", error)) {
        return status;
    }
    uint64_t q_elements = uint64_t{shape.q_heads} * shape.k_head_dim;
    uint64_t out_elements = uint64_t{shape.q_heads} * shape.v_head_dim;
    if (quire_status status =
            resolve_stride(&args->q_token_stride, q_elements, "q_token_stride", error)) {
        return status;
    }
    return resolve_stride(&args->out_token_stride, out_elements, "out_token_stride", error);
}

quire_status check_states(const quire_be_merge &args, const ElementType &element,
                          quire_error *error) {
    if (args.part_count == 0 || args.heads == 0 || args.head_dim == 0) {
        return fail(error, QUIRE_E_ARG, "%u parts, %u heads and head dim %u: all must be above 0",
                    args.part_count, args.heads, args.head_dim);
    }
    uint64_t row_count = uint64_t{args.token_count} * args.heads;
    uint64_t elements = 0;
    uint64_t size_bytes = 0;
    if (__builtin_mul_overflow(row_count, uint64_t{args.head_dim}, &elements) ||
        __builtin_mul_overflow(elements, uint64_t{args.part_count}, &elements) ||
        __builtin_mul_overflow(elements, uint64_t{element.size_bytes}, &size_bytes) ||
        row_count / kMergeRows >= UINT32_MAX) {
        return fail(error, QUIRE_E_ARG, "%u parts of %u tokens with %u heads exceed the size limit",
                    args.part_count, args.token_count, args.heads);
    }
    if (args.lses == 0 || ((args.lses | args.lse) & kIntAlignment) != 0) {
        return fail(error, QUIRE_E_ARG, "lses is NULL, or it or lse is not aligned to 4 bytes");
    }
    if (quire_status status = check_elements(args.parts, element, "parts", error)) return status;
    return check_elements(args.out, element, "out", error);
}

}  // namespace

quire_status resolve_kv_write(const quire_be_kv_write *args, quire_be_kv_write *resolved,
                              quire_error *error) {
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    const ElementType *given = find_value_type(args->dtype);
    if (given == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED,
                    "unknown input type 0x%x of K and V; valid types are %s", args->dtype,
                    kElementNames);
    }
    *resolved = *args;
    if (args->token_count == 0) return QUIRE_OK;
    return resolve_given(*given, resolved, error);
}

quire_status resolve_rope(const PlanOptions &options, quire_be_kv_write *resolved,
                          quire_error *error) {
    if (!options.has(QUIRE_BE_ATTENTION_ROPE) || resolved->token_count == 0) return QUIRE_OK;
    if (resolved->positions == 0 || resolved->positions % alignof(int32_t) != 0) {
        return fail(error, QUIRE_E_ARG,
                    "the plan has a rope, but positions is NULL or not aligned to 4 bytes");
    }
    if (resolved->q == 0) return QUIRE_OK;
    const quire_be_attention_query &shape = options.shape;
    const ElementType &q_type = *find_value_type(shape.q_dtype);
    if (quire_status status = check_elements(resolved->q, q_type, "q", error)) return status;
    uint64_t q_elements = uint64_t{shape.q_heads} * shape.k_head_dim;
    return resolve_stride(&resolved->q_token_stride, q_elements, "q_token_stride", error);
}

quire_status check_moves(const quire_be_pool *pool, const quire_be_move *moves, uint32_t count,
                         quire_error *error) {
    if (quire_status status = check_pool(pool, 0, error)) return status;
    if (count == 0) return QUIRE_OK;
    if (moves == nullptr) return fail(error, QUIRE_E_ARG, "moves is NULL, but count is %u", count);
    int64_t slot_count = slot_count_of(*pool);
    for (uint32_t i = 0; i < count; ++i) {
        auto is_inside = [&](int64_t slot) { return slot >= 0 && slot < slot_count; };
        if (is_inside(moves[i].src) && is_inside(moves[i].dst)) continue;
        return fail(error, QUIRE_E_ARG,
                    "move %u, from slot %" PRId64 " to %" PRId64
                    ", is out of range; the pool has %" PRId64 " slots",
                    i, moves[i].src, moves[i].dst, slot_count);
    }
    return QUIRE_OK;
}

quire_status resolve_attention(const PlanOptions &options, const quire_be_attention *args,
                               quire_be_attention *resolved, quire_error *error) {
    constexpr uint32_t kFirstBytes = offsetof(quire_be_attention, rows_id);
    uint32_t known =
        args != nullptr && args->struct_size == kFirstBytes ? kFirstBytes : sizeof *args;
    if (quire_status status = check_struct(args, known, "args", error)) return status;
    if (quire_status status = check_pool(args->pool, args->layer, error)) return status;
    if (quire_status status = check_pool_fits(options, *args->pool, error)) return status;
    if (quire_status status = check_fits_plan(options, *args, error)) return status;
    *resolved = {};
    std::memcpy(resolved, args, known);
    if (args->row_count == 0 || args->query_tokens == 0) return QUIRE_OK;
    return check_attention(options, resolved, error);
}

quire_status check_merge(const quire_be_merge *args, quire_error *error) {
    if (quire_status status = check_struct(args, sizeof *args, "args", error)) return status;
    const ElementType *element = find_value_type(args->dtype);
    if (element == nullptr) {
        return fail(error, QUIRE_E_UNSUPPORTED, "unknown type 0x%x of parts; valid types are %s",
                    args->dtype, kElementNames);
    }
    return check_states(*args, *element, error);
}

}  // namespace quire
