// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>
#include <initializer_list>

#include "decode.hpp"
#include "device.hpp"
#include "enqueue.hpp"
#include "plan.hpp"
#include "queue.hpp"
#include "rounds.hpp"
#include "shared/kernel_arguments.hpp"
#include "work_shape.hpp"

namespace quire::gpu {

namespace {

bool is_wide(std::initializer_list<int64_t> strides, uint64_t address) {
    constexpr uint64_t kWideBytes = 16;
    for (int64_t stride : strides) address |= static_cast<uint64_t>(stride);
    return address % kWideBytes == 0;
}

// Options that say how many elements of a row, or scales, may be loaded at once.
uint32_t width_options(const quire_be_pool &pool) {
    uint32_t options = 0;
    bool has_own =
        pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD || pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    if (!has_own ||
        is_wide({pool.k_scale_offset, pool.v_scale_offset, pool.scale_head_stride}, 0)) {
        options |= kWideScales;
    }
    if (!is_wide({pool.block_stride, pool.layer_stride, pool.k_head_stride, pool.k_token_stride},
                 pool.address)) {
        return options;
    }
    if (pool.k_head_dim % 4 == 0) options |= kWideK;
    if (is_wide({pool.v_head_stride, pool.v_token_stride, pool.v_offset}, 0)) options |= kWideRows;
    return options;
}

AttendCall call_of(const Plan &plan, const quire_be_attention &args) {
    AttendCall to{};
    const PlanOptions &options = plan.options;
    put_attention(options, args, &to);
    to.options |= width_options(*args.pool);
    if (plan.decodes) to.options |= kDecodes;
    if (options.slopes != nullptr) std::copy_n(options.slopes.get(), to.q_heads, to.slopes);
    return to;
}

// Upper bound on a row's chunks: from the longest row at commit or, in a graph, which will meet
// later lengths, from the block table. kernels/rows.cu enforces it.
uint32_t chunk_count_of(const Plan &plan, const quire_be_attention &args, bool is_captured) {
    uint64_t places = uint64_t{args.block_table_stride} * args.pool->block_tokens;
    places = std::min<uint64_t>(places, is_captured ? kMostKeys : args.max_length);
    return plan.decodes ? decode_chunk_count(places) : chunk_count(places, kChunkPlaces);
}

// Launches, for each round, the chunks and then their reduction.
quire_status launch_rounds(Enqueue &enqueue, AttendCall *call, const Scratch &scratch,
                           uint32_t teams_of_prefill, quire_error *error) {
    for (uint64_t first = 0; first < call->query_tokens; first += scratch.tokens_per_round) {
        begin_round(call, first, scratch);
        AttendKernel kernel = choose_kernel(*call, teams_of_prefill);
        uint64_t blocks = block_count(*call, kernel);
        if (quire_status status = enqueue.launch(kernel.name, blocks, &call->head, error)) {
            return status;
        }
        uint64_t queries = uint64_t{call->end_token - call->first_token} * call->q_heads;
        if (quire_status status = enqueue.launch(KernelName::reduce, queries, &call->head, error)) {
            return status;
        }
    }
    return QUIRE_OK;
}

}  // namespace

quire_status enqueue_attention(Queue &queue, const Plan &plan, const quire_be_attention &args,
                               quire_error *error) {
    AttendCall call = call_of(plan, args);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    queue.was_captured = queue.was_captured || enqueue.is_captured();
    call.chunk_count = chunk_count_of(plan, args, enqueue.is_captured());
    call.most_rows = enqueue.is_captured() ? plan.options.max_rows : call.row_count;
    if (plan.decodes) return launch_decode(enqueue, queue, plan.serial, args.rows_id, &call, error);
    queue.listed = {};
    uint32_t teams_of_prefill = queue.device->context.driver->teams_of_prefill;
    Scratch scratch = divide(call, teams_of_prefill);
    if (quire_status status =
            queue.device->check(queue.reserve_scratch(scratch.bytes()), "scratch memory", error)) {
        return status;
    }
    call.token_rows = queue.scratch;
    call.states = call.token_rows + scratch.row_bytes;
    call.values = call.states + scratch.state_bytes;
    if (quire_status status = enqueue.launch(KernelName::rows, call.row_count, &call.head, error)) {
        return status;
    }
    return launch_rounds(enqueue, &call, scratch, teams_of_prefill, error);
}

quire_status enqueue_merge(Queue &queue, const quire_be_merge &args, quire_error *error) {
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    MergeCall call{};
    put_merge(args, &call);
    return enqueue.launch(KernelName::merge, call.row_count, &call.head, error);
}

}  // namespace quire::gpu
