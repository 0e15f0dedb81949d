// SPDX-License-Identifier: Apache-2.0

#include "kernels/element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "quire/base.h"

namespace quire::cpu {

namespace {

float f16_to_f32(uint16_t half) {
    constexpr float kRebias = 0x1p112f;  // 2^(127 - 15): from one exponent bias to the other
    uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFFu) << 13;
    // Exact for subnormals too: they are f32 subnormals here, and the product is normal.
    uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * kRebias);
    bool is_finite = magnitude < 0x0F800000u;
    return std::bit_cast<float>(sign | (is_finite ? finite : magnitude | 0x7F800000u));
}

uint16_t f32_to_f16(float value) {
    constexpr uint32_t kInfinity = 0x7F800000u;
    constexpr uint32_t kTooLarge = 0x47800000u;  // 65536: never rounds to a finite f16
    constexpr uint32_t kNormal = 0x38800000u;    // 2^-14, the smallest normal f16
    uint32_t bits = std::bit_cast<uint32_t>(value);
    auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    uint32_t half = 0;
    if (magnitude > kInfinity) {
        half = 0x7E00u | (magnitude >> 13 & 0x03FFu);
    } else if (magnitude >= kTooLarge) {
        half = 0x7C00u;
    } else if (magnitude < kNormal) {
        // The last bit of a float near 0.5 weighs 2^-24, like that of an f16 subnormal: the
        // addition rounds for us, and the sum's low bits are the result.
        float sum = std::bit_cast<float>(magnitude) + 0.5f;
        half = std::bit_cast<uint32_t>(sum) - 0x3F000000u;
    } else {
        uint32_t rebiased = magnitude - (112u << 23);
        uint32_t is_odd = rebiased >> 13 & 1u;
        half = (rebiased + 0xFFFu + is_odd) >> 13;
    }
    return static_cast<uint16_t>(sign | half);
}

float bf16_to_f32(uint16_t upper) {
    return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16);
}

uint16_t f32_to_bf16(float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
    uint32_t quiet = bits >> 16 | 0x40u;  // a payload only in the lower half would vanish
    return static_cast<uint16_t>(is_nan ? quiet : rounded);
}

void load_f32(const void *from, float *to, uint32_t count) {
    std::memcpy(to, from, count * sizeof(float));
}

void store_f32(const float *from, void *to, uint32_t count) {
    std::memcpy(to, from, count * sizeof(float));
}

template <float (*convert)(uint16_t)>
void load_half(const void *from, float *to, uint32_t count) {
    const auto *halves = static_cast<const uint16_t *>(from);
    for (uint32_t i = 0; i < count; ++i) to[i] = convert(halves[i]);
}

template <uint16_t (*convert)(float)>
void store_half(const float *from, void *to, uint32_t count) {
    auto *halves = static_cast<uint16_t *>(to);
    for (uint32_t i = 0; i < count; ++i) halves[i] = convert(from[i]);
}

// An 8-bit float: 1 sign bit, then exponent, then fraction.
struct E4m3 {
    static constexpr uint32_t kFractionBits = 3;
    static constexpr int kBias = 7;
    static constexpr uint8_t kLargest = 0x7E;  // 448
    static constexpr uint8_t kNan = 0x7F;      // the only one; there is no infinity
    static constexpr bool is_special(uint8_t magnitude) { return magnitude == 0x7F; }
};
struct E5m2 {
    static constexpr uint32_t kFractionBits = 2;
    static constexpr int kBias = 15;
    static constexpr uint8_t kLargest = 0x7B;  // 57344
    static constexpr uint8_t kNan = 0x7F;
    static constexpr bool is_special(uint8_t magnitude) { return magnitude >= 0x7C; }
};

template <typename Format>
float f8_to_f32(uint8_t code) {
    uint32_t sign = static_cast<uint32_t>(code & 0x80u) << 24;
    auto magnitude = static_cast<uint8_t>(code & 0x7Fu);
    if (Format::is_special(magnitude)) {
        uint32_t special = magnitude == 0x7C ? 0x7F800000u : 0x7FC00000u;
        return std::bit_cast<float>(sign | special);
    }
    // As in f16_to_f32(): an f32 with the same fields, its exponent then shifted by a product.
    constexpr float kRebias =
        std::bit_cast<float>(static_cast<uint32_t>(254 - Format::kBias) << 23);
    uint32_t fields = static_cast<uint32_t>(magnitude) << (23 - Format::kFractionBits);
    return std::bit_cast<float>(sign |
                                std::bit_cast<uint32_t>(std::bit_cast<float>(fields) * kRebias));
}

template <typename Format>
uint8_t f32_to_f8(float value) {
    constexpr uint32_t kDropped = 23 - Format::kFractionBits;
    constexpr uint32_t kNormal = static_cast<uint32_t>(127 + 1 - Format::kBias) << 23;
    uint32_t bits = std::bit_cast<uint32_t>(value);
    auto sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<uint8_t>(sign | Format::kNan);
    uint32_t code = 0;
    if (magnitude < kNormal) {
        // As in f32_to_f16(): next to a number whose last bit weighs as much as a subnormal's, the
        // addition rounds, and the sum's low bits are the code.
        constexpr uint32_t kBeside = kNormal + (kDropped << 23);
        float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kBeside);
        code = std::bit_cast<uint32_t>(sum) - kBeside;
    } else {
        constexpr uint32_t kRebias = static_cast<uint32_t>(127 - Format::kBias) << 23;
        uint32_t is_odd = magnitude >> kDropped & 1u;
        code = (magnitude - kRebias + (1u << (kDropped - 1)) - 1 + is_odd) >> kDropped;
    }
    return static_cast<uint8_t>(sign | std::min<uint32_t>(code, Format::kLargest));
}

float i8_to_f32(uint8_t code) { return static_cast<float>(static_cast<int8_t>(code)); }

// Rounds to an integer in [-most, most]; NaN becomes 0.
template <int most>
int32_t round_to_int(float value) {
    constexpr auto kMost = static_cast<float>(most);
    // The last bit of a float near 1.5 * 2^23 weighs 1: the addition rounds.
    constexpr float kBeside = 0x1.8p23f;
    float finite = std::isnan(value) ? 0.0f : value;
    float sum = std::min(std::max(finite, -kMost), kMost) + kBeside;
    return std::bit_cast<int32_t>(sum) - std::bit_cast<int32_t>(kBeside);
}

uint8_t f32_to_i8(float value) { return static_cast<uint8_t>(round_to_int<127>(value)); }

template <float (*convert)(uint8_t)>
void load_byte(const void *from, float *to, uint32_t count) {
    const auto *codes = static_cast<const uint8_t *>(from);
    for (uint32_t i = 0; i < count; ++i) to[i] = convert(codes[i]);
}

template <uint8_t (*convert)(float)>
void store_byte(const float *from, void *to, uint32_t count) {
    auto *codes = static_cast<uint8_t *>(to);
    for (uint32_t i = 0; i < count; ++i) codes[i] = convert(from[i]);
}

// Sign-extends the lower half of a byte.
float i4_to_f32(uint32_t half) {
    return static_cast<float>(static_cast<int>(half & 0xFu) - static_cast<int>((half & 8u) << 1));
}

void load_i4(const void *from, float *to, uint32_t count) {
    const auto *pairs = static_cast<const uint8_t *>(from);
    for (uint32_t i = 0; i < count / 2; ++i) {
        to[2 * i] = i4_to_f32(pairs[i]);
        to[2 * i + 1] = i4_to_f32(pairs[i] >> 4);
    }
}

void store_i4(const float *from, void *to, uint32_t count) {
    auto *pairs = static_cast<uint8_t *>(to);
    for (uint32_t i = 0; i < count / 2; ++i) {
        auto low = static_cast<uint32_t>(round_to_int<7>(from[2 * i])) & 0xFu;
        auto high = static_cast<uint32_t>(round_to_int<7>(from[2 * i + 1])) & 0xFu;
        pairs[i] = static_cast<uint8_t>(low | high << 4);
    }
}

constexpr Element kElements[] = {
    {type_of(QUIRE_DTYPE_F32), load_f32, store_f32},
    {type_of(QUIRE_DTYPE_F16), load_half<f16_to_f32>, store_half<f32_to_f16>},
    {type_of(QUIRE_DTYPE_BF16), load_half<bf16_to_f32>, store_half<f32_to_bf16>},
    {type_of(QUIRE_DTYPE_I8), load_byte<i8_to_f32>, store_byte<f32_to_i8>},
    {type_of(QUIRE_DTYPE_I4), load_i4, store_i4},
    {type_of(QUIRE_DTYPE_F8_E4M3FN), load_byte<f8_to_f32<E4m3>>, store_byte<f32_to_f8<E4m3>>},
    {type_of(QUIRE_DTYPE_F8_E5M2), load_byte<f8_to_f32<E5m2>>, store_byte<f32_to_f8<E5m2>>},
};

}  // namespace

const Element *find_element(uint32_t dtype) {
    for (const Element &element : kElements) {
        if (element.dtype == dtype) return &element;
    }
    return nullptr;
}

const Element *find_value(uint32_t dtype) {
    const Element *element = find_element(dtype);
    return element != nullptr && !element->holds_codes() ? element : nullptr;
}

}  // namespace quire::cpu
