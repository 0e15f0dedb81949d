// SPDX-License-Identifier: Apache-2.0
//
// move_tokens: K and V of tokens move from slot to slot in all layers, as if one after another; no
// other byte changes.

#include <algorithm>

#include "attention_case.hpp"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class MoveTest : public SubjectTest {
 protected:
    MoveTest() : SubjectTest(Needs::kv_write) {}
    void SetUp() override {
        if (api().move_tokens == nullptr) GTEST_SKIP() << "move_tokens is NULL";
        SubjectTest::SetUp();
    }
};

namespace {

constexpr uint32_t kBlocks = 7;

using Moves = std::vector<quire_be_move>;

void move_row(std::vector<unsigned char> *bytes, int64_t from, int64_t to, int64_t size_bytes) {
    std::vector<unsigned char> row(bytes->begin() + from, bytes->begin() + from + size_bytes);
    std::copy(row.begin(), row.end(), bytes->begin() + to);
}

// Applies the moves to `bytes`, the expected contents of the pool.
void apply(const quire_be_pool &pool, const Moves &moves, std::vector<unsigned char> *bytes) {
    auto block_at = [&](int64_t slot) { return slot / pool.block_tokens * pool.block_stride; };
    auto in_block = [&](int64_t slot) { return slot % pool.block_tokens; };
    for (const quire_be_move &one : moves) {
        for (int64_t layer = 0; layer < pool.layer_count; ++layer) {
            for (int64_t head = 0; head < pool.kv_heads; ++head) {
                int64_t scale = layer * pool.layer_stride + head * pool.scale_head_stride;
                for (auto [kind, offset] : {std::pair{pool.k_scale_kind, pool.k_scale_offset},
                                            {pool.v_scale_kind, pool.v_scale_offset}}) {
                    if (kind != QUIRE_SCALE_TOKEN_HEAD) continue;
                    move_row(bytes, block_at(one.src) + scale + offset + in_block(one.src) * 4,
                             block_at(one.dst) + scale + offset + in_block(one.dst) * 4, 4);
                }
                int64_t k = layer * pool.layer_stride + head * pool.k_head_stride;
                int64_t v = layer * pool.layer_stride + pool.v_offset + head * pool.v_head_stride;
                move_row(bytes, block_at(one.src) + k + in_block(one.src) * pool.k_token_stride,
                         block_at(one.dst) + k + in_block(one.dst) * pool.k_token_stride,
                         row_bytes(pool.k_head_dim, pool.k_dtype));
                move_row(bytes, block_at(one.src) + v + in_block(one.src) * pool.v_token_stride,
                         block_at(one.dst) + v + in_block(one.dst) * pool.v_token_stride,
                         row_bytes(pool.v_head_dim, pool.v_dtype));
            }
        }
    }
}

// Overwrites the list as soon as the call has returned.
void expect_moved(Rig &rig, quire_be_pool pool, Moves moves, const char *what) {
    Guarded memory(rig, pool.size_bytes);
    pool.address = memory.address();
    Memory scales(rig, uint64_t{pool.layer_count} * 2 * pool.kv_heads * sizeof(float));
    pool.scales = scales.address();
    std::vector<unsigned char> expected(pool.size_bytes);
    for (uint64_t i = 0; i < expected.size(); ++i) {
        expected[i] = static_cast<unsigned char>(mix(i, pool.block_stride));
    }
    rig.write(memory.address(), expected.data(), expected.size());
    apply(pool, moves, &expected);
    Error error;
    auto count = static_cast<uint32_t>(moves.size());
    must(api().move_tokens(rig.queue(), &pool, moves.data(), count, &error), error);
    std::fill(moves.begin(), moves.end(), quire_be_move{-1, -1});
    rig.sync();
    EXPECT_TRUE(memory.read() == expected) << what;
}

quire_be_pool plain_pool(Rig &rig) {
    return make_pool(plain_shape(rig), Layout::head_major, 3, kBlocks, 0);
}

}  // namespace

TEST_F(MoveTest, chain_moves_one_after_another) {
    Rig rig;
    quire_be_pool pool = plain_pool(rig);
    expect_moved(rig, pool, {{1, 20}, {20, 40}, {40, 3}}, "the first goes all the way");
    expect_moved(rig, pool, {{40, 3}, {20, 40}, {1, 20}}, "each goes one place on");
    expect_moved(rig, pool, {{5, 100}, {6, 5}, {100, 6}}, "two change places through a third");
    expect_moved(rig, pool, {{9, 9}}, "to where it is");
}

TEST_F(MoveTest, long_list_keeps_its_order) {
    Rig rig;
    quire_be_pool pool = plain_pool(rig);
    Moves chain;
    for (int64_t slot = 0; slot < 100; ++slot) chain.push_back({slot, slot + 1});
    for (int64_t slot = 100; slot > 0; --slot) chain.push_back({slot, slot - 1});
    chain.push_back({50, 111});
    expect_moved(rig, pool, chain, "one value through all");
    std::rotate(chain.begin(), chain.begin() + 100, chain.end());
    expect_moved(rig, pool, chain, "each by one, and then one value through all");
}

TEST_F(MoveTest, random_moves_in_random_pools_change_nothing_beside) {
    Rig rig;
    for (uint64_t seed : seeds(1, 60, 10)) {
        Dice dice(seed);
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        bool is_latent = seed % 4 == 0;
        if (is_latent) {
            AttentionSpec latent = random_variant(Variant::latent, seed);
            latent.shape.q_heads = latent.shape.q_dtype = 0;
            if (is_offered(rig, latent.shape)) spec = latent;
        } else {
            AttentionSpec any = random_spec(seed);
            any.shape.q_heads = any.shape.q_dtype = any.shape.flags = 0;
            if (is_offered(rig, any.shape)) spec = any;
        }
        Layout layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
        quire_be_pool pool =
            make_pool(spec.shape, layout, dice.roll(1, 4), kBlocks, 8 * dice.roll(0, 2));
        uint32_t last = kBlocks * pool.block_tokens - 1;
        Moves moves(dice.pick({1u, 11u, 12u, dice.roll(1, 60)}));
        for (quire_be_move &one : moves) one = {dice.roll(0, last), dice.roll(0, last)};
        expect_moved(rig, pool, moves, spec.text().c_str());
    }
}

TEST_F(MoveTest, moved_token_takes_its_codes_and_scales_along) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint64_t seed : seeds(1, 60, 12)) {
        Dice dice(seed);
        AttentionSpec spec =
            random_variant(seed % 4 == 0 ? Variant::latent : Variant::causal, seed);
        spec.shape.q_heads = spec.shape.q_dtype = 0;
        put_types(random_codes(seed), &spec.shape);
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        quire_be_pool pool =
            make_pool(spec.shape, spec.layout, dice.roll(1, 4), kBlocks, 8 * dice.roll(0, 2));
        uint32_t last = kBlocks * pool.block_tokens - 1;
        Moves moves(dice.pick({1u, 11u, 12u, dice.roll(1, 60)}));
        for (quire_be_move &one : moves) one = {dice.roll(0, last), dice.roll(0, last)};
        expect_moved(rig, pool, moves, spec.text().c_str());
    }
    if (run_count == 0) GTEST_SKIP() << "no pool of codes is offered";
}

TEST_F(MoveTest, move_behind_a_wait_runs_in_its_turn) {
    Rig rig;
    quire_be_pool pool = plain_pool(rig);
    Memory memory(rig, pool.size_bytes);
    pool.address = memory.address();
    Fence go(rig);
    Fence done(rig);
    rig.wait(rig.queue(), go, 1);
    rig.fill(rig.queue(), memory.address(), static_cast<uint64_t>(pool.block_stride), 0x11);
    quire_be_move move = {0, pool.block_tokens};
    Error error;
    must(api().move_tokens(rig.queue(), &pool, &move, 1, &error), error);
    rig.fill(rig.queue(), memory.address(), static_cast<uint64_t>(pool.block_stride), 0x22);
    rig.signal(rig.queue(), done, 1);
    go.signal_host(1);
    ASSERT_EQ(done.wait_host(1), QUIRE_OK);
    uint64_t row = uint64_t{pool.k_head_dim} * size_of(pool.k_dtype);
    EXPECT_EQ(rig.read(memory.address() + static_cast<uint64_t>(pool.block_stride), row),
              std::vector<unsigned char>(row, 0x11));
}

TEST_F(MoveTest, nothing_to_move_is_done) {
    Rig rig;
    quire_be_pool pool = plain_pool(rig);
    Memory memory(rig, pool.size_bytes);
    pool.address = memory.address();
    Error error;
    EXPECT_EQ(api().move_tokens(rig.queue(), &pool, nullptr, 0, &error), QUIRE_OK);
    rig.sync();
}

TEST_F(MoveTest, slot_outside_the_pool_is_refused_and_nothing_moves) {
    Rig rig;
    quire_be_pool pool = plain_pool(rig);
    Guarded memory(rig, pool.size_bytes);
    std::vector<unsigned char> before = memory.read();
    pool.address = memory.address();
    int64_t slots = int64_t{kBlocks} * pool.block_tokens;
    for (quire_be_move bad :
         {quire_be_move{slots, 1}, quire_be_move{1, slots}, quire_be_move{-1, 1},
          quire_be_move{1, -1}, quire_be_move{INT64_MAX, INT64_MIN}}) {
        Moves moves(30, quire_be_move{1, 2});
        moves.back() = bad;
        Error error;
        expect_refused(api().move_tokens(rig.queue(), &pool, moves.data(), 30, &error), error,
                       QUIRE_E_ARG);
    }
    quire_be_move move = {1, 2};
    Error error;
    expect_refused(api().move_tokens(nullptr, &pool, &move, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().move_tokens(rig.queue(), nullptr, &move, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().move_tokens(rig.queue(), &pool, nullptr, 1, &error), error, QUIRE_E_ARG);
    quire_be_pool bad_pool = pool;
    bad_pool.size_bytes -= 1;
    expect_refused(api().move_tokens(rig.queue(), &bad_pool, &move, 1, &error), error, QUIRE_E_ARG);
    rig.sync();
    EXPECT_TRUE(memory.read() == before);
}

}  // namespace quire::conformance
