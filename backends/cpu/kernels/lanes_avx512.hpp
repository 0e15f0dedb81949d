// SPDX-License-Identifier: Apache-2.0
//
// lanes_avx512: lanes.hpp in one register of 512 bits.
//
// Threads: any; nothing is kept.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

using Lanes = __m512;
using LaneMask = uint16_t;

constexpr uint32_t kAccumulators = 16;  // of 32 registers
constexpr float kE4m3Factor = 256.0f;

inline Lanes all(float value) { return _mm512_set1_ps(value); }
inline Lanes load(const float *from) { return _mm512_loadu_ps(from); }
inline void store(float *to, Lanes a) { _mm512_storeu_ps(to, a); }
inline Lanes add(Lanes a, Lanes b) { return _mm512_add_ps(a, b); }
inline Lanes sub(Lanes a, Lanes b) { return _mm512_sub_ps(a, b); }
inline Lanes mul(Lanes a, Lanes b) { return _mm512_mul_ps(a, b); }
inline Lanes div(Lanes a, Lanes b) { return _mm512_div_ps(a, b); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm512_fmadd_ps(a, b, c); }
// Returns b where either is a NaN.
inline Lanes larger(Lanes a, Lanes b) { return _mm512_max_ps(a, b); }
// Takes the lanes of a whose bits are set, and the others of b.
inline Lanes select(LaneMask mask, Lanes a, Lanes b) { return _mm512_mask_blend_ps(mask, b, a); }
inline LaneMask below(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
inline Lanes rounded(Lanes a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Lanes times_power_of_two(Lanes a, Lanes n) { return _mm512_scalef_ps(a, n); }

inline float sum(Lanes a) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float top(Lanes a) { return _mm512_reduce_max_ps(a); }

// The next four add in the order of sum(), for two inputs at once. Where the order allows it they
// use a blend and one shuffle, not two shuffles: only one port shuffles.
// Lanes 0-7 are a's, 8-15 b's.
inline Lanes add_halves(Lanes a, Lanes b) {
    return add(_mm512_mask_blend_ps(0xFF00, a, b), _mm512_shuffle_f32x4(a, b, 0x4E));
}
// Four lanes for each of the two in a, then for each of the two in b.
inline Lanes add_quarters(Lanes a, Lanes b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
// In each group of four lanes, two for a and two for b.
inline Lanes add_pairs(Lanes a, Lanes b) {
    return add(_mm512_mask_blend_ps(0xCCCC, a, b), _mm512_shuffle_ps(a, b, 0x4E));
}
inline Lanes add_singles(Lanes a, Lanes b) {
    return add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
// Lanes 4 i to 4 i + 3 belong to a[4 i].
inline Lanes four_sums(const Lanes *a) {
    return add_quarters(add_halves(a[0], a[4]), add_halves(a[8], a[12]));
}

// to[i] = sum(a[i])
inline void sums(const Lanes (&a)[16], float (&to)[16]) {
    Lanes pairs = add_pairs(four_sums(a), four_sums(a + 1));
    Lanes others = add_pairs(four_sums(a + 2), four_sums(a + 3));
    store(to, add_singles(pairs, others));
}

// a[i][j] becomes a[j][i].
inline void transpose(Lanes (&a)[16]) {
    Lanes b[16];
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 16; i += 4) {  // each four lanes of a[i + j]: rows i to i + 3
        a[i] = _mm512_shuffle_ps(b[i], b[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(b[i], b[i + 2], 0xEE);
        a[i + 2] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(b[i + 1], b[i + 3], 0xEE);
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
        b[j] = _mm512_shuffle_f32x4(a[j], a[4 + j], 0x88);
        b[4 + j] = _mm512_shuffle_f32x4(a[j], a[4 + j], 0xDD);
        b[8 + j] = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0x88);
        b[12 + j] = _mm512_shuffle_f32x4(a[8 + j], a[12 + j], 0xDD);
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < 4; ++j) {
        a[j] = _mm512_shuffle_f32x4(b[j], b[8 + j], 0x88);
        a[8 + j] = _mm512_shuffle_f32x4(b[j], b[8 + j], 0xDD);
        a[4 + j] = _mm512_shuffle_f32x4(b[4 + j], b[12 + j], 0x88);
        a[12 + j] = _mm512_shuffle_f32x4(b[4 + j], b[12 + j], 0xDD);
    }
}

inline Lanes load_f16(const std::byte *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
inline Lanes load_bf16(const std::byte *from) {
    __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Lanes load_i8(const std::byte *from) {
    __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// Each lane gets the four bytes that hold its nibble, shifts it to the bottom, and looks it up: the
// permutation reads only the lowest four bits of an index.
inline Lanes load_i4(const std::byte *from) {
    const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m512i places =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    int low, high;
    __builtin_memcpy(&low, from, sizeof low);
    __builtin_memcpy(&high, from + sizeof low, sizeof high);
    __m512i nibbles = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xFF00, high);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(nibbles, places), values);
}

// e4m3 times 2^-8, through f16, where a subnormal is subnormal too. Sign extension leaves a second
// copy of the sign in the exponent's highest bit. The xor clears it, except for the code of NaN,
// whose magnitude is all ones: there the addition carries into that bit, and f16 has a NaN too.
inline Lanes load_e4m3(const std::byte *from) {
    __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7);
    __m256i next = _mm256_add_epi16(wide, _mm256_set1_epi16(0x80));
    // wide ^ next in the bit 0x4000, wide in the others
    return _mm512_cvtph_ps(_mm256_ternarylogic_epi32(wide, next, _mm256_set1_epi16(0x4000), 0x78));
}
// e5m2 is the upper half of f16.
inline Lanes load_e5m2(const std::byte *from) {
    __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8));
}

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
