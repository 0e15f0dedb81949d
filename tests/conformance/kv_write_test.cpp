// SPDX-License-Identifier: Apache-2.0
//
// kv_write: the right slots, the right values, and no byte outside them.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "quire/cache.h"
#include "shapes.hpp"
#include "write_case.hpp"

namespace quire::conformance {

class KvWriteTest : public SubjectTest {
 protected:
    KvWriteTest() : SubjectTest(Needs::kv_write) {}
};

namespace {

quire_be_attention_query shape_of(uint32_t k_dtype, uint32_t v_dtype, uint32_t k_dim,
                                  uint32_t v_dim) {
    return write_shape({k_dtype, v_dtype, 0, 0}, k_dim, v_dim);
}

uint32_t bits_at(const std::vector<unsigned char> &bytes, int64_t at, uint32_t dtype) {
    uint32_t bits = 0;  // little endian, like every machine that this runs on
    std::memcpy(&bits, &bytes[static_cast<size_t>(at)], size_of(dtype));
    return bits;
}

// A NaN stays a NaN; everything else has exactly one right answer.
void expect_converted(uint32_t given, uint32_t from, uint32_t stored, uint32_t to) {
    double value = decode(given, from);
    if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(decode(stored, to))) << std::hex << given << " became " << stored;
        return;
    }
    ASSERT_EQ(stored, encode(value, to))
        << std::hex << given << " " << name_of(from) << " to " << name_of(to);
}

// The pool's expected bytes after the tokens were written into unwritten memory.
std::vector<unsigned char> expected_pool(const WriteSpec &spec, const quire_be_pool &pool,
                                         const std::vector<int64_t> &slots,
                                         const std::vector<uint32_t> &k_bits,
                                         const std::vector<uint32_t> &v_bits) {
    std::vector<unsigned char> expected(pool.size_bytes);
    for (uint64_t i = 0; i < expected.size(); ++i) expected[i] = Guarded::unwritten(i);
    auto put = [&](const std::vector<uint32_t> &bits, size_t row, uint32_t dim, uint32_t dtype,
                   int64_t at) {
        for (uint32_t d = 0; d < dim; ++d, at += size_of(dtype)) {
            store(decode(bits[row * dim + d], spec.dtype), dtype,
                  &expected[static_cast<size_t>(at)]);
        }
    };
    for (size_t t = 0; t < slots.size(); ++t) {
        if (slots[t] < 0) continue;
        for (uint32_t h = 0; h < pool.kv_heads; ++h) {
            size_t row = t * pool.kv_heads + h;
            put(k_bits, row, pool.k_head_dim, pool.k_dtype, offset_of(pool, slots[t], h, false));
            put(v_bits, row, pool.v_head_dim, pool.v_dtype, offset_of(pool, slots[t], h, true));
        }
    }
    return expected;
}

// Bit patterns where rounding is hard: around every value of `to` and halfway to the next.
std::vector<uint32_t> hard_values(uint32_t from, uint32_t to) {
    std::vector<uint32_t> bits;
    if (size_of(from) == 2) {
        for (uint32_t i = 0; i <= UINT16_MAX; ++i) bits.push_back(i);
        return bits;
    }
    for (uint32_t i = 0; i <= UINT16_MAX; i += options().is_short ? 13 : 1) {
        double value = decode(i, to);
        double next = decode(i + 1 <= UINT16_MAX ? i + 1 : i, to);
        if (!std::isfinite(value)) value = 1e9;
        if (!std::isfinite(next)) next = 65536.0;
        auto half = std::bit_cast<uint32_t>(static_cast<float>((value + next) / 2));
        for (uint32_t around : {half - 1, half, half + 1}) bits.push_back(around);
        bits.push_back(static_cast<uint32_t>(mix(i)));
    }
    for (uint32_t i : {0u, 1u, 0x7F800000u, 0x7F800001u, 0x7FC00000u, 0x7F7FFFFFu, 0x477FEFFFu,
                       0x477FF000u, 0x33000000u, 0x33000001u}) {
        bits.push_back(i);
        bits.push_back(i | 0x80000000u);
    }
    return bits;
}

constexpr uint32_t kDim = 128;

void expect_rounding(Rig &rig, WriteSpec spec) {
    uint32_t from = spec.dtype;
    uint32_t to = spec.shape.k_dtype;
    std::vector<uint32_t> bits = hard_values(from, to);
    bits.resize((bits.size() + 2 * kDim - 1) / (2 * kDim) * (2 * kDim));
    std::vector<int64_t> slots(bits.size() / (2 * kDim));
    for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int64_t>(i);
    spec.block_count = static_cast<uint32_t>(slots.size()) / 16 + 1;
    std::vector<uint32_t> reversed(bits.rbegin(), bits.rend());
    Written written = write_tokens(rig, spec, slots, bits, reversed);
    for (size_t i = 0; i < bits.size(); ++i) {
        auto slot = static_cast<int64_t>(i / (2 * kDim));
        auto head = static_cast<uint32_t>(i / kDim % 2);
        int64_t in_row = static_cast<int64_t>(i % kDim) * size_of(to);
        int64_t k = offset_of(written.pool, slot, head, false) + in_row;
        int64_t v = offset_of(written.pool, slot, head, true) + in_row;
        expect_converted(bits[i], from, bits_at(written.bytes, k, to), to);
        expect_converted(reversed[i], from, bits_at(written.bytes, v, to), to);
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace

TEST_F(KvWriteTest, every_value_is_rounded_to_the_nearest_even) {
    Rig rig;
    uint32_t run_count = 0;
    for (uint32_t from : kValueTypes) {
        for (uint32_t to : kValueTypes) {
            WriteSpec spec;
            spec.shape = shape_of(to, to, kDim, kDim);
            spec.dtype = from;
            if (!is_offered(rig, spec.shape)) continue;
            ++run_count;
            expect_rounding(rig, spec);
            if (HasFatalFailure()) return;
        }
    }
    EXPECT_GT(run_count, 0u) << "no pool of one type and head dim 128 may be written";
}

TEST_F(KvWriteTest, layers_beside_the_written_one_are_left_alone) {
    Rig rig;
    WriteSpec spec;
    spec.shape = plain_shape(rig);
    uint64_t values = uint64_t{spec.shape.kv_heads} * spec.shape.k_head_dim;
    std::vector<uint32_t> bits(values, 0x3F800000);
    Written written = write_tokens(rig, spec, {0}, bits, bits);
    auto expected = expected_pool(spec, written.pool, {0}, bits, bits);
    EXPECT_TRUE(written.bytes == expected);
}

TEST_F(KvWriteTest, nothing_to_write_writes_nothing) {
    Rig rig;
    WriteSpec spec;
    spec.shape = plain_shape(rig);
    uint64_t values = uint64_t{spec.shape.kv_heads} * spec.shape.k_head_dim;
    std::vector<uint32_t> bits(2 * values, 0x3F800000);
    Written written = write_tokens(rig, spec, {-1, INT64_MIN}, bits, bits);
    for (uint64_t i = 0; i < written.bytes.size(); ++i) {
        ASSERT_EQ(written.bytes[i], Guarded::unwritten(i)) << i;
    }
}

TEST_F(KvWriteTest, tokens_land_in_their_slots_and_nowhere_else) {
    Rig rig;
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Dice dice(seed);
        WriteSpec spec;
        spec.shape = shape_of(dice.pick(kValueTypes), dice.pick(kValueTypes), dice.roll(1, 80),
                              dice.roll(1, 80));
        spec.shape.block_tokens = dice.pick({1u, 4u, 16u, dice.roll(1, 64)});
        spec.shape.kv_heads = dice.roll(1, 4);
        if (!is_offered(rig, spec.shape)) {
            uint32_t kv_heads = spec.shape.kv_heads;
            spec.shape = plain_shape(rig);
            spec.shape.kv_heads = kv_heads;
            spec.shape.q_heads = spec.shape.q_dtype = 0;
        }
        spec.dtype = dice.pick(kValueTypes);
        spec.layout = dice.roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
        spec.padding = dice.pick({0u, 1u, 3u});
        std::vector<int64_t> slots;
        for (uint32_t s = 0; s < spec.block_count * spec.shape.block_tokens; ++s) {
            if (dice.roll(0, 2) == 0) slots.push_back(s);
            if (dice.roll(0, 9) == 0) slots.push_back(-1 - static_cast<int64_t>(s));
        }
        slots.push_back(INT64_MIN);
        for (size_t i = slots.size() - 1; i > 0; --i) {
            std::swap(slots[i], slots[mix(seed, i) % (i + 1)]);
        }
        std::vector<uint32_t> k_bits;
        std::vector<uint32_t> v_bits;
        for (size_t i = 0; i < slots.size() * spec.shape.kv_heads; ++i) {
            for (uint32_t d = 0; d < spec.shape.k_head_dim; ++d) {
                k_bits.push_back(encode(chance(seed, i, d, 1), spec.dtype));
            }
            for (uint32_t d = 0; d < spec.shape.v_head_dim; ++d) {
                v_bits.push_back(encode(chance(seed, i, d, 2), spec.dtype));
            }
        }
        Written written = write_tokens(rig, spec, slots, k_bits, v_bits);
        auto expected = expected_pool(spec, written.pool, slots, k_bits, v_bits);
        ASSERT_TRUE(written.bytes == expected) << "seed " << seed;
    }
}

TEST_F(KvWriteTest, latent_token_is_the_latent_and_behind_it_the_rotated_part) {
    Rig rig;
    uint32_t run_count = 0;
    for (auto [k_dim, v_dim] : {std::pair{576u, 512u}, {24u, 17u}, {32u, 32u}}) {
        WriteSpec spec;
        spec.shape = shape_of(QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, k_dim, v_dim);
        spec.shape.kv_heads = 1;
        spec.shape.group_kind = QUIRE_GROUP_LATENT;
        if (!is_offered(rig, spec.shape)) continue;
        ++run_count;
        std::vector<uint32_t> latent, rotated, row;
        std::vector<int64_t> slots = {3, -1, 40, 17};
        for (uint32_t t = 0; t < slots.size(); ++t) {
            for (uint32_t d = 0; d < k_dim; ++d) {
                row.push_back(encode(chance(t, d, 21), spec.dtype));
                (d < v_dim ? latent : rotated).push_back(row.back());
            }
        }
        Written written = write_tokens(rig, spec, slots, latent, rotated);
        // V lies at the beginning of K.
        EXPECT_TRUE(written.bytes == expected_pool(spec, written.pool, slots, row, latent))
            << k_dim;
    }
    if (run_count == 0) GTEST_SKIP() << "no latent pool is offered";
}

TEST_F(KvWriteTest, nan_of_the_pools_own_type_is_kept_bit_for_bit) {
    Rig rig;
    WriteSpec spec;
    spec.shape = shape_of(QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 64, 64);
    if (!is_offered(rig, spec.shape)) GTEST_SKIP() << "no f16 pool of head dim 64 is offered";
    spec.dtype = QUIRE_DTYPE_F16;
    const uint32_t hard[] = {0x7C01, 0xFE77, 0x7FFF, 0xFC00};
    std::vector<uint32_t> bits(2 * 64);
    for (uint32_t i = 0; i < bits.size(); ++i) bits[i] = hard[i % 4];
    Written written = write_tokens(rig, spec, {5}, bits, bits);
    for (uint32_t i = 0; i < bits.size(); ++i) {
        int64_t at = offset_of(written.pool, 5, i / 64, false) + i % 64 * 2;
        EXPECT_EQ(bits_at(written.bytes, at, QUIRE_DTYPE_F16), bits[i]) << i;
    }
}

}  // namespace quire::conformance
