// SPDX-License-Identifier: Apache-2.0
//
// number: the 16-bit floating-point types that queries may travel in, as bits, and f32.
//
// Why by hand: not every C++20 compiler has these types. To 16 bits a number is rounded to nearest,
// ties to even, or to infinity if it is too large; a NaN stays a NaN. To f32 it is exact.
//
// Threads: any; pure functions.

#pragma once

#include <bit>
#include <cstdint>

namespace engine {

inline uint16_t f16_of(float value) {
    constexpr uint32_t kInfinity = 0x7F800000;
    constexpr uint32_t kTooLarge = 0x477FF000;     // 65,520: halfway from the largest f16 to 2^16
    constexpr uint32_t kLeastNormal = 0x38800000;  // 2^-14
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000U;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    uint32_t half = 0;
    if (magnitude > kInfinity) {
        half = 0x7E00;
    } else if (magnitude >= kTooLarge) {
        half = 0x7C00;
    } else if (magnitude < kLeastNormal) {
        // The sum's last bit is worth 2^-24, as that of a subnormal f16, so the addition rounds.
        const float sum = std::bit_cast<float>(magnitude) + 0.5F;
        half = std::bit_cast<uint32_t>(sum) - std::bit_cast<uint32_t>(0.5F);
    } else {
        const uint32_t odd = magnitude >> 13 & 1U;
        half = (magnitude + 0xFFF + odd - (112U << 23)) >> 13;  // the biases 127 and 15 differ
    }
    return static_cast<uint16_t>(sign | half);
}

inline float float_of_f16(uint16_t half) {
    const uint32_t magnitude = half & 0x7FFFU;
    float value = 0.0F;
    if (magnitude >= 0x7C00) {
        value = std::bit_cast<float>(0x7F800000U | magnitude << 13);
    } else if (magnitude < 0x400) {
        value = static_cast<float>(magnitude) * 0x1p-24F;
    } else {
        value = std::bit_cast<float>((magnitude << 13) + (112U << 23));
    }
    return (half & 0x8000U) != 0 ? -value : value;
}

inline uint16_t bf16_of(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    if (value != value) {
        return static_cast<uint16_t>(bits >> 16 | 0x40U);
    }
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1U)) >> 16);
}

inline float float_of_bf16(uint16_t half) { return std::bit_cast<float>(uint32_t{half} << 16); }

}  // namespace engine
