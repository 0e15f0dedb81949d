// SPDX-License-Identifier: Apache-2.0
//
// activation and number: a device gets the model's numbers, rounded to nearest, and zeros after
// them.

#include "activation.hpp"
#include "number.hpp"

#include <gtest/gtest.h>
#include <cmath>
#include <limits>

namespace engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

using ToHalf = uint16_t (*)(float);
using ToFloat = float (*)(uint16_t);

// Of neighbouring finite numbers, the nearer one is taken, and halfway the one whose bits are even.
void expect_rounding_to_nearest(ToHalf to_half, ToFloat to_float, uint16_t infinity) {
    for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = to_float(half);
        if ((half & 0x7FFFU) > infinity) {
            EXPECT_TRUE(std::isnan(value) && std::isnan(to_float(to_half(value)))) << bits;
            continue;
        }
        ASSERT_EQ(to_half(value), half) << bits;
        if ((half & 0x7FFFU) >= infinity - 1U) {
            continue;
        }
        const auto next = static_cast<uint16_t>(half + 1);
        const float middle = value / 2 + to_float(next) / 2;
        EXPECT_EQ(to_half(middle), half % 2 == 0 ? half : next) << bits;
        EXPECT_EQ(to_half(std::nextafter(middle, value)), half) << bits;
        EXPECT_EQ(to_half(std::nextafter(middle, to_float(next))), next) << bits;
    }
}

TEST(Number, f16_is_the_nearest_or_infinity) {
    expect_rounding_to_nearest(f16_of, float_of_f16, 0x7C00);
    EXPECT_EQ(float_of_f16(0x3555), 0x1.554p-2F);  // IEEE 754's example, about a third
    EXPECT_EQ(float_of_f16(f16_of(65519.0F)), 65504.0F);
    EXPECT_EQ(float_of_f16(f16_of(65520.0F)), kInfinity);
    EXPECT_EQ(float_of_f16(f16_of(-kInfinity)), -kInfinity);
}

TEST(Number, bf16_is_the_nearest_or_infinity) {
    expect_rounding_to_nearest(bf16_of, float_of_bf16, 0x7F80);
    EXPECT_EQ(float_of_bf16(0x4049), 3.140625F);
    EXPECT_EQ(float_of_bf16(bf16_of(std::numeric_limits<float>::max())), kInfinity);
}

Owned<quire_memory> no_memory() { return {nullptr, {nullptr}}; }

TEST(Activation, longer_heads_end_with_zeros) {
    std::vector<uint16_t> device(12, 0xFFFF);  // three heads of 2, padded to 4
    const Activation activation(no_memory(), 64, device.data(), {QUIRE_DTYPE_F16, 2, 4}, 3);
    ASSERT_EQ(activation.numbers().size(), 6U);
    for (size_t i = 0; i < 6; ++i) {
        activation.numbers()[i] = static_cast<float>(i + 1);
    }
    activation.pack(2);
    EXPECT_EQ(device,
              (std::vector<uint16_t>{0x3C00, 0x4000, 0, 0, 0x4200, 0x4400, 0, 0, 0, 0, 0, 0}));
    device[1] = 0x4500;
    device[2] = 0x4600;  // a result's padding is not read
    activation.unpack(1);
    EXPECT_EQ(activation.numbers()[1], 5.0F);
    EXPECT_EQ(activation.numbers()[2], 3.0F);
}

TEST(Activation, of_the_models_own_form_is_not_copied) {
    std::vector<float> device(8);
    const Activation activation(no_memory(), 64, device.data(), {QUIRE_DTYPE_F32, 4, 4}, 2);
    EXPECT_EQ(activation.numbers().data(), device.data());
    activation.numbers()[5] = 1.5F;
    activation.pack(2);
    activation.unpack(2);
    EXPECT_EQ(device[5], 1.5F);
}

}  // namespace
}  // namespace engine
