// SPDX-License-Identifier: Apache-2.0

#include "pool_write.hpp"

#include <algorithm>
#include <bit>

#include "enqueue.hpp"
#include "plan.hpp"
#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

// True if rows of q, K and V, and what they are given as, are aligned to 16 bytes and multiples of
// 8 elements, and the rope's part of them is one of 16.
bool is_wide(const KvWriteCall &call) {
    auto size = [](uint32_t format) { return format == kF32 ? int64_t{4} : int64_t{2}; };
    uint64_t bytes = call.pool | call.k | call.q;
    for (int64_t stride :
         {call.block_stride, call.v_offset, call.k_head_stride, call.k_token_stride,
          call.v_head_stride, call.v_token_stride, call.k_given_stride * size(call.given_format),
          call.q_stride * size(call.q_format)}) {
        bytes |= static_cast<uint64_t>(stride);
    }
    bool has_second = call.is_latent == 0 || call.k_dim != call.v_dim;
    if (has_second) {
        bytes |= call.v | static_cast<uint64_t>(call.v_given_stride * size(call.given_format));
    }
    return bytes % 16 == 0 && (call.k_dim | call.v_dim) % 8 == 0 && call.rotated_dim % 16 == 0;
}

// Divides each token over blocks: lanes of a row, which take units of sixteen elements or single
// ones, and blocks for all rows of a side. Returns the blocks per token.
uint64_t divide(bool has_vectors, KvWriteCall *call) {
    uint64_t blocks = 0;
    auto put = [&](WriteSide side, uint32_t heads, uint32_t elements) {
        constexpr uint32_t kMostBits = 5;  // of the lanes of the narrowest warp
        uint32_t units = has_vectors ? (elements + 15) / 16 : elements;
        uint32_t bits = std::min<uint32_t>(kMostBits, std::bit_width(units - 1));
        uint32_t rows = kWriteThreads >> bits;
        call->lane_bits[side] = bits;
        call->blocks[side] = heads / rows + (heads % rows != 0 ? 1 : 0);
        blocks += call->blocks[side];
    };
    if (call->q != 0) put(kWriteQ, call->q_heads, call->rotated_dim);
    put(kWriteK, call->kv_heads, call->k_dim);
    if (call->is_latent == 0) put(kWriteV, call->kv_heads, call->v_dim);
    return blocks;
}

KvWriteCall call_of(const quire_be_kv_write &args, const Plan *plan) {
    KvWriteCall to{};
    put_kv_write(args, plan == nullptr ? nullptr : &plan->options, &to);
    if (plan != nullptr) std::copy(plan->turns.begin(), plan->turns.end(), to.turns);
    return to;
}

}  // namespace

quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, const Plan *plan,
                              quire_error *error) {
    KvWriteCall call = call_of(args, plan);
    bool has_vectors = is_wide(call);
    uint64_t blocks = args.token_count * divide(has_vectors, &call);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    KernelName name = has_vectors ? KernelName::kv_write : KernelName::kv_write_any;
    return enqueue.launch(name, blocks, &call.head, error);
}

quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin(error)) return status;
    MoveCall call{};
    put_move(pool, &call);
    uint64_t groups = uint64_t{pool.layer_count} * pool.kv_heads;
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
