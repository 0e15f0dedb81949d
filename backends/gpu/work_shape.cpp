// SPDX-License-Identifier: Apache-2.0

#include "work_shape.hpp"

#include <algorithm>

#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

constexpr uint64_t kRoundBytes = uint64_t{64} << 20;
constexpr uint64_t kMostTokenChunks = uint64_t{1} << 20;  // tokens by chunks of a work list

uint64_t aligned(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

// Units have several tokens where a token's heads leave room, and end with their row, and within it
// where chunks become longer.
uint64_t unit_count_of(const AttendCall &call, uint64_t tokens) {
    constexpr uint64_t kChunkLengths = 3;
    uint64_t of_unit = std::max(call.unit_queries / call.heads_per_kv, 1u);
    return std::min(tokens, tokens / of_unit + kChunkLengths * call.row_count);
}

// Tokens by chunks in a work list, at most.
uint64_t most_token_chunks(const AttendCall &call) {
    return std::min(uint64_t{call.query_tokens} * call.chunk_count,
                    std::max<uint64_t>(kMostTokenChunks, call.chunk_count));
}

// Grows with each of the call's sizes, and with the two others.
WorkShape shape_of(const AttendCall &call, uint64_t items, uint64_t pairs) {
    uint64_t state_bytes = (uint64_t{call.v_dim} + 2) * sizeof(float) * call.kv_heads;
    bool has_states = call.chunk_count > 1;  // a chunk alone in its unit needs no state
    uint64_t needed = has_states ? pairs * call.heads_per_kv : 1;
    uint64_t of_round = std::min(std::max<uint64_t>(kRoundBytes / state_bytes, 1), needed);
    uint64_t of_unit = has_states ? uint64_t{kFragmentQueries} * call.chunk_count : 0;
    uint64_t states = (of_round + of_unit) * call.kv_heads;
    WorkShape shape{};
    shape.round_states = static_cast<uint32_t>(of_round);
    shape.round_count = static_cast<uint32_t>((needed + of_round - 1) / of_round);
    shape.ticket_bytes = aligned(uint64_t{call.query_tokens} * call.kv_heads * sizeof(uint32_t));
    shape.row_bytes = call.row_count * kRowWorkBytes;
    shape.begin_bytes = aligned((uint64_t{shape.round_count} + 1) * sizeof(uint32_t));
    shape.item_bytes = items * kWorkItemBytes;
    shape.state_bytes = aligned(states * 2 * sizeof(float));
    shape.value_bytes = states * call.v_dim * sizeof(float);
    return shape;
}

}  // namespace

uint32_t decode_chunk_count(uint64_t keys) {
    uint32_t most = chunk_count(std::min<uint64_t>(keys, kMostKeysOfShort), 1u << kShortLog2);
    most =
        std::max(most, chunk_count(std::min<uint64_t>(keys, kMostKeysOfMiddle), 1u << kMiddleLog2));
    return std::max(most, chunk_count(keys, 1u << kLongLog2));
}

uint32_t unit_queries_of(const AttendCall &call) {
    uint64_t queries = uint64_t{call.query_tokens} * call.heads_per_kv;
    bool is_narrow = queries <= uint64_t{kNarrowQueries} * call.row_count;
    return call.heads_per_kv <= kNarrowQueries && is_narrow ? kNarrowQueries : kWideQueries;
}

WorkShape work_shape_of(const AttendCall &call) {
    uint64_t tokens =
        std::clamp<uint64_t>(kMostTokenChunks / call.chunk_count, 1, call.query_tokens);
    uint64_t items = unit_count_of(call, tokens) * call.chunk_count;
    WorkShape shape = shape_of(call, items, tokens * call.chunk_count);
    shape.tokens = static_cast<uint32_t>(tokens);
    return shape;
}

uint64_t decode_scratch_bytes_of(const quire_be_plan_desc &desc) {
    if (desc.max_query_tokens == 0 || desc.shape.q_heads == 0) return 0;
    uint64_t places = uint64_t{desc.max_blocks_per_row} * desc.shape.block_tokens;
    AttendCall call{};
    call.query_tokens = desc.max_query_tokens;
    call.row_count = desc.max_rows;
    call.kv_heads = desc.shape.kv_heads;
    call.heads_per_kv = desc.shape.q_heads / desc.shape.kv_heads;
    call.v_dim = desc.shape.v_head_dim;
    call.chunk_count = decode_chunk_count(std::min<uint64_t>(places, kMostKeys));
    call.unit_queries = kNarrowQueries;  // which are more units
    uint64_t pairs = most_token_chunks(call);
    uint64_t units = unit_count_of(call, call.query_tokens);
    return shape_of(call, std::min(units * call.chunk_count, pairs), pairs).bytes();
}

}  // namespace quire::gpu
