// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "plan.hpp"
#include "recorder.hpp"
#include "shared/checks.hpp"
#include "shared/kernel_arguments.hpp"

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

quire_status no_arguments(quire_error *error) {
    return fail(error, QUIRE_E_DEVICE_MEMORY, "out of memory for a kernel's arguments");
}

}  // namespace

quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, const Plan *plan,
                              quire_error *error) {
    KvWriteArguments arguments{};
    put_kv_write(args, plan == nullptr ? nullptr : &plan->options, &arguments);
    const std::array<uint64_t, 8> addresses = {args.k,           args.v,
                                               args.slots,       arguments.positions,
                                               arguments.q,      args.pool->address,
                                               arguments.scales, arguments.amax};
    if (quire_status status = check_reached(addresses, error)) return status;
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    KernelKey key{KernelName::kv_write, is_any_divided(addresses), {}};
    Kernel kernel{};
    if (quire_status status = queue.device->kernels.get(key, &kernel, error)) return status;
    if (arguments.rotated_dim != 0) {
        uint64_t size_bytes = plan->turns.size() * sizeof(uint64_t);
        arguments.turns = recorder.arguments(plan->turns.data(), size_bytes);
        if (arguments.turns == 0) return no_arguments(error);
    }
    uint64_t where = recorder.arguments(&arguments, sizeof arguments);
    if (where == 0) return no_arguments(error);
    recorder.dispatch(kernel, where, args.token_count);
    return recorder.finish(error);
}

quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error) {
    Recorder recorder(queue);
    if (quire_status status = recorder.begin(error)) return status;
    Kernel kernel{};
    KernelKey key{KernelName::move, is_divided(pool.address), {}};
    if (quire_status status = queue.device->kernels.get(key, &kernel, error)) return status;
    MoveArguments arguments{};
    put_move(pool, &arguments);
    arguments.move_count = count;
    arguments.moves = recorder.arguments(moves, uint64_t{count} * sizeof *moves);
    if (arguments.moves == 0) return no_arguments(error);
    uint64_t where = recorder.arguments(&arguments, sizeof arguments);
    if (where == 0) return no_arguments(error);
    recorder.dispatch(kernel, where, uint64_t{pool.layer_count} * pool.kv_heads);
    return recorder.finish(error);
}

}  // namespace quire::vulkan
