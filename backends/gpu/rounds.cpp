// SPDX-License-Identifier: Apache-2.0

#include "rounds.hpp"

#include <algorithm>

#include "shared/kernel_arguments.hpp"

namespace quire::gpu {

namespace {

constexpr uint64_t kRoundBytes = uint64_t{64} << 20;

// The states and weighted values of one token's chunks.
uint64_t bytes_of_token(uint64_t chunk_count, uint32_t q_heads, uint32_t v_dim) {
    return chunk_count * q_heads * (uint64_t{v_dim} + 2) * sizeof(float);
}

// Of one 32-bit word each.
uint64_t bytes_of_words(uint64_t count) { return (count * sizeof(uint32_t) + 15) / 16 * 16; }

// Decided by the shape alone: bits must not depend on the batch or the pool's address.
bool has_fragments(const AttendCall &of) {
    auto becomes_q = [&](uint32_t format) {
        return format == of.q_format || format == kI8 || format == kE4m3 || format == kE5m2;
    };
    bool is_16_bit = of.q_format == kF16 || of.q_format == kBf16;
    return is_16_bit && becomes_q(of.k_format) && becomes_q(of.v_format) && of.k_dim % 16 == 0 &&
           of.v_dim % 16 == 0 && of.k_dim <= kMostFragmentDim && of.v_dim <= kMostFragmentDim;
}

AttendKernel prefill(uint32_t teams) {
    return {KernelName::attend_prefill, kFragmentQueries, teams};
}

// The tokens of a block's units, each unit with as many heads as fit into it.
uint32_t block_tokens_of(const AttendCall &of, const AttendKernel &kernel) {
    uint32_t heads = std::min(of.heads_per_kv, kernel.queries_per_unit);
    return kernel.queries_per_unit / heads * kernel.teams;
}

uint32_t tokens_of(const AttendCall &round) { return round.end_token - round.first_token; }

// True if rows on average fill a block of several units. If a row fills only one unit, such a block
// reserves the room of several for it.
bool has_long_rows(const AttendCall &of, uint32_t bundle_tokens) {
    return of.query_tokens >= uint64_t{bundle_tokens} * of.row_count;
}

// A launch has seats for all rows, including those without tokens in the round. Blocks that read
// each key once for several units are worth some empty seats, up to twice the threads that one-unit
// blocks would take.
bool has_few_seats(const AttendCall &round, uint32_t bundle_tokens, uint32_t teams) {
    return seat_count(round, bundle_tokens) * teams <= uint64_t{2} * tokens_of(round);
}

}  // namespace

Scratch divide(const AttendCall &call, uint32_t teams_of_prefill) {
    uint64_t states_per_token = uint64_t{call.chunk_count} * call.q_heads;
    uint64_t token_bytes = bytes_of_token(call.chunk_count, call.q_heads, call.v_dim);
    uint64_t tokens = std::clamp<uint64_t>(kRoundBytes / token_bytes, 1, call.query_tokens);
    // A bundle split between two rounds is read twice.
    uint32_t bundle_tokens = block_tokens_of(call, prefill(teams_of_prefill));
    if (tokens < call.query_tokens && tokens > bundle_tokens) tokens -= tokens % bundle_tokens;
    Scratch scratch{};
    scratch.tokens_per_round = static_cast<uint32_t>(tokens);
    scratch.row_bytes = bytes_of_words(call.query_tokens);
    scratch.state_bytes = tokens * states_per_token * 2 * sizeof(float);
    scratch.value_bytes = tokens * states_per_token * call.v_dim * sizeof(float);
    return scratch;
}

uint64_t scratch_bytes_of(const quire_be_plan_desc &desc) {
    if (desc.max_query_tokens == 0 || desc.shape.q_heads == 0) return 0;
    uint64_t places = uint64_t{desc.max_blocks_per_row} * desc.shape.block_tokens;
    uint32_t chunks = chunk_count(std::min<uint64_t>(places, kMostKeys), kChunkPlaces);
    uint64_t token_bytes = bytes_of_token(chunks, desc.shape.q_heads, desc.shape.v_head_dim);
    // With shorter rows a round has more tokens, up to all of kRoundBytes.
    return bytes_of_words(desc.max_query_tokens) +
           std::clamp(kRoundBytes, token_bytes, desc.max_query_tokens * token_bytes);
}

void begin_round(AttendCall *call, uint64_t first_token, const Scratch &scratch) {
    uint64_t end = std::min<uint64_t>(first_token + scratch.tokens_per_round, call->query_tokens);
    call->first_token = static_cast<uint32_t>(first_token);
    call->end_token = static_cast<uint32_t>(end);
}

// Both kernels with matrix instructions give the same bits.
AttendKernel choose_kernel(const AttendCall &round, uint32_t teams_of_prefill) {
    if (!has_fragments(round)) return {KernelName::attend, kQueriesPerUnit};
    AttendKernel of_several = prefill(teams_of_prefill);
    uint32_t bundle_tokens = block_tokens_of(round, of_several);
    if (has_long_rows(round, bundle_tokens) &&
        has_few_seats(round, bundle_tokens, teams_of_prefill)) {
        return of_several;
    }
    return {KernelName::attend_fragments, kFragmentQueries};
}

// A block of one unit may begin at any token.
uint64_t block_count(const AttendCall &round, const AttendKernel &kernel) {
    uint32_t heads = std::min(round.heads_per_kv, kernel.queries_per_unit);
    uint64_t slices = (round.heads_per_kv + heads - 1) / heads;
    uint64_t places =
        kernel.teams > 1 ? seat_count(round, block_tokens_of(round, kernel)) : tokens_of(round);
    return places * round.kv_heads * slices * round.chunk_count;
}

uint64_t seat_count(const AttendCall &round, uint32_t tokens_of_bundle) {
    uint64_t whole =
        (round.end_token - 1) / tokens_of_bundle - round.first_token / tokens_of_bundle;
    return whole + round.row_count + (round.first_token == 0 ? 0 : 1);
}

}  // namespace quire::gpu
