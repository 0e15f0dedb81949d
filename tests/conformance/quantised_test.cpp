// SPDX-License-Identifier: Apache-2.0
//
// Attention over pools of codes against the oracle, which multiplies them by their scales exactly;
// and the distance from the result over the values before they became codes.

#include <cmath>
#include <cstring>

#include "agreement.hpp"
#include "quire/attention.h"
#include "quire/cache.h"
#include "shapes.hpp"

namespace quire::conformance {

class QuantisedTest : public SubjectTest {
 protected:
    QuantisedTest() : SubjectTest(Needs::attention) {}
};

namespace {

constexpr uint32_t I8 = QUIRE_DTYPE_I8, I4 = QUIRE_DTYPE_I4, E4M3 = QUIRE_DTYPE_F8_E4M3FN,
                   E5M2 = QUIRE_DTYPE_F8_E5M2;
constexpr uint32_t kTensor = QUIRE_SCALE_TENSOR, kHead = QUIRE_SCALE_HEAD,
                   kTokenHead = QUIRE_SCALE_TOKEN_HEAD;

// The spec of a seed over such a pool. If the backend does not offer it, one that is as random
// except for what a common shape fixes. False if that is not offered either.
bool find_spec(Rig &rig, Variant variant, uint64_t seed, const PoolTypes &types,
               AttentionSpec *spec) {
    *spec = random_variant(variant, seed);
    put_types(types, &spec->shape);
    if (is_offered(rig, spec->shape)) return true;
    for (const quire_be_attention_query &shape : common_shapes()) {
        *spec = random_variant(variant, seed, &shape);
        put_types(types, &spec->shape);
        if (is_offered(rig, spec->shape)) return true;
    }
    return false;
}

// Rows of many pages and several chunks, which random shapes seldom have, at head dims that kernels
// are made for; q of two types by turns.
constexpr uint64_t kLongRows = uint64_t{1} << 63;  // and above: seeds of such specs

bool find_long_rows(Rig &rig, uint64_t which, const PoolTypes &types, AttentionSpec *spec) {
    constexpr uint32_t kDims[] = {64, 128, 96};
    for (uint64_t turn : {which, which + 1}) {
        spec->shape = common_shapes().front();
        spec->shape.k_head_dim = spec->shape.v_head_dim = kDims[which % 3];
        spec->shape.q_dtype = turn % 2 == 0 ? QUIRE_DTYPE_BF16 : QUIRE_DTYPE_F16;
        put_types(types, &spec->shape);
        spec->seed = mix(types.k_dtype, types.k_scale_kind) + which;
        spec->q_size = 4.0;
        spec->rows = {{0, 1100, 1}, {1, 530, 3}, {2, 40, 20}};
        if (is_offered(rig, spec->shape)) return true;
    }
    return false;
}

// Causal, windowed and whole contexts, and long rows, with K and V of one type and kind of scales.
void expect_codes_agree(uint32_t dtype, uint32_t kind) {
    constexpr Variant kPlain[] = {Variant::causal, Variant::causal, Variant::window,
                                  Variant::not_causal};
    auto find = [&](Rig &rig, uint64_t seed, AttentionSpec *spec) {
        PoolTypes types = {dtype, dtype, kind, kind};
        if (seed >= kLongRows) return find_long_rows(rig, seed - kLongRows, types, spec);
        return find_spec(rig, kPlain[seed % 4], seed, types, spec);
    };
    std::vector<uint64_t> tried = seeds(mix(dtype, kind) >> 32, kShapes / 2, kFewShapes / 2);
    for (uint64_t i = 0; i < (options().is_short ? 1 : 3); ++i) tried.push_back(kLongRows + i);
    expect_random_shapes_agree(tried, find);
}

// Makes the first element of every query so large that the others are nothing beside it, and of
// every key 0: what is left of scores comes from the others.
void widen(AttentionCase &attention) {
    const OracleInput &input = attention.input();
    const quire_be_pool &pool = input.pool;
    auto query_bytes = size_t{pool.k_head_dim} * 2;
    auto token_bytes = static_cast<size_t>(input.q_token_stride) * 2;
    for (size_t token = 0; token < static_cast<size_t>(input.cu_q.back()); ++token) {
        for (size_t head = 0; head < input.shape.q_heads; ++head) {
            store(0x1p40, QUIRE_DTYPE_BF16,
                  &attention.query_bytes()[token * token_bytes + head * query_bytes]);
        }
    }
    for (uint32_t block = 0; block < pool.block_count; ++block) {
        unsigned char *layer = &attention.bytes()[static_cast<size_t>(
            block * pool.block_stride + input.layer * pool.layer_stride)];
        for (uint32_t head = 0; head < pool.kv_heads; ++head) {
            for (uint32_t i = 0; i < pool.block_tokens; ++i) {
                layer[head * pool.k_head_stride + i * pool.k_token_stride] = 0;
            }
        }
    }
}

// Plants a NaN at a place of the first row, for each KV head: as the first code of K or V, or as
// the row's scale, which a row with an infinity gets.
void put_nan(AttentionCase &attention, bool is_v, bool is_scale, int32_t place) {
    const OracleInput &input = attention.input();
    const quire_be_pool &pool = input.pool;
    auto block_tokens = static_cast<int32_t>(pool.block_tokens);
    int64_t block = input.block_table[static_cast<size_t>(place / block_tokens)];
    int64_t in_block = place % block_tokens;
    unsigned char *layer = &attention.bytes()[static_cast<size_t>(block * pool.block_stride +
                                                                  input.layer * pool.layer_stride)];
    for (uint32_t head = 0; head < pool.kv_heads; ++head) {
        unsigned char *k = layer + head * pool.k_head_stride + in_block * pool.k_token_stride;
        unsigned char *v =
            layer + pool.v_offset + head * pool.v_head_stride + in_block * pool.v_token_stride;
        if (is_scale) {
            int64_t plane = is_v ? pool.v_scale_offset : pool.k_scale_offset;
            std::memset(layer + plane + head * pool.scale_head_stride + in_block * 4, 0xFF, 4);
        } else {
            *(is_v ? v : k) = 0x7F;
        }
    }
}

// Makes each query 2 in its first element, and 0 in others; K 100 there from place `first` on, and
// 0 before; V 77 from there on, and before 1 with this scale. Other scales are 1.
void put_tall_keys(AttentionCase &attention, int32_t first, float scale_before) {
    const OracleInput &input = attention.input();
    const quire_be_pool &pool = input.pool;
    uint32_t type = input.shape.q_dtype;
    for (size_t i = 0; i < attention.query_bytes().size() / 2; ++i) {
        store(i % pool.k_head_dim == 0 ? 2.0 : 0.0, type, &attention.query_bytes()[i * 2]);
    }
    auto block_tokens = static_cast<int32_t>(pool.block_tokens);
    for (int32_t place = 0; place < input.lengths[0]; ++place) {
        int64_t block = input.block_table[static_cast<size_t>(place / block_tokens)];
        int64_t at = place % block_tokens;
        unsigned char *layer = &attention.bytes()[static_cast<size_t>(
            block * pool.block_stride + input.layer * pool.layer_stride)];
        bool is_tall = place >= first;
        for (uint32_t head = 0; head < pool.kv_heads; ++head) {
            unsigned char *k = layer + head * pool.k_head_stride + at * pool.k_token_stride;
            unsigned char *v =
                layer + pool.v_offset + head * pool.v_head_stride + at * pool.v_token_stride;
            std::memset(k, 0, pool.k_head_dim);
            std::memset(v, is_tall ? 77 : 1, pool.v_head_dim);
            k[0] = is_tall ? 100 : 0;
            unsigned char *scales = layer + head * pool.scale_head_stride + at * 4;
            float of_k = 1.0f, of_v = is_tall ? 1.0f : scale_before;
            std::memcpy(scales + pool.k_scale_offset, &of_k, 4);
            std::memcpy(scales + pool.v_scale_offset, &of_v, 4);
        }
    }
}

// Attention over values, and over the codes that kv_write makes of them.
class QuantisedPair {
 public:
    QuantisedPair(uint32_t dtype, uint32_t kind, const quire_be_attention_query &shape)
        : values_(spec_of(shape, {QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0})),
          codes_(spec_of(shape, {dtype, dtype, kind, kind})) {
        const quire_be_pool &pool = values_.input().pool;
        for (uint32_t row = 0; row < values_.input().lengths.size(); ++row) {
            int64_t length = values_.input().lengths[row];
            for (int64_t place = 0; place < length; ++place) take_token(row, place);
        }
        if (kind != kTokenHead) calibrate(dtype, kind, pool.kv_heads);
    }

    // Makes the codes, attends, and adds the differences to the sums.
    void run(Rig &rig) {
        write(rig);
        AttentionResult result = codes_.run(rig);
        OracleOutput exact = values_.exact();
        double error = 0.0, size = 0.0;
        for (size_t i = 0; i < exact.out.size(); ++i) {
            double value = load(&result.out[i * 4], QUIRE_DTYPE_F32);
            double difference = std::fabs(value - exact.out[i]);
            error += difference * difference;
            size += exact.out[i] * exact.out[i];
            largest_error = std::isnan(difference) ? HUGE_VAL : std::max(largest_error, difference);
        }
        nmse = error / size;
    }

    double nmse = 0.0;  // sum of squared errors / sum of squares
    double largest_error = 0.0;

 private:
    static AttentionSpec spec_of(const quire_be_attention_query &shape, const PoolTypes &types) {
        AttentionSpec spec;
        spec.shape = shape;
        spec.shape.q_dtype = QUIRE_DTYPE_F32;
        put_types(types, &spec.shape);
        spec.q_size = 4.0;
        spec.rows = {{0, 200, 1}, {1, 65, 65}, {2, 130, 7}};
        return spec;
    }

    void take_token(uint32_t row, int64_t place) {
        const OracleInput &in = values_.input();
        const quire_be_pool &pool = in.pool;
        int64_t block = in.block_table[size_t{row} * in.block_table_stride +
                                       static_cast<size_t>(place / pool.block_tokens)];
        slots_.push_back(block * pool.block_tokens + place % pool.block_tokens);
        auto layer = static_cast<size_t>(block * pool.block_stride + in.layer * pool.layer_stride);
        int64_t in_block = place % pool.block_tokens;
        for (uint32_t h = 0; h < pool.kv_heads; ++h) {
            // Another magnitude for each head and every second token, so that no
            // other row's scale fits.
            float size = std::exp2(-static_cast<float>(h % 2) - static_cast<float>(place % 2));
            int64_t k = h * pool.k_head_stride + in_block * pool.k_token_stride;
            int64_t v = pool.v_offset + h * pool.v_head_stride + in_block * pool.v_token_stride;
            take_row(layer + static_cast<size_t>(k), pool.k_head_dim, size, &k_);
            take_row(layer + static_cast<size_t>(v), pool.v_head_dim, size, &v_);
        }
    }
    // Multiplies the row by `size`, in the pool too.
    void take_row(size_t at, uint32_t dim, float size, std::vector<float> *to) {
        for (uint32_t d = 0; d < dim; ++d) {
            unsigned char *element = &values_.bytes()[at + d * sizeof(float)];
            auto value = size * static_cast<float>(load(element, QUIRE_DTYPE_F32));
            std::memcpy(element, &value, sizeof value);
            to->push_back(value);
        }
    }

    // Makes the largest magnitude that a static scale covers the largest code.
    void calibrate(uint32_t dtype, uint32_t kind, uint32_t heads) {
        OracleInput &in = codes_.planted();
        for (uint32_t side = 0; side < 2; ++side) {
            const std::vector<float> &all = side == 1 ? v_ : k_;
            uint32_t dim = side == 1 ? in.pool.v_head_dim : in.pool.k_head_dim;
            for (uint32_t h = 0; h < heads; ++h) {
                float largest = 0.0f;
                for (size_t i = 0; i < all.size(); ++i) {
                    bool counts = kind == kTensor || i / dim % heads == h;
                    if (counts) largest = std::max(largest, std::fabs(all[i]));
                }
                in.scales[(size_t{in.layer} * 2 + side) * heads + h] =
                    largest / static_cast<float>(largest_code_of(dtype));
            }
        }
    }

    void write(Rig &rig) {
        quire_be_pool pool = codes_.input().pool;
        const std::vector<float> &scales = codes_.input().scales;
        Memory bytes(rig, pool.size_bytes);
        Memory scale_memory(rig, scales.size() * sizeof(float));
        Memory k(rig, k_.size() * sizeof(float));
        Memory v(rig, v_.size() * sizeof(float));
        Memory slots(rig, slots_.size() * sizeof(int64_t));
        rig.write(bytes.address(), codes_.bytes().data(), pool.size_bytes);
        rig.write(scale_memory.address(), scales.data(), scales.size() * sizeof(float));
        rig.write(k.address(), k_.data(), k_.size() * sizeof(float));
        rig.write(v.address(), v_.data(), v_.size() * sizeof(float));
        rig.write(slots.address(), slots_.data(), slots_.size() * sizeof(int64_t));
        pool.address = bytes.address();
        pool.scales = scale_memory.address();
        quire_be_kv_write args{};
        args.struct_size = sizeof args;
        args.layer = codes_.input().layer;
        args.token_count = static_cast<uint32_t>(slots_.size());
        args.dtype = QUIRE_DTYPE_F32;
        args.pool = &pool;
        args.k = k.address();
        args.v = v.address();
        args.slots = slots.address();
        args.k_token_stride = int64_t{pool.kv_heads} * pool.k_head_dim;
        args.v_token_stride = int64_t{pool.kv_heads} * pool.v_head_dim;
        Error error;
        must(api().kv_write(rig.queue(), &args, &error), error);
        rig.sync();
        std::vector<unsigned char> written = rig.read(bytes.address(), pool.size_bytes);
        std::copy(written.begin(), written.end(), codes_.bytes().begin());
    }

    AttentionCase values_;
    AttentionCase codes_;
    std::vector<float> k_, v_;  // [tokens][kv_heads][dim]
    std::vector<int64_t> slots_;
};

// The share of a row's mean square lost to rounding, for values uniform in [-A, A) with A / M as
// the scale. An integer's mean square error is s^2 / 12, or 1 / (4 M^2) of A^2 / 3. A float with f
// fraction bits has 2^-2f / 12 of its power of two squared, and so half of that of its own square.
// Averages of V keep the share. Wrong scores, at |q| of 4, add as much again, and rows smaller than
// those that a static scale was made for add half as much. The bound is five shares; a scale of
// another head or token, off by a factor of 2, costs a quarter of the mean square and more.
void expect_small_errors(uint32_t dtype, double bound) {
    Rig rig;
    struct {
        uint32_t kind;
        const char *nmse;
        const char *largest;
    } const kinds[] = {
        {kTensor, "nmse_per_tensor", "largest_difference_per_tensor"},
        {kHead, "nmse_per_head", "largest_difference_per_head"},
        {kTokenHead, "nmse_per_token_and_head", "largest_difference_per_token_and_head"},
    };
    uint32_t run_count = 0;
    for (const auto &one : kinds) {
        quire_be_attention_query shape{};
        bool is_found = false;
        for (quire_be_attention_query common : common_shapes()) {
            common.q_dtype = QUIRE_DTYPE_F32;
            put_types({dtype, dtype, one.kind, one.kind}, &common);
            if (is_found || !is_offered(rig, common)) continue;
            shape = common;
            is_found = true;
        }
        if (!is_found) continue;
        ++run_count;
        QuantisedPair pair(dtype, one.kind, shape);
        pair.run(rig);
        EXPECT_LE(pair.nmse, bound) << one.nmse;
        EXPECT_GT(pair.nmse, bound / 50.0) << one.nmse << ": nothing was rounded";
        char text[32];
        std::snprintf(text, sizeof text, "%.3e", pair.nmse);
        testing::Test::RecordProperty(one.nmse, text);
        std::snprintf(text, sizeof text, "%.3e", pair.largest_error);
        testing::Test::RecordProperty(one.largest, text);
    }
    if (run_count == 0) GTEST_SKIP() << "the backend offers no common shape over such codes";
}

}  // namespace

TEST_F(QuantisedTest, random_shapes_over_int8_scaled_per_tensor_agree_with_the_oracle) {
    expect_codes_agree(I8, kTensor);
}

TEST_F(QuantisedTest, random_shapes_over_int8_scaled_per_head_agree_with_the_oracle) {
    expect_codes_agree(I8, kHead);
}

TEST_F(QuantisedTest, random_shapes_over_int8_scaled_per_token_and_head_agree_with_the_oracle) {
    expect_codes_agree(I8, kTokenHead);
}

TEST_F(QuantisedTest, random_shapes_over_int4_scaled_per_tensor_agree_with_the_oracle) {
    expect_codes_agree(I4, kTensor);
}

TEST_F(QuantisedTest, random_shapes_over_int4_scaled_per_head_agree_with_the_oracle) {
    expect_codes_agree(I4, kHead);
}

TEST_F(QuantisedTest, random_shapes_over_int4_scaled_per_token_and_head_agree_with_the_oracle) {
    expect_codes_agree(I4, kTokenHead);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e4m3_scaled_per_tensor_agree_with_the_oracle) {
    expect_codes_agree(E4M3, kTensor);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e4m3_scaled_per_head_agree_with_the_oracle) {
    expect_codes_agree(E4M3, kHead);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e4m3_scaled_per_token_and_head_agree_with_the_oracle) {
    expect_codes_agree(E4M3, kTokenHead);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e5m2_scaled_per_tensor_agree_with_the_oracle) {
    expect_codes_agree(E5M2, kTensor);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e5m2_scaled_per_head_agree_with_the_oracle) {
    expect_codes_agree(E5M2, kHead);
}

TEST_F(QuantisedTest, random_shapes_over_fp8_e5m2_scaled_per_token_and_head_agree_with_the_oracle) {
    expect_codes_agree(E5M2, kTokenHead);
}

TEST_F(QuantisedTest, random_shapes_over_codes_of_two_types_agree_with_the_oracle) {
    auto find = [](Rig &rig, uint64_t seed, AttentionSpec *spec) {
        return find_spec(rig, Variant::causal, seed, random_codes(seed), spec);
    };
    expect_random_shapes_agree(seeds(20'001, kShapes, kFewShapes), find);
}

TEST_F(QuantisedTest, random_shapes_over_codes_with_every_option_agree_with_the_oracle) {
    auto find = [](Rig &rig, uint64_t seed, AttentionSpec *spec) {
        Variant variant = kVariants[seed % std::size(kVariants)];
        return find_spec(rig, variant, seed, random_codes(seed), spec);
    };
    expect_random_shapes_agree(seeds(21'001, 2 * kShapes, 2 * kFewShapes), find);
}

// Over integers a backend may compute with digits of q, which end 2^-24 below its largest element.
TEST_F(QuantisedTest, queries_of_a_wide_range_over_fp8_agree_with_the_oracle) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : {E4M3, E5M2}) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        spec.shape.q_dtype = QUIRE_DTYPE_BF16;
        put_types({dtype, dtype, kTokenHead, kTokenHead}, &spec.shape);
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        spec.rows = {{0, 300, 1}, {1, 200, 3}};
        AttentionCase attention(spec);
        widen(attention);
        EXPECT_LE(attention.compare(attention.run(rig)), 1.0) << name_of(dtype);
    }
    if (run_count == 0) GTEST_SKIP() << "attention of bf16 over codes is not offered";
}

TEST_F(QuantisedTest, nan_code_reaches_the_queries_that_see_it_and_no_other) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : {E4M3, E5M2}) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        spec.shape.q_dtype = QUIRE_DTYPE_F16;
        put_types({dtype, dtype, kTokenHead, kTokenHead}, &spec.shape);
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        spec.rows = {{0, 300, 2}};  // the first token does not see place 299
        AttentionResult before = AttentionCase(spec).run(rig);
        for (uint32_t way = 0; way < 4; ++way) {
            bool is_v = way % 2 == 1, is_scale = way >= 2;
            AttentionCase attention(spec);
            put_nan(attention, is_v, is_scale, 299);
            AttentionResult after = attention.run(rig);
            EXPECT_TRUE(slice(after, spec, 0, 1) == slice(before, spec, 0, 1)) << name_of(dtype);
            AttentionResult of_second = slice(after, spec, 1, 1);
            for (size_t i = 0; i < of_second.out.size() / 2; ++i) {
                size_t d = i % spec.shape.v_head_dim;
                double value = load(&of_second.out[i * 2], spec.shape.q_dtype);
                EXPECT_EQ(std::isnan(value), !is_v || is_scale || d == 0)
                    << name_of(dtype) << ' ' << d;
            }
        }
    }
    if (run_count == 0) GTEST_SKIP() << "attention over codes with a NaN is not offered";
}

// The first 64 keys have V with huge scales, and next to no weight beside the later ones.
TEST_F(QuantisedTest, row_over_codes_forgets_values_that_lost_their_weight) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t q_dtype : {QUIRE_DTYPE_BF16, QUIRE_DTYPE_F16}) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        spec.shape.q_dtype = q_dtype;
        put_types({I8, I8, kTokenHead, kTokenHead}, &spec.shape);
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        spec.scale = 1.0f;
        spec.rows = {{0, 700, 1}};
        AttentionCase attention(spec);
        put_tall_keys(attention, 64, 1e12f);
        AttentionResult result = attention.run(rig);
        for (size_t i = 0; i < result.out.size() / 2; ++i) {
            EXPECT_EQ(load(&result.out[i * 2], q_dtype), 77.0) << name_of(q_dtype) << ' ' << i;
        }
    }
    if (run_count == 0) GTEST_SKIP() << "attention over int8 is not offered";
}

TEST_F(QuantisedTest, row_over_codes_gives_the_same_bits_alone_and_in_a_batch) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t dtype : kCodeTypes) {
        AttentionSpec spec;
        spec.shape = plain_shape(rig);
        spec.shape.flags |= QUIRE_ATTENTION_BATCH_INVARIANT;
        put_types({dtype, dtype, kTokenHead, kTokenHead}, &spec.shape);
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        spec.rows = {{0, 90, 1}, {1, 33, 33}, {2, 128, 5}};
        AttentionResult batch = AttentionCase(spec).run(rig);
        AttentionSpec alone = spec;
        alone.rows = {spec.rows[2]};
        EXPECT_TRUE(AttentionCase(alone).run(rig) == slice(batch, spec, 34, 5)) << name_of(dtype);
    }
    if (run_count == 0) GTEST_SKIP() << "no batch-invariant attention over codes is offered";
}

TEST_F(QuantisedTest, output_over_int8_agrees_with_that_over_the_values_given) {
    expect_small_errors(I8, 7.8e-5);
}

TEST_F(QuantisedTest, output_over_int4_agrees_with_that_over_the_values_given) {
    expect_small_errors(I4, 2.6e-2);
}

TEST_F(QuantisedTest, output_over_fp8_e4m3_agrees_with_that_over_the_values_given) {
    expect_small_errors(E4M3, 3.3e-3);
}

TEST_F(QuantisedTest, output_over_fp8_e5m2_agrees_with_that_over_the_values_given) {
    expect_small_errors(E5M2, 1.3e-2);
}

}  // namespace quire::conformance
