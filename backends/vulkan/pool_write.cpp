// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "format.hpp"
#include "plan.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "recorder.hpp"
#include "shared/checks.hpp"
#include "shared/element_type.hpp"
#include "shared/pool_calls.hpp"
#include "shared/pool_view.hpp"

namespace quire::vulkan {

namespace {

// kernels/kv_write.comp, Arguments.
struct KvWriteArguments {
    uint64_t k, v, slots, positions, q, turns;
    uint64_t pool, scales, amax;
    int64_t slot_count;
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t k_given_stride, v_given_stride, q_stride;
    uint32_t block_tokens, kv_heads, k_dim, v_dim;
    uint32_t k_format, v_format, k_scale, v_scale;
    uint32_t given_format, q_format, q_heads, rotated_dim;
    uint32_t is_in_pairs, is_latent;
    float magnitude;
};

// kernels/move.comp, Arguments.
struct MoveArguments {
    uint64_t pool, moves;
    int64_t block_stride, layer_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    uint32_t block_tokens, kv_heads, move_count;
    uint32_t k_bytes, v_bytes, k_scale_bytes, v_scale_bytes;
};

bool is_any_divided(std::span<const uint64_t> addresses) {
    return std::any_of(addresses.begin(), addresses.end(), is_divided);
}

// Where a layer's numbers begin, of f32 [layer_count][2][kv_heads]; 0 stays 0.
uint64_t at_layer(uint64_t address, const quire_be_pool &pool, uint32_t layer) {
    return address == 0 ? 0 : address + uint64_t{layer} * 2 * pool.kv_heads * sizeof(float);
}

KvWriteArguments arguments_of(const quire_be_kv_write &args, const quire_be_plan *plan) {
    const quire_be_pool &pool = *args.pool;
    KvWriteArguments to{};
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
    return to;
}

MoveArguments arguments_of(const quire_be_pool &pool) {
    MoveArguments to{};
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

quire_status no_arguments(quire_error *error) {
    return fail(error, QUIRE_E_DEVICE_MEMORY, "no memory for a kernel's arguments");
}

}  // namespace

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    quire_be_kv_write call{};
    if (quire_status status = resolve_kv_write(args, &call, error)) return status;
    const quire_be_plan *plan = args->plan;
    if (plan != nullptr) {
        if (quire_status status = check_plan_fits(*plan, *args->pool, queue->device, error)) {
            return status;
        }
        if (quire_status status = resolve_rope(plan->options, &call, error)) return status;
    }
    if (args->token_count == 0) return QUIRE_OK;
    KvWriteArguments arguments = arguments_of(call, plan);
    const std::array<uint64_t, 8> addresses = {call.k,           call.v,
                                               call.slots,       arguments.positions,
                                               arguments.q,      call.pool->address,
                                               arguments.scales, arguments.amax};
    if (quire_status status = check_reached(addresses, error)) return status;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    KernelKey key{KernelName::kv_write, is_any_divided(addresses), {}};
    Kernel kernel{};
    if (quire_status status = queue->device->kernels.get(key, &kernel, error)) return status;
    if (arguments.rotated_dim != 0) {
        uint64_t size_bytes = plan->turn_count * sizeof(uint64_t);
        arguments.turns = recorder.arguments(plan->turns.get(), size_bytes);
        if (arguments.turns == 0) return no_arguments(error);
    }
    uint64_t where = recorder.arguments(&arguments, sizeof arguments);
    if (where == 0) return no_arguments(error);
    recorder.dispatch(kernel, where, call.token_count);
    return recorder.finish(error);
}

quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_moves(pool, moves, count, error)) return status;
    if (count == 0) return QUIRE_OK;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    Kernel kernel{};
    KernelKey key{KernelName::move, is_divided(pool->address), {}};
    if (quire_status status = queue->device->kernels.get(key, &kernel, error)) return status;
    MoveArguments arguments = arguments_of(*pool);
    arguments.move_count = count;
    arguments.moves = recorder.arguments(moves, uint64_t{count} * sizeof *moves);
    if (arguments.moves == 0) return no_arguments(error);
    uint64_t where = recorder.arguments(&arguments, sizeof arguments);
    if (where == 0) return no_arguments(error);
    recorder.dispatch(kernel, where, uint64_t{pool->layer_count} * pool->kv_heads);
    return recorder.finish(error);
}

}  // namespace quire::vulkan
