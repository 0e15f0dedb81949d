// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>

#include "device.hpp"
#include "format.hpp"
#include "plan.hpp"
#include "queue.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shared/checks.hpp"
#include "shared/element_type.hpp"
#include "shared/pool_calls.hpp"
#include "shared/pool_view.hpp"

namespace quire::gpu {

namespace {

// Where a layer's numbers begin, of f32 [layer_count][2][kv_heads]; 0 stays 0.
uint64_t at_layer(uint64_t address, const quire_be_pool &pool, uint32_t layer) {
    return address == 0 ? 0 : address + uint64_t{layer} * 2 * pool.kv_heads * sizeof(float);
}

KvWriteCall call_of(const quire_be_kv_write &args, const quire_be_plan *plan) {
    const quire_be_pool &pool = *args.pool;
    KvWriteCall to{};
    to.k = args.k;
    to.v = args.v;
    to.slots = args.slots;
    to.pool = pool.address + args.layer * static_cast<uint64_t>(pool.layer_stride);
    bool has_scales =
        pool.k_scale_kind == QUIRE_SCALE_TENSOR || pool.k_scale_kind == QUIRE_SCALE_HEAD ||
        pool.v_scale_kind == QUIRE_SCALE_TENSOR || pool.v_scale_kind == QUIRE_SCALE_HEAD;
    to.scales = has_scales ? at_layer(pool.scales, pool, args.layer) : 0;
    to.amax = at_layer(pool.amax, pool, args.layer);
    to.slot_count = slot_count_of(pool);
    to.block_stride = pool.block_stride;
    to.v_offset = pool.v_offset;
    to.k_head_stride = pool.k_head_stride;
    to.k_token_stride = pool.k_token_stride;
    to.v_head_stride = pool.v_head_stride;
    to.v_token_stride = pool.v_token_stride;
    to.k_scale_offset = pool.k_scale_offset;
    to.v_scale_offset = pool.v_scale_offset;
    to.scale_head_stride = pool.scale_head_stride;
    to.k_given_stride = args.k_token_stride;
    to.v_given_stride = args.v_token_stride;
    to.block_tokens = pool.block_tokens;
    to.kv_heads = pool.kv_heads;
    to.k_dim = pool.k_head_dim;
    to.v_dim = pool.v_head_dim;
    to.k_format = format_of(pool.k_dtype);
    to.v_format = format_of(pool.v_dtype);
    to.k_scale = pool.k_scale_kind;
    to.v_scale = pool.v_scale_kind;
    to.given_format = format_of(args.dtype);
    to.is_latent = pool.group_kind == QUIRE_GROUP_LATENT ? 1 : 0;
    if (plan == nullptr || !plan->options.has(QUIRE_BE_ATTENTION_ROPE)) return to;
    const quire_be_attention_query &shape = plan->options.shape;
    to.positions = args.positions;
    to.q = args.q;
    to.q_stride = args.q_token_stride;
    to.q_format = format_of(shape.q_dtype);
    to.q_heads = shape.q_heads;
    to.rotated_dim = shape.rotated_dim;
    to.is_in_pairs = shape.rope_pairing == QUIRE_ROPE_PAIRS ? 1 : 0;
    to.magnitude = plan->options.rope_magnitude;
    std::copy_n(plan->turns.get(), plan->turn_count, to.turns);
    return to;
}

MoveCall call_of(const quire_be_pool &pool) {
    MoveCall to{};
    bool has_v = pool.group_kind != QUIRE_GROUP_LATENT;
    bool has_k_scale = pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    bool has_v_scale = has_v && pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    to.pool = pool.address;
    to.block_stride = pool.block_stride;
    to.layer_stride = pool.layer_stride;
    to.v_offset = pool.v_offset;
    to.k_head_stride = pool.k_head_stride;
    to.k_token_stride = pool.k_token_stride;
    to.v_head_stride = pool.v_head_stride;
    to.v_token_stride = pool.v_token_stride;
    to.k_scale_offset = pool.k_scale_offset;
    to.v_scale_offset = pool.v_scale_offset;
    to.scale_head_stride = pool.scale_head_stride;
    to.block_tokens = pool.block_tokens;
    to.kv_heads = pool.kv_heads;
    auto row_bytes = [](uint32_t dtype, uint32_t dim) {
        return static_cast<uint32_t>(find_type(dtype)->row_bytes(dim));
    };
    to.k_bytes = row_bytes(pool.k_dtype, pool.k_head_dim);
    to.v_bytes = has_v ? row_bytes(pool.v_dtype, pool.v_head_dim) : 0;
    to.k_scale_bytes = has_k_scale ? sizeof(float) : 0;
    to.v_scale_bytes = has_v_scale ? sizeof(float) : 0;
    return to;
}

}  // namespace

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    quire_be_kv_write resolved{};
    if (quire_status status = resolve_kv_write(args, &resolved, error)) return status;
    const quire_be_plan *plan = args->plan;
    if (plan != nullptr) {
        if (quire_status status = check_plan_fits(*plan, *args->pool, queue->device, error)) {
            return status;
        }
        if (quire_status status = resolve_rope(plan->options, &resolved, error)) return status;
    }
    if (args->token_count == 0) return QUIRE_OK;
    KvWriteCall call = call_of(resolved, plan);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    return enqueue.launch(KernelName::kv_write, resolved.token_count, &call.head, error);
}

quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_moves(pool, moves, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    MoveCall call = call_of(*pool);
    uint64_t groups = uint64_t{pool->layer_count} * pool->kv_heads;
    for (uint32_t done = 0; done < count; done += call.move_count) {
        call.move_count = std::min(count - done, kMostMoves);
        for (uint32_t i = 0; i < call.move_count; ++i) {
            call.moves[i] = {moves[done + i].src, moves[done + i].dst};
        }
        if (quire_status status = enqueue.launch(KernelName::move, groups, &call.head, error)) {
            return status;
        }
    }
    return QUIRE_OK;
}

}  // namespace quire::gpu
