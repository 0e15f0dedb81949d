// SPDX-License-Identifier: Apache-2.0
//
// Rounds: how many blocks attention starts, for batches that are too large to run in a test.

#include "rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/dialect.hpp"

namespace quire::gpu {

namespace {

constexpr uint32_t kChunksOf128k = 256;

struct Heads {
    uint32_t of_q, of_kv;
};

// f16, head dim 128.
AttendCall call_of(Heads heads, uint32_t rows, uint32_t query_tokens, uint32_t chunks) {
    AttendCall call{};
    call.q_heads = heads.of_q;
    call.kv_heads = heads.of_kv;
    call.heads_per_kv = heads.of_q / heads.of_kv;
    call.k_dim = call.v_dim = 128;
    call.q_format = call.k_format = call.v_format = kF16;
    call.row_count = rows;
    call.query_tokens = query_tokens;
    call.chunk_count = chunks;
    return call;
}

struct Started {
    uint64_t rounds = 0;
    uint64_t rounds_of_prefill = 0;
    uint64_t blocks = 0;               // a block of prefill counts once per team
    uint64_t blocks_of_fragments = 0;  // if attend_fragments computed everything
};

Started started_by(AttendCall call, uint32_t teams) {
    Started started;
    Scratch scratch = divide(call, teams);
    uint32_t bundle_tokens =
        kFragmentQueries / std::min(call.heads_per_kv, kFragmentQueries) * teams;
    bool is_whole = scratch.tokens_per_round % bundle_tokens == 0;
    bool is_divided = scratch.tokens_per_round < call.query_tokens;
    EXPECT_TRUE(is_whole || !is_divided || scratch.tokens_per_round < bundle_tokens)
        << scratch.tokens_per_round << " tokens, bundles of " << bundle_tokens;
    uint64_t end = 0;
    for (; end < call.query_tokens; end = call.end_token) {
        begin_round(&call, end, scratch);
        EXPECT_EQ(call.first_token, end);
        EXPECT_GT(call.end_token, end);
        AttendKernel kernel = choose_kernel(call, teams);
        ++started.rounds;
        started.rounds_of_prefill += kernel.name == KernelName::attend_prefill ? 1 : 0;
        started.blocks += block_count(call, kernel) * kernel.teams;
        started.blocks_of_fragments +=
            block_count(call, {KernelName::attend_fragments, kFragmentQueries});
    }
    EXPECT_EQ(end, call.query_tokens);
    return started;
}

}  // namespace

// One row of 4,096 tokens at 128 k beside 255 rows of one token.
TEST(Rounds, of_a_prompt_among_many_rows_start_blocks_for_tokens) {
    AttendCall call = call_of({32, 8}, 256, 4096 + 255, kChunksOf128k);
    for (uint32_t teams : {kTeamsOnNvidia, kTeamsOnAmd}) {
        EXPECT_LE(started_by(call, teams).blocks, uint64_t{4096 + 255} * 8 * kChunksOf128k);
    }
}

// As when captured: tables are long, and rows may be.
TEST(Rounds, of_many_short_rows_start_blocks_for_tokens) {
    AttendCall call = call_of({32, 2}, 256, 4 * 256, kChunksOf128k);
    for (uint32_t teams : {kTeamsOnNvidia, kTeamsOnAmd}) {
        EXPECT_LE(started_by(call, teams).blocks, uint64_t{4 * 256} * 2 * kChunksOf128k);
    }
}

TEST(Rounds, of_prompts_alone_are_by_the_kernel_for_prompts) {
    for (uint32_t teams : {kTeamsOnNvidia, kTeamsOnAmd}) {
        for (Heads heads : {Heads{32, 8}, Heads{32, 2}, Heads{8, 8}}) {
            Started started = started_by(call_of(heads, 1, 4096, 64), teams);
            EXPECT_GT(started.rounds, 1u);
            EXPECT_EQ(started.rounds_of_prefill, started.rounds);
            started = started_by(call_of(heads, 2, 8192, 8), teams);
            EXPECT_EQ(started.rounds_of_prefill, started.rounds);
        }
    }
}

TEST(Rounds, never_start_more_than_twice_the_blocks_of_one_unit_each) {
    std::mt19937 dice(1);
    auto roll = [&](uint32_t most) { return static_cast<uint32_t>(dice() % most) + 1; };
    for (int i = 0; i < 2000; ++i) {
        uint32_t kv_heads = roll(8), chunks = roll(roll(4000)), rows = roll(roll(300));
        AttendCall call = call_of({kv_heads * roll(20), kv_heads}, rows, roll(roll(9000)), chunks);
        Started started = started_by(call, i % 2 == 0 ? kTeamsOnNvidia : kTeamsOnAmd);
        EXPECT_LE(started.blocks, 2 * started.blocks_of_fragments)
            << i << ": " << call.query_tokens << " tokens of " << rows << " rows";
    }
}

// A queue's scratch memory is sized for its plans, and does not grow while a graph is captured.
TEST(Rounds, want_no_more_scratch_memory_than_their_plan) {
    std::mt19937 dice(2);
    auto roll = [&](uint32_t most) { return static_cast<uint32_t>(dice() % most) + 1; };
    for (int i = 0; i < 2000; ++i) {
        quire_be_plan_desc desc{};
        desc.shape.q_heads = roll(64);
        desc.shape.v_head_dim = 128;
        desc.shape.block_tokens = kChunkPlaces;
        desc.max_blocks_per_row = roll(roll(2000));
        desc.max_query_tokens = roll(roll(9000));
        AttendCall call = call_of({desc.shape.q_heads, desc.shape.q_heads}, 1,
                                  roll(desc.max_query_tokens), roll(desc.max_blocks_per_row));
        EXPECT_LE(divide(call, kTeamsOnNvidia).bytes(), scratch_bytes_of(desc))
            << call.query_tokens << " of " << desc.max_query_tokens << " tokens, "
            << call.chunk_count << " of " << desc.max_blocks_per_row << " chunks";
    }
}

}  // namespace quire::gpu
