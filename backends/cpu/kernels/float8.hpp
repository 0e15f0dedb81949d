// SPDX-License-Identifier: Apache-2.0
//
// float8: the value of each code of the two 8-bit floats.
//
// OCP 8-bit Floating Point Specification (OFP8, 2023), sections 5.1 and 5.2: E4M3 has a bias of 7,
// no infinity, and one NaN per sign; E5M2 has a bias of 15 and IEEE's infinities and NaNs.
//
// Threads: any; the tables are constant.
#pragma once

#include <cstdint>

namespace quire::cpu {
namespace {

struct Float8Values {
    float value[256];
};

constexpr float float8_value(uint32_t code, uint32_t mantissa_bits, int bias, bool has_infinity) {
    uint32_t magnitude = code & 0x7Fu;
    uint32_t exponent = magnitude >> mantissa_bits;
    uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    uint32_t last = 0x7Fu >> mantissa_bits;
    float sign = (code & 0x80u) != 0 ? -1.0f : 1.0f;
    if (has_infinity && exponent == last) {
        return mantissa == 0 ? sign * __builtin_inff() : __builtin_nanf("");
    }
    if (!has_infinity && magnitude == 0x7Fu) return __builtin_nanf("");
    float value = static_cast<float>(mantissa) / static_cast<float>(1u << mantissa_bits);
    if (exponent != 0) value += 1.0f;
    int power = (exponent != 0 ? static_cast<int>(exponent) : 1) - bias;
    for (; power > 0; --power) value *= 2.0f;
    for (; power < 0; ++power) value *= 0.5f;
    return sign * value;
}

constexpr Float8Values float8_values(uint32_t mantissa_bits, int bias, bool has_infinity) {
    Float8Values values{};
    for (uint32_t code = 0; code < 256; ++code) {
        values.value[code] = float8_value(code, mantissa_bits, bias, has_infinity);
    }
    return values;
}

constexpr Float8Values kE4m3Values = float8_values(3, 7, false);
constexpr Float8Values kE5m2Values = float8_values(2, 15, true);

}  // namespace
}  // namespace quire::cpu
