// SPDX-License-Identifier: Apache-2.0

#include "kernels/element.hpp"

#include <bit>
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
    constexpr uint32_t kTooLarge = 0x47800000u;  // 65536: no rounding brings it back
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
        // The last bit of a float near 0.5 weighs 2^-24, as the last bit of an f16 subnormal does:
        // the addition rounds for us, and the sum's low bits are the result.
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

constexpr Element kElements[] = {
    {QUIRE_DTYPE_F32, 4, "f32", load_f32, store_f32},
    {QUIRE_DTYPE_F16, 2, "f16", load_half<f16_to_f32>, store_half<f32_to_f16>},
    {QUIRE_DTYPE_BF16, 2, "bf16", load_half<bf16_to_f32>, store_half<f32_to_bf16>},
};

}  // namespace

const char kElementNames[] = "f32, f16, bf16";

const Element *find_element(uint32_t dtype) {
    for (const Element &element : kElements) {
        if (element.dtype == dtype) return &element;
    }
    return nullptr;
}

}  // namespace quire::cpu
