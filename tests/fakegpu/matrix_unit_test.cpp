// SPDX-License-Identifier: Apache-2.0
//
// Each matrix unit rounds where its source says that it does. The sums are computed by hand.

#include "matrix_unit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fakegpu {

namespace {

// sum + the products of these f16 numbers, the first of row k = 0.
float multiplied(MatrixUnit unit, std::vector<float> a, std::vector<float> b, float sum = 0.0f) {
    Term left[16], right[16];
    a.resize(16);
    b.resize(16);
    for (uint32_t i = 0; i < 16; ++i) {
        auto bits = [](float value) {
            return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
        };
        left[i] = term_of(unit, false, bits(a[i]));
        right[i] = term_of(unit, false, bits(b[i]));
    }
    return multiply_row(unit, false, left, right, sum);
}

constexpr MatrixUnit kAll[] = {MatrixUnit::v100, MatrixUnit::a100, MatrixUnit::h100,
                               MatrixUnit::mi200, MatrixUnit::mi300};

TEST(MatrixUnit, exact_sums_are_exact_in_all) {
    for (MatrixUnit unit : kAll) {
        EXPECT_EQ(multiplied(unit, {1, 2, 3, 4, 5}, {6, -7, 8, 9, 0.5f}, 0.25f),
                  6 - 14 + 24 + 36 + 2.5f + 0.25f);
        EXPECT_EQ(multiplied(unit, {}, {}), 0.0f);
        EXPECT_EQ(multiplied(unit, {}, {}, -1.5f), -1.5f);
    }
}

// 1 and three times 3/4 of its last place: an addition to nearest would give 1 + 2^-23 and more.
TEST(MatrixUnit, bits_below_the_largest_are_cut_off) {
    float small = 0x1.8p-12f;
    std::vector<float> a = {small, small, small}, b = {0x1p-12f, 0x1p-12f, 0x1p-12f};
    // Each product is 1.5 * 2^-24. V100 has 23 bits, A100 24, H100 25 and MI300 24 bits and more.
    EXPECT_EQ(multiplied(MatrixUnit::v100, a, b, 1.0f), 1.0f);
    EXPECT_EQ(multiplied(MatrixUnit::a100, a, b, 1.0f), 0x1.000002p0f);   // 3 * 2^-24
    EXPECT_EQ(multiplied(MatrixUnit::h100, a, b, 1.0f), 0x1.000004p0f);   // 4.5 * 2^-24
    EXPECT_EQ(multiplied(MatrixUnit::mi300, a, b, 1.0f), 0x1.000004p0f);  // to nearest
    EXPECT_EQ(multiplied(MatrixUnit::mi200, a, b, 1.0f), 0x1.000004p0f);
    EXPECT_EQ(multiplied(MatrixUnit::h100, {-small, -small, -small}, b, -1.0f + 0x1p-24f),
              -1.0f - 0x1p-23f);  // 3.5 * 2^-24 more: cut off towards 0
}

// The blocks: the ninth product sees an accumulator that was already cut off.
TEST(MatrixUnit, a_block_ends_after_its_products) {
    std::vector<float> a(16, 0.0f), b(16, 1.0f);
    a[0] = 1.0f;
    for (uint32_t i = 8; i < 16; ++i) a[i] = 0x1p-14f;
    std::vector<float> small(b);
    for (uint32_t i = 8; i < 16; ++i) small[i] = 0x1p-11f;  // eight times 2^-25
    EXPECT_EQ(multiplied(MatrixUnit::v100, a, small), 1.0f);
    EXPECT_EQ(multiplied(MatrixUnit::a100, a, small), 1.0f);
    EXPECT_EQ(multiplied(MatrixUnit::h100, a, small), 0x1.000004p0f);
    EXPECT_EQ(multiplied(MatrixUnit::mi300, a, small), 1.0f + 0x1p-22f);
    EXPECT_EQ(multiplied(MatrixUnit::mi200, a, small), 1.0f + 0x1p-22f);  // two blocks of 2^-23
}

TEST(MatrixUnit, mi200_flushes_what_is_subnormal) {
    EXPECT_EQ(multiplied(MatrixUnit::mi200, {0x1p-15f}, {1.0f}), 0.0f);
    EXPECT_EQ(multiplied(MatrixUnit::mi200, {0x1p-14f}, {1.0f}), 0x1p-14f);
    for (MatrixUnit unit :
         {MatrixUnit::v100, MatrixUnit::a100, MatrixUnit::h100, MatrixUnit::mi300}) {
        EXPECT_EQ(multiplied(unit, {0x1p-24f}, {0x1p-24f}), 0x1p-48f);
        EXPECT_EQ(multiplied(unit, {}, {}, 0x1p-149f), 0x1p-149f);
    }
}

TEST(MatrixUnit, infinities_and_nan_stay) {
    for (MatrixUnit unit : kAll) {
        EXPECT_EQ(multiplied(unit, {INFINITY}, {2.0f}, 1.0f), INFINITY);
        EXPECT_EQ(multiplied(unit, {1.0f}, {2.0f}, -INFINITY), -INFINITY);
        EXPECT_TRUE(std::isnan(multiplied(unit, {INFINITY}, {0.0f})));
        EXPECT_TRUE(std::isnan(multiplied(unit, {INFINITY, -INFINITY}, {1.0f, 1.0f})));
        EXPECT_TRUE(std::isnan(multiplied(unit, {NAN}, {1.0f})));
    }
}

}  // namespace

}  // namespace fakegpu
