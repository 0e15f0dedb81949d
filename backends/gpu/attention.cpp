// SPDX-License-Identifier: Apache-2.0

#include "attention.hpp"

#include <algorithm>
#include <initializer_list>

#include "device.hpp"
#include "plan.hpp"
#include "queue.hpp"
#include "shared/checks.hpp"
#include "shared/kernel_arguments.hpp"
#include "shared/pool_calls.hpp"

namespace quire::gpu {

namespace {

bool is_wide(std::initializer_list<int64_t> strides, uint64_t address) {
    constexpr uint64_t kWideBytes = 16;
    for (int64_t stride : strides) address |= static_cast<uint64_t>(stride);
    return address % kWideBytes == 0;
}

// How many elements of a row may be loaded at once.
uint32_t width_options(const quire_be_pool &pool) {
    uint32_t options = 0;
    if (!is_wide({pool.block_stride, pool.layer_stride, pool.k_head_stride, pool.k_token_stride},
                 pool.address)) {
        return options;
    }
    if (pool.k_head_dim % 4 == 0) options |= kWideK;
    if (is_wide({pool.v_head_stride, pool.v_token_stride, pool.v_offset}, 0)) options |= kWideRows;
    return options;
}

AttendCall call_of(const PlanOptions &plan, const quire_be_attention &args) {
    AttendCall to{};
    put_attention(plan, args, &to);
    to.options |= width_options(*args.pool);
    if (plan.slopes != nullptr) std::copy_n(plan.slopes.get(), to.q_heads, to.slopes);
    return to;
}

// How many chunks rows have at most: as long as at the commit, or, in a graph that will meet later
// ones, as their tables. kernels/rows.cu makes sure.
uint32_t chunk_count_of(const quire_be_attention &args, bool is_captured) {
    uint64_t places = uint64_t{args.block_table_stride} * args.pool->block_tokens;
    places = std::min<uint64_t>(places, is_captured ? kMostKeys : args.max_length);
    return static_cast<uint32_t>(std::max<uint64_t>(1, (places + kChunkPlaces - 1) / kChunkPlaces));
}

// The queue's scratch memory, and how many tokens make a round.
struct Scratch {
    uint32_t tokens_per_round;
    uint64_t row_bytes;
    uint64_t state_bytes;
    uint64_t value_bytes;

    uint64_t bytes() const { return row_bytes + state_bytes + value_bytes; }
};

Scratch divide(uint64_t query_tokens, uint64_t chunk_count, uint32_t q_heads, uint32_t v_dim) {
    constexpr uint64_t kRoundBytes = uint64_t{64} << 20;
    uint64_t states_per_token = chunk_count * q_heads;
    uint64_t token_bytes = states_per_token * (v_dim + 2) * sizeof(float);
    uint64_t tokens = std::clamp<uint64_t>(kRoundBytes / token_bytes, 1, query_tokens);
    Scratch scratch{};
    scratch.tokens_per_round = static_cast<uint32_t>(tokens);
    scratch.row_bytes = (query_tokens * sizeof(int32_t) + 15) / 16 * 16;
    scratch.state_bytes = tokens * states_per_token * 2 * sizeof(float);
    scratch.value_bytes = tokens * states_per_token * v_dim * sizeof(float);
    return scratch;
}

// By the shape alone, never by the batch or where the pool lies: bits must not depend on those.
bool has_fragments(const AttendCall &of) {
    auto becomes_q = [&](uint32_t format) {
        return format == of.q_format || format == kI8 || format == kE4m3 || format == kE5m2;
    };
    bool is_16_bit = of.q_format == kF16 || of.q_format == kBf16;
    return is_16_bit && becomes_q(of.k_format) && becomes_q(of.v_format) && of.k_dim % 16 == 0 &&
           of.v_dim % 16 == 0 && of.k_dim <= kMostFragmentDim && of.v_dim <= kMostFragmentDim;
}

struct AttendKernel {
    KernelName name;
    uint32_t queries_per_unit;
    uint32_t teams = 1;  // units of a block
};

// The tokens of a block's units, each with as many heads as go into it.
uint32_t block_tokens_of(const AttendCall &of, const AttendKernel &kernel) {
    uint32_t heads = std::min(of.group, kernel.queries_per_unit);
    return kernel.queries_per_unit / heads * kernel.teams;
}

// Both of the kernels with matrix instructions give the same bits. The one for several units reads
// each key once for all of them, but where a row fills one unit alone it holds the room of several
// for it: so it is taken where rows fill its blocks in the mean. Which of them do only the device
// knows.
AttendKernel choose_kernel(const AttendCall &of, uint32_t teams_of_prefill) {
    if (!has_fragments(of)) return {KernelName::attend, kQueriesPerUnit};
    AttendKernel prefill = {KernelName::attend_prefill, kFragmentQueries, teams_of_prefill};
    if (of.query_tokens >= uint64_t{block_tokens_of(of, prefill)} * of.row_count) return prefill;
    return {KernelName::attend_fragments, kFragmentQueries};
}

// A block of one unit may begin at any token.
uint64_t block_count(const AttendCall &of, const AttendKernel &kernel) {
    uint32_t heads = std::min(of.group, kernel.queries_per_unit);
    uint64_t slices = (of.group + heads - 1) / heads;
    uint64_t places = kernel.teams == 1 ? of.end_token - of.first_token
                                        : slot_count(of, block_tokens_of(of, kernel));
    return places * of.kv_heads * slices * of.chunk_count;
}

// Rounds of tokens, so that scratch memory has an end: for each the chunks, then their reduction.
quire_status launch_rounds(Enqueue &enqueue, AttendCall *call, const AttendKernel &kernel,
                           uint32_t tokens_per_round, quire_error *error) {
    for (uint64_t first = 0; first < call->query_tokens; first += tokens_per_round) {
        call->first_token = static_cast<uint32_t>(first);
        call->end_token =
            static_cast<uint32_t>(std::min<uint64_t>(first + tokens_per_round, call->query_tokens));
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

uint64_t scratch_bytes_of(const quire_be_plan_desc &desc) {
    uint64_t places = uint64_t{desc.max_blocks_per_row} * desc.shape.block_tokens;
    places = std::clamp<uint64_t>(places, 1, kMostKeys);
    uint64_t chunks = (places + kChunkPlaces - 1) / kChunkPlaces;
    if (desc.max_query_tokens == 0 || desc.shape.q_heads == 0) return 0;
    return divide(desc.max_query_tokens, chunks, desc.shape.q_heads, desc.shape.v_head_dim).bytes();
}

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error) {
    if (queue == nullptr || plan == nullptr) {
        return fail(error, QUIRE_E_ARG, "queue or plan is NULL");
    }
    quire_be_attention resolved{};
    if (quire_status status = resolve_attention(plan->options, args, &resolved, error)) {
        return status;
    }
    if (quire_status status = check_plan_fits(*plan, *args->pool, queue->device, error)) {
        return status;
    }
    if (args->row_count == 0 || args->query_tokens == 0) return QUIRE_OK;
    AttendCall call = call_of(plan->options, resolved);
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    call.chunk_count = chunk_count_of(resolved, enqueue.is_captured());
    Scratch scratch = divide(call.query_tokens, call.chunk_count, call.q_heads, call.v_dim);
    if (quire_status status = queue->device->check(queue->reserve_scratch(scratch.bytes()),
                                                   "scratch memory", error)) {
        return status;
    }
    call.token_rows = queue->scratch;
    call.states = call.token_rows + scratch.row_bytes;
    call.values = call.states + scratch.state_bytes;
    // -1: of no row.
    if (quire_status status = enqueue.fill(call.token_rows, 0xFF, scratch.row_bytes, error)) {
        return status;
    }
    if (quire_status status = enqueue.launch(KernelName::rows, call.row_count, &call.head, error)) {
        return status;
    }
    const Driver &driver = *queue->device->context.driver;
    AttendKernel kernel = choose_kernel(call, driver.teams_of_prefill);
    return launch_rounds(enqueue, &call, kernel, scratch.tokens_per_round, error);
}

quire_status merge(quire_be_queue *queue, const quire_be_merge *args, quire_error *error) {
    if (queue == nullptr) return fail(error, QUIRE_E_ARG, "queue is NULL");
    if (quire_status status = check_merge(args, error)) return status;
    if (args->token_count == 0) return QUIRE_OK;
    Enqueue enqueue(queue);
    if (quire_status status = enqueue.begin_replayable(error)) return status;
    MergeCall call{};
    put_merge(*args, &call);
    return enqueue.launch(KernelName::merge, call.row_count, &call.head, error);
}

}  // namespace quire::gpu
