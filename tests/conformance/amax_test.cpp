// SPDX-License-Identifier: Apache-2.0
//
// kv_write into pools with an amax: the largest magnitudes of the written values are exact to the
// bit, and the pool's bytes are the same as without an amax.
//
// A NaN may have any bits; the tests compare only whether a value is one.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "quire/cache.h"
#include "shapes.hpp"
#include "write_case.hpp"

namespace quire::conformance {

class AmaxTest : public SubjectTest {
 protected:
    AmaxTest() : SubjectTest(Needs::kv_write) {}
};

namespace {

using Numbers = std::vector<float>;

constexpr uint32_t kLayers = 3;  // of write_tokens()

bool is_measured(Rig &rig, quire_be_attention_query shape) {
    shape.flags |= QUIRE_BE_ATTENTION_AMAX;
    return is_offered(rig, shape);
}

// The larger magnitude: an infinity exceeds all numbers, and a NaN exceeds an infinity.
float larger(float magnitude, float value) {
    if (std::isnan(magnitude) || std::isnan(value)) return NAN;
    return std::fmax(magnitude, std::fabs(value));
}

Numbers before(const WriteSpec &spec, uint64_t seed) {
    Numbers numbers;
    for (uint32_t i = 0; i < kLayers * 2 * spec.shape.kv_heads; ++i) {
        // Some exceed everything that is written; most do not.
        numbers.push_back(static_cast<float>(std::exp2(4.0 * chance(seed, i, 41)) - 1.0 / 16));
    }
    return numbers;
}

// Values as bits of spec.dtype, and the numbers they stand for.
struct Given {
    std::vector<uint32_t> bits;
    Numbers values;
};

Given draw(const WriteSpec &spec, uint64_t count, uint64_t seed) {
    Given out;
    for (uint64_t i = 0; i < count; ++i) {
        uint32_t bits = encode(8.0 * chance(seed, i, 42), spec.dtype);
        out.bits.push_back(bits);
        out.values.push_back(static_cast<float>(decode(bits, spec.dtype)));
    }
    return out;
}

// Raises one side's numbers by rows [slots][kv_heads][dim], except rows skipped or in block 0.
void raise(Numbers *numbers, const WriteSpec &spec, const std::vector<int64_t> &slots,
           const Numbers &values, uint32_t side, uint32_t dim) {
    uint64_t heads = spec.shape.kv_heads;
    for (uint64_t i = 0; i < values.size(); ++i) {
        if (slots[i / dim / heads] < spec.shape.block_tokens) continue;
        float &number = (*numbers)[(kWrittenLayer * 2 + side) * heads + i / dim % heads];
        number = larger(number, values[i]);
    }
}

void expect_same(const Numbers &got, const Numbers &expected, const std::string &what) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
            << what << ": number " << i << " is " << got[i] << " instead of " << expected[i];
    }
}

// Random rows at random slots, with and without an amax.
void expect_random_measures(Rig &rig, const PoolTypes &types, uint64_t seed, uint32_t *run_count) {
    Dice dice(seed);
    WriteSpec spec;
    spec.shape = write_shape(types, dice.roll(1, 40) * 2, dice.roll(1, 40) * 2);
    spec.shape.kv_heads = dice.roll(1, 4);
    if (!is_measured(rig, spec.shape)) {
        spec.shape = write_shape(types, 64, 64);
        if (!is_measured(rig, spec.shape)) return;
    }
    ++*run_count;
    spec.dtype = dice.pick(kValueTypes);
    spec.layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice.pick({0u, 1u, 3u});
    spec.scales.assign(size_t{2} * spec.shape.kv_heads, 0.25f);
    std::vector<int64_t> slots;
    for (int64_t s = 0; s < 40; ++s) slots.push_back(dice.roll(0, 3) == 0 ? -1 - s : 3 * s);
    uint64_t rows = slots.size() * spec.shape.kv_heads;
    Given k = draw(spec, rows * spec.shape.k_head_dim, seed);
    Given v = draw(spec, rows * spec.shape.v_head_dim, seed + 1000);
    Written plain = write_tokens(rig, spec, slots, k.bits, v.bits);
    spec.amax = before(spec, seed);
    Numbers expected = spec.amax;
    raise(&expected, spec, slots, k.values, 0, spec.shape.k_head_dim);
    raise(&expected, spec, slots, v.values, 1, spec.shape.v_head_dim);
    Written measured = write_tokens(rig, spec, slots, k.bits, v.bits);
    expect_same(measured.amax, expected,
                std::string(name_of(types.k_dtype)) + ", seed " + std::to_string(seed));
    EXPECT_TRUE(measured.bytes == plain.bytes) << "the pool differs from the one without an amax";
}

// Rows of f32 for each slot and head.
Written write_row(Rig &rig, WriteSpec spec, const Numbers &k, const Numbers &v,
                  const std::vector<int64_t> &slots = {21}) {
    auto bits = [](const Numbers &values) {
        std::vector<uint32_t> out;
        for (float value : values) out.push_back(std::bit_cast<uint32_t>(value));
        return out;
    };
    return write_tokens(rig, spec, slots, bits(k), bits(v));
}

}  // namespace

TEST_F(AmaxTest, random_writes_raise_the_largest_magnitudes_and_change_nothing_else) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint64_t seed : seeds(1, 60, 10)) {
        for (uint32_t dtype : kValueTypes) {
            expect_random_measures(rig, {dtype, dtype, 0, 0}, seed, &run_count);
            if (HasFatalFailure()) return;
        }
        expect_random_measures(rig, random_codes(seed), seed, &run_count);
        if (HasFatalFailure()) return;
    }
    if (run_count == 0) GTEST_SKIP() << "no pool with an amax is offered";
}

TEST_F(AmaxTest, infinity_is_above_all_numbers_and_a_nan_above_it) {
    Rig rig;
    WriteSpec spec;
    spec.shape = write_shape({QUIRE_DTYPE_F16, QUIRE_DTYPE_F32, 0, 0}, 8, 8);
    if (!is_measured(rig, spec.shape)) GTEST_SKIP() << "no pool with an amax is offered";
    const float nan = std::bit_cast<float>(0xFFC12345u), most = 3e38f;
    for (auto [held, given, kept] : {std::array{1.0f, -most, most},
                                     {most, -INFINITY, INFINITY},
                                     {INFINITY, most, INFINITY},
                                     {1.0f, nan, nan},
                                     {INFINITY, nan, nan},
                                     {nan, INFINITY, nan},
                                     {nan, 1.0f, nan},
                                     {0.0f, -0.0f, 0.0f},
                                     {0.0f, -0x1p-149f, 0x1p-149f}}) {
        spec.amax.assign(size_t{kLayers} * 2 * 2, held);
        Numbers rows(16, 0.0f);
        rows[11] = given;  // of the second head
        Written written = write_row(rig, spec, rows, rows);
        Numbers expected = spec.amax;
        expected[kWrittenLayer * 4 + 1] = expected[kWrittenLayer * 4 + 3] = kept;
        expect_same(written.amax, expected, std::to_string(held) + " and " + std::to_string(given));
    }
}

// An engine may pad with slot 0, and the values that it pads with are arbitrary.
TEST_F(AmaxTest, row_of_the_null_block_is_written_and_not_measured) {
    Rig rig;
    WriteSpec spec;
    spec.shape = write_shape({QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0}, 8, 8);
    if (!is_measured(rig, spec.shape)) GTEST_SKIP() << "no pool with an amax is offered";
    spec.amax.assign(size_t{kLayers} * 2 * 2, 0.5f);
    const std::vector<int64_t> slots = {16, 15, 0, -1};
    for (float padding : {1e30f, NAN}) {
        Numbers rows;
        for (float value : {2.0f, padding, padding, padding}) rows.resize(rows.size() + 16, value);
        Written written = write_row(rig, spec, rows, rows, slots);
        Numbers expected = spec.amax;
        std::fill_n(expected.begin() + kWrittenLayer * 4, 4, 2.0f);
        expect_same(written.amax, expected, "padded with " + std::to_string(padding));
        float kept = 0.0f;
        std::memcpy(&kept, &written.bytes[offset_of(written.pool, 0, 1, false)], sizeof kept);
        EXPECT_EQ(std::bit_cast<uint32_t>(kept), std::bit_cast<uint32_t>(padding));
    }
}

TEST_F(AmaxTest, latent_row_is_measured_whole) {
    Rig rig;
    WriteSpec spec;
    spec.shape = write_shape({QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0}, 24, 16);
    spec.shape.kv_heads = 1;
    spec.shape.group_kind = QUIRE_GROUP_LATENT;
    if (!is_measured(rig, spec.shape)) GTEST_SKIP() << "no latent pool with an amax is offered";
    for (bool is_behind : {false, true}) {
        spec.amax.assign(size_t{kLayers} * 2, 0.5f);
        Numbers latent(16, 0.25f), rotated(8, 0.25f);
        (is_behind ? rotated : latent)[7] = -9.0f;
        Written written = write_row(rig, spec, latent, rotated);
        expect_same(written.amax, {0.5f, 0.5f, 9.0f, 0.5f, 0.5f, 0.5f}, "latent");
    }
}

// An eighth of a turn maps (3, 3) to (0, 3 √2).
TEST_F(AmaxTest, key_is_measured_after_its_rope) {
    if (api().plan_create == nullptr) GTEST_SKIP() << "plan_create is NULL";
    Rig rig;
    WriteSpec spec;
    spec.shape = write_shape({QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0}, 64, 64);
    quire_be_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.shape = spec.shape;
    desc.shape.q_heads = 2;
    desc.shape.q_dtype = QUIRE_DTYPE_F32;
    desc.shape.flags = QUIRE_BE_ATTENTION_ROPE;
    desc.shape.rotated_dim = 2;
    desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 1;
    float frequency = 0.78539816f;
    quire_be_rope rope = {sizeof rope, 1.0f, &frequency};
    desc.rope = &rope;
    if (!is_measured(rig, spec.shape) || !is_offered(rig, desc.shape)) {
        GTEST_SKIP() << "no pool with an amax, or no rope, is offered";
    }
    Error error;
    must(api().plan_create(rig.device(), &desc, &spec.plan, &error), error);
    Numbers rows(128, 0.25f);
    for (size_t first : {0u, 64u}) rows[first] = rows[first + 1] = 3.0f;
    spec.amax.assign(size_t{kLayers} * 2 * 2, 0.0f);
    spec.positions = {1};
    Written written = write_row(rig, spec, rows, rows);
    api().plan_destroy(spec.plan);
    for (uint32_t head : {0u, 1u}) {
        EXPECT_NEAR(written.amax[kWrittenLayer * 4 + head], 3.0 * std::sqrt(2.0), 1e-5) << "K";
        EXPECT_EQ(written.amax[kWrittenLayer * 4 + 2 + head], 3.0f) << "V is not turned";
    }
}

TEST_F(AmaxTest, address_between_two_numbers_is_refused) {
    Rig rig;
    WriteSpec spec;
    spec.shape = write_shape({QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0}, 8, 8);
    if (!is_measured(rig, spec.shape)) GTEST_SKIP() << "no pool with an amax is offered";
    quire_be_pool pool = make_pool(spec.shape, Layout::head_major, 1, 2, 0);
    Memory memory(rig, pool.size_bytes + 4096);
    pool.address = memory.address();
    pool.amax = memory.address() + pool.size_bytes / 4 * 4 + 2;
    quire_be_kv_write args{};
    args.struct_size = sizeof args;
    args.dtype = QUIRE_DTYPE_F32;
    args.token_count = 1;
    args.pool = &pool;
    args.k = args.v = args.slots = memory.address();
    args.k_token_stride = args.v_token_stride = 16;
    Error error;
    EXPECT_EQ(api().kv_write(rig.queue(), &args, &error), QUIRE_E_ARG);
    EXPECT_NE(error.message[0], '\0');
}

}  // namespace quire::conformance
