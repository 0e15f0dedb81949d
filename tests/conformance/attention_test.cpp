// SPDX-License-Identifier: Apache-2.0
//
// Attention against the oracle: random shapes, poisoned slots, guarded outputs; and a proof that
// the comparison sees a wrong block.

#include <cmath>
#include <iostream>

#include "attention_case.hpp"
#include "quire/attention.h"

namespace quire::conformance {

class AttentionTest : public SubjectTest {
 protected:
    AttentionTest() : SubjectTest(Needs::attention) {}
};

namespace {

bool is_supported(Rig &rig, const quire_be_attention_query &shape) {
    quire_be_answer answer{};
    answer.struct_size = sizeof answer;
    Error error;
    must(api().query_attention(rig.device(), &shape, &answer, &error), error);
    return answer.support != QUIRE_BE_NO;
}

AttentionSpec plain_spec() {
    AttentionSpec spec;
    spec.shape = {sizeof spec.shape, 0,  4, 2, 64, 64, QUIRE_DTYPE_F32, QUIRE_DTYPE_F32,
                  QUIRE_DTYPE_F32,   16, 0, 0};
    return spec;
}

void expect_within_bound(Rig &rig, const AttentionSpec &spec) {
    AttentionCase attention(spec);
    EXPECT_LE(attention.compare(attention.run(rig)), 1.0) << spec.text();
}

}  // namespace

TEST_F(AttentionTest, random_shapes_agree_with_the_oracle_whatever_the_poison) {
    Rig rig;
    uint32_t count = options().is_short ? 40 : 300;
    uint32_t run_count = 0;
    double worst = 0.0;
    for (uint32_t seed = 1; seed <= count; ++seed) {
        AttentionSpec spec = random_spec(seed);
        if (!is_supported(rig, spec.shape)) continue;
        ++run_count;
        AttentionCase attention(spec);
        AttentionResult result = attention.run(rig);
        double error = attention.compare(result);
        ASSERT_LE(error, 1.0) << spec.text();
        worst = std::max(worst, error);
        spec.poison = 0x7F;  // NaN in f16, 3e38 in the others
        ASSERT_TRUE(AttentionCase(spec).run(rig) == result) << "reads poison; " << spec.text();
    }
    std::cout << run_count << " of " << count << " shapes; largest error " << worst
              << " of the bound\n";
    EXPECT_GT(run_count, 0u);
}

TEST_F(AttentionTest, every_combination_of_types_agrees_with_the_oracle) {
    Rig rig;
    for (uint32_t q : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
        for (uint32_t k : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
            for (uint32_t v : {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16}) {
                AttentionSpec spec = plain_spec();
                spec.shape.q_dtype = q;
                spec.shape.k_dtype = k;
                spec.shape.v_dtype = v;
                spec.rows = {{0, 100, 1}, {1, 37, 37}, {2, 60, 9}};
                if (is_supported(rig, spec.shape)) expect_within_bound(rig, spec);
            }
        }
    }
}

TEST_F(AttentionTest, every_head_dim_agrees_with_the_oracle) {
    Rig rig;
    for (uint32_t dim = 1; dim <= 256; dim += options().is_short ? 17 : 3) {
        AttentionSpec spec = plain_spec();
        spec.shape.k_head_dim = dim;
        spec.shape.v_head_dim = 257 - dim;
        spec.rows = {{0, 20, 3}};
        if (is_supported(rig, spec.shape)) expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, many_query_heads_share_one_kv_head) {
    Rig rig;
    for (uint32_t heads : {64u, 65u, 128u, 200u}) {
        AttentionSpec spec = plain_spec();
        spec.shape.kv_heads = 1;
        spec.shape.q_heads = heads;
        spec.rows = {{0, 90, 1}, {1, 10, 5}};
        if (is_supported(rig, spec.shape)) expect_within_bound(rig, spec);
    }
}

TEST_F(AttentionTest, long_row_agrees_with_the_oracle) {
    Rig rig;
    AttentionSpec spec = plain_spec();
    spec.shape.k_dtype = spec.shape.v_dtype = QUIRE_DTYPE_F16;
    spec.q_size = 4.0;
    spec.rows = {{0, 5000, 2}};
    expect_within_bound(rig, spec);
}

TEST_F(AttentionTest, empty_context_gives_zeros_and_minus_infinity) {
    Rig rig;
    AttentionSpec spec = plain_spec();
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
    AttentionSpec spec = plain_spec();
    spec.rows = {{0, 40, 0}, {1, 0, 0}};
    AttentionResult result = AttentionCase(spec).run(rig);
    EXPECT_TRUE(result.out.empty());
}

TEST_F(AttentionTest, wrong_block_in_the_table_is_far_outside_the_bound) {
    Rig rig;
    AttentionSpec spec = plain_spec();
    spec.rows = {{0, 200, 1}, {1, 200, 4}};
    AttentionCase right(spec);
    ASSERT_LE(right.compare(right.run(rig)), 1.0);
    // The kernel runs with one block of the other row's; the oracle is asked about the right table.
    AttentionCase wrong(spec);
    std::swap(wrong.block_table()[3], wrong.block_table()[wrong.input().block_table_stride + 3]);
    EXPECT_GT(right.compare(wrong.run(rig)), 100.0);
}

TEST_F(AttentionTest, unwritten_slot_that_is_read_is_far_outside_the_bound) {
    Rig rig;
    AttentionSpec spec = plain_spec();
    spec.rows = {{0, 50, 1}};
    AttentionCase right(spec);
    AttentionCase wrong(spec);
    wrong.block_table()[1] = 0;  // the null block, all NaN
    EXPECT_EQ(right.compare(wrong.run(rig)), HUGE_VAL);
}

}  // namespace quire::conformance
