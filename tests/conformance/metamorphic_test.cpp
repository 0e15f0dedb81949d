// SPDX-License-Identifier: Apache-2.0
//
// A question asked in two ways has one answer: within the bound if the arithmetic may use another
// order, to the bit if it may not.
//
// Why not only the oracle: these tests detect mistakes that the oracle would share.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "attention_case.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class MetamorphicTest : public SubjectTest {
 protected:
    MetamorphicTest() : SubjectTest(Needs::attention) {}
};

namespace {

std::vector<uint64_t> few_seeds() { return seeds(1, 12, 3); }

// Plain types and dims; random heads, layout, scale and sharpness.
AttentionSpec spec_of(Rig &rig, uint64_t seed) {
    quire_be_attention_query plain = plain_shape(rig);
    AttentionSpec spec = random_spec(seed, &plain);
    spec.shape.flags = spec.shape.group_kind = spec.shape.window = 0;
    spec.wants_lse = true;
    spec.rows.clear();
    return spec;
}

AttentionResult run(Rig &rig, AttentionSpec spec, std::vector<RowSpec> rows) {
    spec.rows = std::move(rows);
    return AttentionCase(spec).run(rig);
}

// The joined results of parts must be within the bound of the whole.
void expect_within_bound(const AttentionSpec &spec, const std::vector<RowSpec> &rows,
                         const AttentionResult &result, const char *what) {
    AttentionSpec whole = spec;
    whole.rows = rows;
    EXPECT_LE(AttentionCase(whole).compare(result), 1.0) << what << "; " << whole.text();
}

// Merges two results over two parts of the keys, in double. The LSE of a part is the logarithm of
// the sum of its weights:
//   lse = log(exp(lse_a) + exp(lse_b)),  out = exp(lse_a - lse) out_a + exp(lse_b - lse) out_b
AttentionResult merge(const AttentionResult &a, const AttentionResult &b,
                      const quire_be_attention_query &shape) {
    AttentionResult merged = a;
    uint32_t bytes = size_of(shape.q_dtype);
    for (size_t query = 0; query < a.lse.size(); ++query) {
        double top = std::max(a.lse[query], b.lse[query]);
        double lse = top + std::log(std::exp(a.lse[query] - top) + std::exp(b.lse[query] - top));
        double weight_a = std::exp(a.lse[query] - lse);
        double weight_b = std::exp(b.lse[query] - lse);
        for (size_t d = 0; d < shape.v_head_dim; ++d) {
            size_t at = (query * shape.v_head_dim + d) * bytes;
            double value = weight_a * load(&a.out[at], shape.q_dtype) +
                           weight_b * load(&b.out[at], shape.q_dtype);
            store(value, shape.q_dtype, &merged.out[at]);
        }
        merged.lse[query] = static_cast<float>(lse);
    }
    return merged;
}

// The largest error of a merged result in units of its bound: the bound of the whole, and for a
// half type three roundings (of two parts and their sum) instead of one.
double distance(const AttentionResult &merged, const OracleOutput &exact,
                const quire_be_attention_query &shape) {
    constexpr double kUnit = 5e-7;  // as AttentionCase::compare()
    double rounding = size_of(shape.q_dtype) == 4 ? 0.0 : 2 * rounding_of(shape.q_dtype);
    double worst = 0.0;
    for (size_t i = 0; i < exact.out.size(); ++i) {
        size_t query = i / shape.v_head_dim;
        double value = load(&merged.out[i * size_of(shape.q_dtype)], shape.q_dtype);
        double bound = kUnit * (1.0 + exact.score_range[query]) + rounding;
        double error = std::fabs(value - exact.out[i]);
        worst = std::max(worst, error / (bound * exact.largest_v[query]));
        if (std::isnan(error)) return HUGE_VAL;
    }
    for (size_t i = 0; i < exact.lse.size(); ++i) {
        double bound = kUnit * (1.0 + exact.score_range[i] + std::fabs(exact.lse[i]));
        double error = std::fabs(merged.lse[i] - exact.lse[i]) / bound;
        worst = std::max(worst, error);
        if (std::isnan(error)) return HUGE_VAL;
    }
    return worst;
}

// Keys [0, length) in two parts, `first_part` and the rest. The last `query_tokens` queries see all
// of both parts; a causal query sees a whole part only if it is alone.
void expect_parts_give_the_whole(Rig &rig, const AttentionSpec &spec, int32_t length,
                                 int32_t first_part, int32_t query_tokens) {
    int32_t first_query = length - query_tokens;
    RowSpec whole{0, length, query_tokens};
    RowSpec head{0, first_part, query_tokens, 0, 0, first_query};
    RowSpec tail{0, length - first_part, query_tokens, 0, first_part, first_query};
    AttentionSpec asked = spec;
    asked.rows = {whole};
    AttentionResult merged = merge(run(rig, spec, {head}), run(rig, spec, {tail}), spec.shape);
    EXPECT_LE(distance(merged, AttentionCase(asked).exact(), spec.shape), 1.0)
        << "parts of " << first_part << " and " << length - first_part << "; " << asked.text();
}

// Makes the last token of the only row all ones: NaN in every float, and in its scales.
void make_last_token_nan(AttentionCase *attention) {
    const quire_be_pool &pool = attention->input().pool;
    int64_t last = attention->lengths()[0] - 1;
    int64_t place = last % pool.block_tokens;
    auto entry = static_cast<size_t>(last / pool.block_tokens);
    unsigned char *layer = attention->bytes().data() +
                           attention->block_table()[entry] * pool.block_stride +
                           attention->input().layer * pool.layer_stride;
    auto fill = [](unsigned char *row, uint32_t dtype, uint32_t dim) {
        std::memset(row, 0xFF, dtype == QUIRE_DTYPE_I4 ? dim / 2 : size_t{dim} * size_of(dtype));
    };
    for (uint32_t head = 0; head < pool.kv_heads; ++head) {
        unsigned char *k = layer + head * pool.k_head_stride + place * pool.k_token_stride;
        unsigned char *v =
            layer + pool.v_offset + head * pool.v_head_stride + place * pool.v_token_stride;
        fill(k, pool.k_dtype, pool.k_head_dim);
        fill(v, pool.v_dtype, pool.v_head_dim);
        for (auto [kind, offset] : {std::pair{pool.k_scale_kind, pool.k_scale_offset},
                                    std::pair{pool.v_scale_kind, pool.v_scale_offset}}) {
            unsigned char *scale = layer + offset + head * pool.scale_head_stride + place * 4;
            if (kind == QUIRE_SCALE_TOKEN_HEAD) std::memset(scale, 0xFF, sizeof(float));
        }
    }
}

}  // namespace

TEST_F(MetamorphicTest, keys_split_in_two_and_merged_give_the_whole) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        Dice dice(seed);
        auto length = static_cast<int32_t>(dice.roll(60, 300));
        auto first_part = static_cast<int32_t>(dice.roll(1, 59));
        expect_parts_give_the_whole(rig, spec, length, first_part, 1);
    }
}

TEST_F(MetamorphicTest, keys_split_in_two_and_merged_give_the_whole_of_many_queries) {
    Rig rig;
    AttentionSpec plain = spec_of(rig, 1);
    plain.shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    Answer answer = ask(rig, plain.shape);
    if (answer.support == QUIRE_BE_NO) GTEST_SKIP() << answer.reason;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        spec.shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
        if (!is_offered(rig, spec.shape)) continue;
        Dice dice(seed);
        auto length = static_cast<int32_t>(dice.roll(60, 200));
        auto first_part = static_cast<int32_t>(dice.roll(30, 59));
        // A part has at least as many keys as there are queries.
        expect_parts_give_the_whole(rig, spec, length, std::min(first_part, length - 20), 20);
    }
}

TEST_F(MetamorphicTest, chunked_prefill_gives_the_whole) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        Dice dice(seed);
        auto length = static_cast<int32_t>(dice.roll(100, 220));
        AttentionResult chunked;
        for (int32_t done = 0; done < length;) {
            int32_t chunk = std::min(static_cast<int32_t>(dice.roll(1, 90)), length - done);
            done += chunk;
            chunked = join(chunked, run(rig, spec, {{0, done, chunk}}));
        }
        expect_within_bound(spec, {{0, length, length}}, chunked, "chunks");
    }
}

TEST_F(MetamorphicTest, decode_gives_the_last_row_of_a_prefill) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        for (int32_t length : {1, 2, 63, 64, 65, 129}) {
            AttentionResult prefill = run(rig, spec, {{0, length, length}});
            AttentionResult last = slice(prefill, spec, static_cast<uint32_t>(length) - 1, 1);
            expect_within_bound(spec, {{0, length, 1}}, last, "the prefill's last row");
            AttentionResult decode = run(rig, spec, {{0, length, 1}});
            expect_within_bound(spec, {{0, length, 1}}, decode, "decode");
        }
    }
}

TEST_F(MetamorphicTest, batch_gives_what_its_rows_give_alone) {
    Rig rig;
    std::vector<RowSpec> rows = {{0, 70, 1}, {1, 130, 130}, {2, 5, 5}, {4, 0, 1}, {5, 99, 17}};
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        AttentionResult singles;
        for (const RowSpec &row : rows) singles = join(singles, run(rig, spec, {row}));
        expect_within_bound(spec, rows, singles, "singles");
        expect_within_bound(spec, rows, run(rig, spec, rows), "batch");
    }
}

TEST_F(MetamorphicTest, permuted_pages_do_not_change_a_bit) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        std::vector<RowSpec> rows = {{0, 150, 3}, {1, 40, 40}};
        AttentionResult first = run(rig, spec, rows);
        for (int i = 0; i < 3; ++i) {
            spec.pages_seed += 1;
            EXPECT_TRUE(run(rig, spec, rows) == first) << spec.text();
        }
    }
}

TEST_F(MetamorphicTest, shared_pages_do_not_change_a_bit) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        auto shared = static_cast<int32_t>(spec.shape.block_tokens * 3);
        int32_t length = shared + 21;
        AttentionResult sharing =
            run(rig, spec, {{0, length, 2}, {1, length, 2, shared}, {2, length, 2, shared}});
        // The same contents on separate pages: what the rows before hold, then their own.
        AttentionSpec apart = spec;
        apart.rows = {{0, length, 2}, {1, length, 2, shared}, {2, length, 2, shared}};
        apart.shares_pages = false;
        EXPECT_TRUE(AttentionCase(apart).run(rig) == sharing) << spec.text();
    }
}

TEST_F(MetamorphicTest, same_call_gives_the_same_bits_every_time) {
    Rig rig;
    for (uint64_t seed : few_seeds()) {
        AttentionSpec spec = spec_of(rig, seed);
        std::vector<RowSpec> rows = {{0, 150, 30}, {1, 40, 40}, {2, 290, 1}};
        AttentionResult first = run(rig, spec, rows);
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(run(rig, spec, rows) == first) << spec.text();
    }
}

namespace {

void expect_last_token_is_not_seen(Rig &rig, AttentionSpec spec) {
    if (!is_offered(rig, spec.shape)) return;
    for (int32_t tokens : {2, 7, 40}) {
        spec.rows = {{0, 90, tokens}};
        AttentionCase attention(spec);
        AttentionResult right = attention.run(rig);
        make_last_token_nan(&attention);
        AttentionResult result = attention.run(rig);
        auto before = static_cast<uint32_t>(tokens - 1);
        EXPECT_TRUE(slice(result, spec, 0, before) == slice(right, spec, 0, before))
            << name_of(spec.shape.k_dtype) << ", " << tokens << " tokens";
        EXPECT_FALSE(result == right) << name_of(spec.shape.k_dtype);
    }
}

}  // namespace

// Tokens of a row are computed together, and the first must not see what the last sees.
TEST_F(MetamorphicTest, token_of_nan_changes_nothing_for_those_before_it) {
    Rig rig;
    std::vector<PoolTypes> offered = {{QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0},
                                      {QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 0, 0},
                                      {QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 0, 0}};
    for (uint32_t dtype : kCodeTypes) {
        offered.push_back({dtype, dtype, QUIRE_SCALE_TOKEN_HEAD, QUIRE_SCALE_TOKEN_HEAD});
    }
    for (const PoolTypes &types : offered) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        put_types(types, &spec.shape);
        expect_last_token_is_not_seen(rig, spec);
        if (types.k_scale_kind != 0) continue;
        // One type throughout, for which kernels with matrix instructions are made.
        spec.shape.q_dtype = types.k_dtype;
        expect_last_token_is_not_seen(rig, spec);
    }
}

TEST_F(MetamorphicTest, fast_16bit_changes_nothing_where_it_is_not_in_effect) {
    quire_be_device_desc desc = device_desc(0, 0);
    desc.flags = 0;
    Rig plain(desc);
    desc.flags = QUIRE_BE_DEVICE_FAST_16BIT;
    Rig fast(desc);
    bool is_in_effect = fast.is_fast_16bit();
    uint32_t different = 0;
    for (const quire_be_attention_query &shape : common_shapes()) {
        if (!is_offered(plain, shape)) continue;
        AttentionSpec spec = random_spec(4000 + shape.k_head_dim, &shape);
        spec.shape.flags = spec.shape.group_kind = spec.shape.window = 0;
        spec.wants_lse = true;
        spec.rows = {{0, 200, 1}, {1, 60, 60}, {2, 90, 9}};
        AttentionCase attention(spec);
        AttentionResult result = attention.run(plain), other = attention.run(fast);
        EXPECT_LE(attention.compare(other), 1.0) << spec.text();
        if (result == other) continue;
        ++different;
        EXPECT_TRUE(is_in_effect) << spec.text();
        EXPECT_NE(shape.k_dtype, uint32_t{QUIRE_DTYPE_F32}) << "not of 16 bits; " << spec.text();
    }
    // Otherwise this test would not know that the other kernels ran.
    if (std::strcmp(api().name, "cpu") == 0) {
        EXPECT_EQ(different != 0, is_in_effect);
    }
}

}  // namespace quire::conformance
