// SPDX-License-Identifier: Apache-2.0
//
// Options of attention, each against the oracle: random shapes of every row of the table, and edges
// that random shapes seldom hit. Hidden keys hold NaN: they must be skipped, not weighed with 0.

#include <algorithm>
#include <cmath>
#include <limits>

#include "agreement.hpp"
#include "number.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class OptionTest : public SubjectTest {
 protected:
    OptionTest() : SubjectTest(Needs::attention) {}
};

namespace {

void expect_variant_agrees(Variant variant) {
    uint64_t first_seed = 10'000 + 1'000 * static_cast<uint64_t>(variant);
    auto find = [&](Rig &rig, uint64_t seed, AttentionSpec *spec) {
        return find_variant(rig, variant, seed, spec);
    };
    expect_random_shapes_agree(seeds(first_seed, kShapes, kFewShapes), find);
}

AttentionSpec plain_spec(Rig &rig) {
    AttentionSpec spec;
    spec.shape = plain_shape(rig);
    return spec;
}

// The largest error against the oracle; NaN if the shape is not offered.
double error_of(Rig &rig, const AttentionSpec &spec) {
    if (!is_offered(rig, spec.shape)) return std::nan("");
    AttentionCase attention(spec);
    return attention.compare(attention.run(rig));
}

}  // namespace

TEST_F(OptionTest, random_shapes_over_full_groups_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::causal);
}

TEST_F(OptionTest, random_shapes_over_windows_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::window);
}

TEST_F(OptionTest,
       random_shapes_over_windows_with_sink_tokens_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::window_with_sinks);
}

TEST_F(OptionTest, random_shapes_over_chunks_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::chunked);
}

TEST_F(OptionTest, random_shapes_over_latent_pools_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::latent);
}

TEST_F(OptionTest, random_shapes_over_cross_groups_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::cross);
}

TEST_F(OptionTest, random_shapes_over_whole_contexts_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::not_causal);
}

TEST_F(OptionTest, random_shapes_over_soft_caps_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::soft_cap);
}

TEST_F(OptionTest, random_shapes_over_alibi_slopes_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::alibi);
}

TEST_F(OptionTest, random_shapes_over_sink_logits_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::sink_logits);
}

TEST_F(OptionTest, random_shapes_over_masks_of_bits_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::mask_bits);
}

TEST_F(OptionTest, random_shapes_over_masks_of_trees_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::mask_trees);
}

TEST_F(OptionTest, random_shapes_over_shared_prefixes_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::shared_prefix);
}

TEST_F(OptionTest, random_shapes_over_mixed_options_agree_with_the_oracle_whatever_the_poison) {
    expect_variant_agrees(Variant::mixed);
}

TEST_F(OptionTest, window_keeps_its_sinks_and_no_key_between) {
    Rig rig;
    uint32_t run_count = 0;
    constexpr uint32_t kSinks[] = {1, 4, 15, 16, 17, 63, 64, 65, 300};
    constexpr uint32_t kWindows[] = {1, 16, 63, 64, 65};
    // 14 and 45 have no common divisor, so consecutive numbers differ in both parts of the pair.
    for (uint64_t number : seeds(0, 45, 20)) {
        uint64_t pair = number * 14 % 45;
        AttentionSpec spec = plain_spec(rig);
        spec.shape.group_kind = QUIRE_GROUP_WINDOW;
        spec.shape.window = kWindows[pair % 5];
        spec.shape.sink_tokens = kSinks[pair / 5];
        spec.rows = {{0, 250, 1}, {1, 130, 130}, {2, 90, 9}, {3, 3, 3}};
        double error = error_of(rig, spec);
        if (std::isnan(error)) continue;
        ++run_count;
        EXPECT_LE(error, 1.0) << spec.text();
    }
    if (run_count == 0) GTEST_SKIP() << "no window with sink tokens is offered";
}

TEST_F(OptionTest, chunk_begins_at_multiples_of_its_size) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t chunk : {1u, 2u, 15u, 16u, 17u, 64u, 100u, 129u, 130u, 131u}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.group_kind = QUIRE_GROUP_CHUNKED;
        spec.shape.window = chunk;
        spec.rows = {{0, 130, 130}, {1, 129, 1}, {2, 100, 1}, {3, 101, 2}, {4, 65, 3}};
        double error = error_of(rig, spec);
        if (std::isnan(error)) continue;
        ++run_count;
        EXPECT_LE(error, 1.0) << spec.text();
    }
    if (run_count == 0) GTEST_SKIP() << "no chunk is offered";
}

TEST_F(OptionTest, latent_row_of_512_and_64_serves_128_heads) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        spec.shape.group_kind = QUIRE_GROUP_LATENT;
        spec.shape.q_heads = 128;
        spec.shape.kv_heads = 1;
        spec.shape.k_head_dim = 576;
        spec.shape.v_head_dim = 512;
        spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
        spec.scale = 1.0f / std::sqrt(192.0f);
        spec.rows = {{0, 70, 1}, {1, 9, 2}};
        double error = error_of(rig, spec);
        if (std::isnan(error)) continue;
        ++run_count;
        EXPECT_LE(error, 1.0) << spec.text();
    }
    if (run_count == 0) GTEST_SKIP() << "no latent pool of 576 and 512 is offered";
}

TEST_F(OptionTest, cross_row_may_have_more_queries_than_keys) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.group_kind = QUIRE_GROUP_CROSS;
    spec.shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    spec.rows = {{0, 3, 70}, {1, 100, 2}, {2, 0, 4}, {3, 1, 1}};
    double error = error_of(rig, spec);
    if (std::isnan(error)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    EXPECT_LE(error, 1.0);
}

TEST_F(OptionTest, sink_logit_alone_gives_zeros_and_itself_as_lse) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_ATTENTION_SINK_LOGITS;
    spec.rows = {{0, 0, 2}, {1, 40, 1}};
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    AttentionCase attention(spec);
    AttentionResult result = attention.run(rig);
    EXPECT_LE(attention.compare(result), 1.0);
    AttentionResult empty = slice(result, spec, 0, 2);
    for (unsigned char byte : empty.out) ASSERT_EQ(byte, 0);
    std::vector<float> sinks = sinks_of(spec);
    for (size_t i = 0; i < empty.lse.size(); ++i) {
        EXPECT_NEAR(empty.lse[i], sinks[i % sinks.size()], 1e-5) << i;
    }
}

// Rows with no key in sight, with one chunk, and with several.
TEST_F(OptionTest, sink_logit_of_infinity_takes_all_weight_of_its_head) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
        spec.shape.flags = QUIRE_ATTENTION_SINK_LOGITS;
        spec.rows = {{0, 0, 2}, {1, 40, 3}, {2, 1200, 2}};
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        AttentionCase attention(spec);
        AttentionResult finite = attention.run(rig);
        uint32_t heads = spec.shape.q_heads, planted = heads - 1;
        attention.planted().sinks[planted] = kInfinity;
        AttentionResult result = attention.run(rig);
        size_t bytes = spec.shape.v_head_dim * size_of(type);
        for (size_t row = planted; row < result.lse.size(); row += heads) {
            EXPECT_EQ(result.lse[row], kInfinity) << spec.text() << ", query " << row;
            for (size_t at = row * bytes; at < (row + 1) * bytes; at += size_of(type)) {
                ASSERT_EQ(load(&result.out[at], type), 0.0) << spec.text() << ", query " << row;
            }
            std::copy_n(&finite.out[row * bytes], bytes, &result.out[row * bytes]);
            result.lse[row] = finite.lse[row];
        }
        EXPECT_LE(AttentionCase(spec).compare(result), 1.0) << "another head changed";
    }
    if (run_count == 0) GTEST_SKIP() << "no sink logits are offered";
}

TEST_F(OptionTest, soft_cap_comes_before_the_mask) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_ATTENTION_MASK;
    spec.shape.flags |= QUIRE_BE_ATTENTION_SOFT_CAP;
    spec.soft_cap = 0.25f;  // nearly flat: a hidden key that got in would weigh as much as any
    spec.rows = {{0, 150, 60}, {1, 40, 5}};
    spec.rows[0].masked_tokens = 50;
    spec.rows[1].masked_tokens = 5;
    spec.rows[1].mask_first = 3;
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    EXPECT_LE(error_of(rig, spec), 1.0);
}

TEST_F(OptionTest, alibi_counts_positions_of_masked_keys_and_not_places) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_ATTENTION_MASK;
    spec.shape.flags |= QUIRE_BE_ATTENTION_ALIBI;
    spec.mask_kind = MaskKind::tree;
    spec.rows = {{0, 90, 40}, {1, 30, 30}};
    spec.rows[0].masked_tokens = 33;
    spec.rows[1].masked_tokens = 20;
    finish_rows(&spec);
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    EXPECT_LE(error_of(rig, spec), 1.0);
}

// From a distance of 2 on, a score is minus infinity in f32, for whole tiles and chunks of a row.
// The oracle's numbers do not overflow, so its bound does not apply here.
TEST_F(OptionTest, alibi_that_makes_scores_minus_infinity_weighs_them_as_nothing) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_BE_ATTENTION_ALIBI;
    spec.slope = 3e38f;
    spec.rows = {{0, 1200, 1}, {1, 130, 70}, {2, 700, 3}, {3, 1, 1}};
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    AttentionCase attention(spec);
    AttentionResult result = attention.run(rig);
    OracleOutput exact = attention.exact();
    for (size_t i = 0; i < exact.out.size(); ++i) {
        double value = load(&result.out[i * size_of(spec.shape.q_dtype)], spec.shape.q_dtype);
        ASSERT_NEAR(value, exact.out[i], 0.01) << i << ": the value at its own position";
    }
    for (size_t i = 0; i < exact.lse.size(); ++i) {
        ASSERT_NEAR(result.lse[i], exact.lse[i], 1e-4 * (1.0 + std::fabs(exact.lse[i]))) << i;
    }
}

TEST_F(OptionTest, mask_that_hides_all_but_one_key_gives_its_value) {
    Rig rig;
    AttentionSpec masked = plain_spec(rig);
    masked.shape.flags = QUIRE_ATTENTION_MASK;
    masked.rows = {{0, 1200, 3}, {1, 70, 7}};
    if (!is_offered(rig, masked.shape)) GTEST_SKIP() << ask(rig, masked.shape).reason;
    AttentionSpec plain = masked;
    plain.shape.flags = 0;
    for (RowSpec &row : masked.rows) row.masked_tokens = row.new_tokens;
    AttentionCase attention(masked);
    attention.take_pool(AttentionCase(plain));  // in which no bit has hidden a key
    OracleInput &input = attention.planted();
    std::fill(input.mask.begin(), input.mask.end(), 0u);
    for (uint32_t r = 0; r < 2; ++r) {
        for (int32_t token = input.cu_q[r]; token < input.cu_q[r + 1]; ++token) {
            int32_t key = input.lengths[r] / 2 + token;
            input.mask[static_cast<size_t>(input.mask_rows[static_cast<size_t>(token)] +
                                           key / 32)] |= 1u << (key % 32);
        }
    }
    EXPECT_LE(attention.compare(attention.run(rig)), 1.0);
}

TEST_F(OptionTest, mask_that_says_what_is_causal_changes_nothing) {
    Rig rig;
    AttentionSpec masked = plain_spec(rig);
    masked.shape.flags = QUIRE_ATTENTION_MASK;
    masked.rows = {{0, 100, 40}, {1, 70, 7}};
    if (!is_offered(rig, masked.shape)) GTEST_SKIP() << ask(rig, masked.shape).reason;
    AttentionSpec plain = masked;
    plain.shape.flags = 0;
    for (RowSpec &row : masked.rows) row.masked_tokens = row.new_tokens;
    finish_rows(&masked);
    AttentionCase attention(masked);
    OracleInput &input = attention.planted();
    for (uint32_t r = 0; r < 2; ++r) {
        for (int32_t token = input.cu_q[r]; token < input.cu_q[r + 1]; ++token) {
            auto at = static_cast<size_t>(token);
            int32_t place = input.lengths[r] - input.cu_q[r + 1] + token;
            input.positions[at] = place;
            for (int32_t key = input.mask_first[r]; key < input.lengths[r]; ++key) {
                auto bit = static_cast<size_t>(key - input.mask_first[r]);
                uint32_t &word = input.mask[static_cast<size_t>(input.mask_rows[at]) + bit / 32];
                uint32_t one = 1u << (bit % 32);
                word = key <= place ? word | one : word & ~one;
            }
        }
    }
    // The case's own pool has poison where the random bits hid a key from all; the
    // plain one's does not.
    attention.take_pool(AttentionCase(plain));
    EXPECT_LE(AttentionCase(plain).compare(attention.run(rig)), 1.0);
}

TEST_F(OptionTest, row_without_a_mask_goes_beside_rows_with_one) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_ATTENTION_MASK;
    spec.rows = {{0, 100, 40}, {1, 70, 7}, {2, 33, 1}, {3, 0, 0}, {4, 5, 5}};
    spec.rows[1].masked_tokens = 4;
    spec.rows[4].masked_tokens = 5;
    finish_rows(&spec);
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << ask(rig, spec.shape).reason;
    EXPECT_LE(error_of(rig, spec), 1.0);
}

TEST_F(OptionTest, shared_prefix_gives_the_bits_of_one_that_is_not_told) {
    Rig rig;
    for (uint64_t seed : seeds(1, 40, 8)) {
        AttentionSpec spec;
        if (!find_variant(rig, Variant::shared_prefix, seed + 700, &spec)) continue;
        AttentionResult told = AttentionCase(spec).run(rig);
        spec.tells_shared = false;
        EXPECT_TRUE(AttentionCase(spec).run(rig) == told) << spec.text();
    }
}

// The middle row has no queries. The blocks that its neighbours share are those
// that both share with it.
TEST_F(OptionTest, shared_prefix_across_a_row_without_tokens_agrees_with_the_oracle) {
    Rig rig;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        AttentionSpec spec = plain_spec(rig);
        spec.tells_shared = true;
        spec.shares_pages = true;
        spec.pages_seed = seed;
        auto block = static_cast<int32_t>(spec.shape.block_tokens);
        int32_t length = 140 / block * block + 2 * block;
        spec.rows = {{0, length, 1}, {1, length, 0, block}, {2, length, 1, length - block}};
        EXPECT_LE(error_of(rig, spec), 1.0) << spec.text();
    }
}

TEST_F(OptionTest, shared_prefix_of_many_rows_agrees_with_the_oracle) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.tells_shared = true;
    int32_t shared = 11 * static_cast<int32_t>(spec.shape.block_tokens);
    for (uint32_t r = 0; r < 40; ++r) {
        spec.rows.push_back({r, shared + static_cast<int32_t>(r) % 7, 1});
    }
    finish_rows(&spec);
    EXPECT_LE(error_of(rig, spec), 1.0);
}

}  // namespace quire::conformance
