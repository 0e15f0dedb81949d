// SPDX-License-Identifier: Apache-2.0
//
// lanes_plain: lanes.hpp in vectors of 128 bits, which every 64-bit processor has: SSE2, NEON.
//
// Uses the compiler's own vector types. Only what they cannot express differs: one instruction for
// a * b + c, and f16, which NEON converts and SSE2 does not.
//
// Threads: any; nothing is kept.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/float8.hpp"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));

struct Lanes {
    Four part[4];
};
using LaneMask = uint16_t;

constexpr float kE4m3Factor = 1.0f;

#if defined(__ARM_NEON)
constexpr uint32_t kAccumulators = 4;  // of 32 registers, four each
#else
constexpr uint32_t kAccumulators = 2;  // of 16 registers, four each
#endif

template <typename Body>
inline Lanes each(Body body) {
    return {{body(0), body(1), body(2), body(3)}};
}

inline Lanes all(float value) {
    return each([&](uint32_t) { return Four{value, value, value, value}; });
}
inline Lanes load(const float *from) {
    Lanes a;
    std::memcpy(&a, from, sizeof a);
    return a;
}
inline void store(float *to, Lanes a) { std::memcpy(to, &a, sizeof a); }
inline Lanes add(Lanes a, Lanes b) {
    return each([&](uint32_t i) { return a.part[i] + b.part[i]; });
}
inline Lanes sub(Lanes a, Lanes b) {
    return each([&](uint32_t i) { return a.part[i] - b.part[i]; });
}
inline Lanes mul(Lanes a, Lanes b) {
    return each([&](uint32_t i) { return a.part[i] * b.part[i]; });
}
inline Lanes div(Lanes a, Lanes b) {
    return each([&](uint32_t i) { return a.part[i] / b.part[i]; });
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
#if defined(__ARM_NEON)
    return each([&](uint32_t i) { return Four(vfmaq_f32(c.part[i], a.part[i], b.part[i])); });
#else
    return each([&](uint32_t i) { return a.part[i] * b.part[i] + c.part[i]; });
#endif
}
inline Lanes larger(Lanes a, Lanes b) {
    return each([&](uint32_t i) { return a.part[i] > b.part[i] ? a.part[i] : b.part[i]; });
}
inline Lanes select(LaneMask mask, Lanes a, Lanes b) {
    const FourInts bits = {1, 2, 4, 8};
    return each([&](uint32_t i) {
        int32_t four = mask >> (4 * i) & 15;
        FourInts chosen = (FourInts{four, four, four, four} & bits) != 0;
        return chosen ? a.part[i] : b.part[i];
    });
}
inline LaneMask below(Lanes a, Lanes b) {
    uint32_t mask = 0;
    for (uint32_t i = 0; i < 16; ++i) {
        mask |= static_cast<uint32_t>(a.part[i / 4][i % 4] < b.part[i / 4][i % 4]) << i;
    }
    return static_cast<LaneMask>(mask);
}
// Rounds to nearest even: a sum with 1.5 * 2^23 has no fraction. REQUIRES: |a| < 2^22.
inline Lanes rounded(Lanes a) {
    const Lanes large = all(0x1.8p23f);
    return sub(add(a, large), large);
}
inline Lanes times_power_of_two(Lanes a, Lanes n) {
    Lanes product = each([&](uint32_t i) {
        FourInts exponent = __builtin_convertvector(n.part[i], FourInts) + 127;
        return a.part[i] * std::bit_cast<Four>(exponent << 23);
    });
    return select(below(n, all(-126.0f)), all(0.0f), product);
}

inline float sum(Lanes a) {
    Four four = (a.part[0] + a.part[2]) + (a.part[1] + a.part[3]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
inline float top(Lanes a) {
    float most = a.part[0][0];
    for (uint32_t i = 1; i < 16; ++i) {
        float one = a.part[i / 4][i % 4];
        most = one > most ? one : most;
    }
    return most;
}
template <size_t kCount>
inline void sums(const Lanes (&a)[kCount], float (&to)[kCount]) {
    for (size_t i = 0; i < kCount; ++i) to[i] = sum(a[i]);
}

// a[i][j] becomes a[j][i].
inline void transpose(Lanes (&a)[16]) {
    float rows[16][16];
    float columns[16][16];
    for (uint32_t i = 0; i < 16; ++i) store(rows[i], a[i]);
    for (uint32_t i = 0; i < 16; ++i) {
        for (uint32_t j = 0; j < 16; ++j) columns[j][i] = rows[i][j];
    }
    for (uint32_t i = 0; i < 16; ++i) a[i] = load(columns[i]);
}

#if defined(__ARM_NEON)
inline Lanes load_f16(const std::byte *from) {
    return each([&](uint32_t i) {
        float16x4_t halves;
        std::memcpy(&halves, from + 8 * i, sizeof halves);
        return Four(vcvt_f32_f16(halves));
    });
}
#else
// As f16_to_f32 in element.cpp, four at a time.
inline Four widen_f16(FourInts halves) {
    FourInts sign = (halves & 0x8000) << 16;
    FourInts magnitude = (halves & 0x7FFF) << 13;
    Four finite = std::bit_cast<Four>(magnitude) * 0x1p112f;
    FourInts is_finite = magnitude < 0x0F800000;
    FourInts bits = is_finite ? std::bit_cast<FourInts>(finite) : magnitude | 0x7F800000;
    return std::bit_cast<Four>(sign | bits);
}
inline Lanes load_f16(const std::byte *from) {
    uint16_t halves[16];
    std::memcpy(halves, from, sizeof halves);
    return each([&](uint32_t i) {
        const uint16_t *h = halves + 4 * i;
        return widen_f16(FourInts{h[0], h[1], h[2], h[3]});
    });
}
#endif
inline Lanes load_bf16(const std::byte *from) {
    uint16_t halves[16];
    std::memcpy(halves, from, sizeof halves);
    return each([&](uint32_t i) {
        const uint16_t *h = halves + 4 * i;
        return std::bit_cast<Four>(FourInts{h[0], h[1], h[2], h[3]} << 16);
    });
}
inline Lanes load_i8(const std::byte *from) {
    int8_t codes[16];
    std::memcpy(codes, from, sizeof codes);
    return each([&](uint32_t i) {
        const int8_t *c = codes + 4 * i;
        return __builtin_convertvector((FourInts{c[0], c[1], c[2], c[3]}), Four);
    });
}
inline Lanes load_i4(const std::byte *from) {
    uint64_t codes = 0;
    std::memcpy(&codes, from, sizeof codes);
    float values[16];
    for (uint32_t i = 0; i < 16; ++i) {
        auto code = static_cast<int32_t>(codes >> (4 * i) & 15);
        values[i] = static_cast<float>((code ^ 8) - 8);
    }
    return load(values);
}

inline Lanes looked_up(const Float8Values &values, const std::byte *from) {
    float found[16];
    for (uint32_t i = 0; i < 16; ++i) found[i] = values.value[static_cast<uint8_t>(from[i])];
    return load(found);
}
inline Lanes load_e4m3(const std::byte *from) { return looked_up(kE4m3Values, from); }
inline Lanes load_e5m2(const std::byte *from) { return looked_up(kE5m2Values, from); }

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
