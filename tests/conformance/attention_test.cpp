// SPDX-License-Identifier: Apache-2.0
//
// Attention against the oracle: random shapes, poisoned slots, guarded outputs; and a proof that
// the comparison detects a wrong block.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "agreement.hpp"
#include "number.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class AttentionTest : public SubjectTest {
 protected:
    AttentionTest() : SubjectTest(Needs::attention) {}
};

namespace {

AttentionSpec plain_spec(Rig &rig) {
    AttentionSpec spec;
    spec.shape = plain_shape(rig);
    return spec;
}

void expect_within_bound(Rig &rig, const AttentionSpec &spec) {
    AttentionCase attention(spec);
    EXPECT_LE(attention.compare(attention.run(rig)), 1.0) << spec.text();
}

// The spec of a seed over a pool of these types. If the backend does not offer it, one that is as
// random except for what a common shape of the types fixes. False if that is not offered either.
bool find_spec(Rig &rig, uint64_t seed, uint32_t k_dtype, uint32_t v_dtype, AttentionSpec *spec) {
    *spec = random_spec(seed);
    spec->shape.k_dtype = k_dtype;
    spec->shape.v_dtype = v_dtype;
    if (is_offered(rig, spec->shape)) return true;
    for (quire_be_attention_query shape : common_shapes()) {
        shape.k_dtype = k_dtype;
        shape.v_dtype = v_dtype;
        *spec = random_spec(seed, &shape);
        if (is_offered(rig, spec->shape)) return true;
        spec->shape.flags = spec->shape.group_kind = spec->shape.window = 0;
        if (is_offered(rig, spec->shape)) return true;
    }
    return false;
}

struct Pools {
    uint32_t k_dtype, v_dtype;
};

void expect_pools_agree(std::initializer_list<Pools> pools, uint64_t first_seed) {
    auto find = [&](Rig &rig, uint64_t seed, AttentionSpec *spec) {
        Pools types = pools.begin()[seed % pools.size()];
        return find_spec(rig, seed, types.k_dtype, types.v_dtype, spec);
    };
    expect_random_shapes_agree(seeds(first_seed, kShapes, kFewShapes), find);
}

}  // namespace

TEST_F(AttentionTest, random_shapes_over_f32_agree_with_the_oracle_whatever_the_poison) {
    expect_pools_agree({{QUIRE_DTYPE_F32, QUIRE_DTYPE_F32}}, 1);
}

TEST_F(AttentionTest, random_shapes_over_f16_agree_with_the_oracle_whatever_the_poison) {
    expect_pools_agree({{QUIRE_DTYPE_F16, QUIRE_DTYPE_F16}}, 1001);
}

TEST_F(AttentionTest, random_shapes_over_bf16_agree_with_the_oracle_whatever_the_poison) {
    expect_pools_agree({{QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16}}, 2001);
}

TEST_F(AttentionTest, random_shapes_over_mixed_types_agree_with_the_oracle_whatever_the_poison) {
    expect_pools_agree({{QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16},
                        {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16},
                        {QUIRE_DTYPE_BF16, QUIRE_DTYPE_F32}},
                       3001);
}

TEST_F(AttentionTest, one_common_shape_is_offered) {
    Rig rig;
    EXPECT_NO_THROW(plain_shape(rig));
}

TEST_F(AttentionTest, window_sees_only_its_newest_keys) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t window : {1u, 16u, 17u, 64u, 500u}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.group_kind = QUIRE_GROUP_WINDOW;
        spec.shape.window = window;
        spec.rows = {{0, 200, 1}, {1, 130, 130}, {2, 90, 9}};
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        expect_within_bound(rig, spec);
    }
    if (run_count == 0) GTEST_SKIP() << "no window is offered";
}

TEST_F(AttentionTest, not_causal_sees_the_whole_context) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    spec.rows = {{0, 100, 100}, {1, 77, 5}, {2, 33, 1}};
    Answer answer = ask(rig, spec.shape);
    if (answer.support == QUIRE_BE_NO) GTEST_SKIP() << answer.reason;
    expect_within_bound(rig, spec);
}

TEST_F(AttentionTest, scale_is_the_plans_or_one_over_the_root_of_the_head_dim) {
    Rig rig;
    for (float scale : {0.0f, 1.0f, 0.01f, -0.5f}) {
        AttentionSpec spec = plain_spec(rig);
        spec.scale = scale;
        spec.rows = {{0, 70, 1}, {1, 40, 40}};
        expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, every_combination_of_types_agrees_with_the_oracle) {
    Rig rig;
    for (uint32_t q : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (uint32_t k : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
            for (uint32_t v : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
                AttentionSpec spec = plain_spec(rig);
                spec.shape.q_dtype = q;
                spec.shape.k_dtype = k;
                spec.shape.v_dtype = v;
                spec.rows = {{0, 100, 1}, {1, 37, 37}, {2, 60, 9}};
                if (is_offered(rig, spec.shape)) expect_within_bound(rig, spec);
            }
        }
    }
}

TEST_F(AttentionTest, every_head_dim_agrees_with_the_oracle) {
    Rig rig;
    for (uint32_t dim = 1; dim <= 256; dim += options().is_short ? 17 : 3) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.k_head_dim = dim;
        spec.shape.v_head_dim = 257 - dim;
        spec.rows = {{0, 20, 3}};
        if (is_offered(rig, spec.shape)) expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, many_query_heads_share_one_kv_head) {
    Rig rig;
    for (uint32_t heads : {8u, 64u, 65u, 128u, 200u}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.kv_heads = 1;
        spec.shape.q_heads = heads;
        spec.rows = {{0, 90, 1}, {1, 10, 5}};
        if (is_offered(rig, spec.shape)) expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, long_row_agrees_with_the_oracle) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.q_size = 4.0;
    spec.rows = {{0, options().is_short ? 1500 : 5000, 2}};
    expect_within_bound(rig, spec);
}

// Where all products have one sign, whatever a matrix unit cuts off adds up.
TEST_F(AttentionTest, large_scores_of_one_sign_agree_with_the_oracle) {
    Rig rig;
    for (uint32_t type : {QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16, QUIRE_DTYPE_F32}) {
        for (uint32_t dim : {64u, 128u}) {
            AttentionSpec spec = plain_spec(rig);
            spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
            spec.shape.k_head_dim = spec.shape.v_head_dim = dim;
            spec.one_sign = true;
            spec.q_size = 16.0;
            spec.rows = {{0, 40, 2}, {1, 1, 1}};
            if (is_offered(rig, spec.shape)) expect_within_bound(rig, spec);
        }
    }
}

TEST_F(AttentionTest, empty_context_gives_zeros_and_minus_infinity) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.rows = {{0, 0, 0}, {1, 33, 1}, {2, 0, 1}, {3, 0, 3}, {4, 5, 0}, {5, 64, 2}};
    AttentionCase attention(spec);
    AttentionResult result = attention.run(rig);
    EXPECT_LE(attention.compare(result), 1.0);
    AttentionResult empty = slice(result, spec, 1, 4);
    for (unsigned char byte : empty.out) ASSERT_EQ(byte, 0);
    for (float lse : empty.lse) ASSERT_EQ(lse, -INFINITY);
}

TEST_F(AttentionTest, nothing_to_compute_writes_nothing) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.rows = {{0, 40, 0}, {1, 0, 0}};
    AttentionResult result = AttentionCase(spec).run(rig);
    EXPECT_TRUE(result.out.empty());
}

TEST_F(AttentionTest, blocks_of_every_size_agree_with_the_oracle) {
    Rig rig;
    for (uint32_t block_tokens : {1u, 4u, 8u, 13u, 32u, 64u, 128u}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.block_tokens = block_tokens;
        spec.rows = {{0, 200, 1}, {1, 65, 65}};
        if (is_offered(rig, spec.shape)) expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, score_that_is_no_number_makes_its_row_and_no_other_none) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.rows = {{0, 700, 1}, {1, 700, 1}, {2, 90, 1}};
    AttentionCase attention(spec);
    AttentionResult right = attention.run(rig);
    const OracleInput &input = attention.input();
    const quire_be_pool &pool = input.pool;
    // The middle row's key at 600: all ones are a NaN in each type.
    int64_t block = input.block_table[input.block_table_stride + 600 / pool.block_tokens];
    auto place = static_cast<int64_t>(600 % pool.block_tokens);
    for (uint32_t head = 0; head < pool.kv_heads; ++head) {
        int64_t at = block * pool.block_stride + input.layer * pool.layer_stride +
                     head * pool.k_head_stride + place * pool.k_token_stride;
        int64_t row_bytes = int64_t{pool.k_head_dim} * size_of(pool.k_dtype);
        std::fill_n(attention.bytes().begin() + at, row_bytes, static_cast<unsigned char>(0xFF));
    }
    AttentionResult result = attention.run(rig);
    AttentionResult middle = slice(result, spec, 1, 1);
    for (float lse : middle.lse) ASSERT_TRUE(std::isnan(lse)) << lse;
    for (size_t i = 0; i < middle.out.size();
         i += static_cast<size_t>(size_of(spec.shape.q_dtype))) {
        ASSERT_TRUE(std::isnan(load(&middle.out[i], spec.shape.q_dtype))) << i;
    }
    for (uint32_t row : {0u, 2u}) {
        EXPECT_TRUE(slice(result, spec, row, 1) == slice(right, spec, row, 1)) << row;
    }
}

TEST_F(AttentionTest, query_that_is_no_number_gives_none_whatever_its_keys) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        AttentionSpec spec = plain_spec(rig);
        spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
        spec.rows = {{0, 90, 1}, {1, 700, 2}, {2, 1, 1}, {3, 40, 1}};
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        AttentionCase attention(spec);
        AttentionResult right = attention.run(rig);
        auto token_bytes = attention.input().q_token_stride * size_of(type);
        auto q = attention.query_bytes().begin();
        std::fill(q + token_bytes, q + 4 * token_bytes, static_cast<unsigned char>(0xFF));
        AttentionResult result = attention.run(rig);
        AttentionResult middle = slice(result, spec, 1, 3);
        for (float lse : middle.lse) ASSERT_TRUE(std::isnan(lse)) << lse;
        for (size_t i = 0; i < middle.out.size(); i += static_cast<size_t>(size_of(type))) {
            ASSERT_TRUE(std::isnan(load(&middle.out[i], type))) << i;
        }
        for (uint32_t token : {0u, 4u}) {
            EXPECT_TRUE(slice(result, spec, token, 1) == slice(right, spec, token, 1)) << token;
        }
    }
    EXPECT_NE(run_count, 0u);
}

namespace {

// A row of one query, 1 in its first element, whose first key scores `gap` above all others. The
// first key's V is `first_value` in its first element and 0 in the rest; every other V is all ones.
AttentionCase case_of_one_tall_key(const AttentionSpec &spec, double gap, double first_value) {
    AttentionCase attention(spec);
    const OracleInput &input = attention.input();
    const quire_be_pool &pool = input.pool;
    uint32_t type = spec.shape.q_dtype;
    auto bytes = static_cast<int64_t>(size_of(type));
    for (uint32_t head = 0; head < spec.shape.q_heads; ++head) {
        for (int64_t d = 0; d < pool.k_head_dim; ++d) {
            int64_t at = (head * int64_t{pool.k_head_dim} + d) * bytes;
            store(d == 0 ? 1.0 : 0.0, type, &attention.query_bytes()[static_cast<size_t>(at)]);
        }
    }
    for (int32_t place = 0; place < spec.rows[0].length; ++place) {
        auto block_tokens = static_cast<int32_t>(pool.block_tokens);
        int64_t block = input.block_table[static_cast<size_t>(place / block_tokens)];
        for (uint32_t head = 0; head < pool.kv_heads; ++head) {
            unsigned char *row = &attention.bytes()[static_cast<size_t>(
                block * pool.block_stride + input.layer * pool.layer_stride)];
            unsigned char *k =
                row + head * pool.k_head_stride + place % block_tokens * pool.k_token_stride;
            unsigned char *v = row + pool.v_offset + head * pool.v_head_stride +
                               place % block_tokens * pool.v_token_stride;
            store(place == 0 ? gap : 0.0, type, k);
            for (int64_t d = 0; d < pool.v_head_dim; ++d) {
                double of_first = d == 0 ? first_value : 0.0;
                store(place == 0 ? of_first : 1.0, type, v + d * bytes);
            }
        }
    }
    return attention;
}

}  // namespace

TEST_F(AttentionTest, large_score_has_a_weight) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (float scale : {3e3f, 1.1e4f, 1e5f, -1.1e4f}) {
            AttentionSpec spec = plain_spec(rig);
            spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
            spec.scale = scale;
            spec.rows = {{0, 512, 1}};
            if (!is_offered(rig, spec.shape)) continue;
            ++run_count;
            AttentionCase attention =
                case_of_one_tall_key(spec, scale < 0 ? -3001.0 : 3001.0, 0.75);
            AttentionResult result = attention.run(rig);
            EXPECT_EQ(load(result.out.data(), type), 0.75) << name_of(type) << ' ' << scale;
        }
    }
    EXPECT_NE(run_count, 0u);
}

TEST_F(AttentionTest, many_small_weights_count_beside_a_large_one) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (double gap : {5.0, 9.75, 14.0}) {
            AttentionSpec spec = plain_spec(rig);
            spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
            spec.scale = 1.0f;
            spec.rows = {{0, 512, 1}};
            if (!is_offered(rig, spec.shape)) continue;
            ++run_count;
            AttentionCase attention = case_of_one_tall_key(spec, gap, 0.0);
            OracleOutput exact = attention.exact();
            AttentionResult result = attention.run(rig);
            // The bound is relative to what the small weights contribute, not to the largest value.
            // A value's own rounding is half a unit of its type.
            for (size_t i = 0; i < exact.out.size(); ++i) {
                double value = load(&result.out[i * static_cast<size_t>(size_of(type))], type);
                double small = std::exp(-gap) * 511 / (1 + std::exp(-gap) * 511);
                double bound = 4e-4 * small + rounding_of(type) * std::fabs(exact.out[i]);
                EXPECT_NEAR(value, exact.out[i], bound + smallest_of(type)) << gap << ' ' << i;
            }
        }
    }
    EXPECT_NE(run_count, 0u);
}

TEST_F(AttentionTest, value_that_is_infinite_makes_its_element_so_and_no_other) {
    Rig rig;
    if (rig.is_fast_16bit()) GTEST_SKIP() << "under FAST_16BIT an infinity may count as a NaN";
    uint32_t run_count = 0;
    for (uint32_t type : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (double infinity : {HUGE_VAL, -HUGE_VAL}) {
            AttentionSpec spec = plain_spec(rig);
            spec.shape.q_dtype = spec.shape.k_dtype = spec.shape.v_dtype = type;
            spec.rows = {{0, 200, 1}};
            if (!is_offered(rig, spec.shape)) continue;
            ++run_count;
            AttentionCase attention = case_of_one_tall_key(spec, 1.0, infinity);
            AttentionResult result = attention.run(rig);
            for (size_t i = 0; i < result.lse.size() * spec.shape.v_head_dim; ++i) {
                double value = load(&result.out[i * static_cast<size_t>(size_of(type))], type);
                if (i % spec.shape.v_head_dim == 0) {
                    EXPECT_EQ(value, infinity) << i;
                } else {
                    EXPECT_TRUE(std::isfinite(value)) << i;
                }
            }
        }
    }
    EXPECT_NE(run_count, 0u);
}

TEST_F(AttentionTest, wrong_block_in_the_table_is_far_outside_the_bound) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.rows = {{0, 200, 1}, {1, 200, 4}};
    AttentionCase right(spec);
    ASSERT_LE(right.compare(right.run(rig)), 1.0);
    // The kernel runs with one of the other row's blocks; the oracle uses the right table.
    AttentionCase wrong(spec);
    std::swap(wrong.block_table()[3], wrong.block_table()[wrong.input().block_table_stride + 3]);
    EXPECT_GT(right.compare(wrong.run(rig)), 100.0);
}

TEST_F(AttentionTest, unwritten_slot_that_is_read_is_far_outside_the_bound) {
    Rig rig;
    AttentionSpec spec = plain_spec(rig);
    spec.rows = {{0, 50, 1}};
    AttentionCase right(spec);
    AttentionCase wrong(spec);
    wrong.block_table()[1] = 0;  // the null block, all NaN
    EXPECT_EQ(right.compare(wrong.run(rig)), HUGE_VAL);
}

}  // namespace quire::conformance
