// SPDX-License-Identifier: Apache-2.0
//
// lanes_avx2: lanes.hpp in two registers of 256 bits; needs FMA and F16C in addition to AVX2.
//
// Threads: any; nothing is kept.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

struct Lanes {
    __m256 low;
    __m256 high;
};
using LaneMask = uint16_t;

constexpr uint32_t kAccumulators = 4;  // of 16 registers, two each
constexpr float kE4m3Factor = 256.0f;

inline Lanes all(float value) {
    __m256 both = _mm256_set1_ps(value);
    return {both, both};
}
inline Lanes load(const float *from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float *to, Lanes a) {
    _mm256_storeu_ps(to, a.low);
    _mm256_storeu_ps(to + 8, a.high);
}
inline Lanes add(Lanes a, Lanes b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes sub(Lanes a, Lanes b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Lanes mul(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes div(Lanes a, Lanes b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes larger(Lanes a, Lanes b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
// All ones in each lane whose bit among the lowest eight is set.
inline __m256 spread(uint32_t bits) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i chosen = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(chosen, each));
}
inline Lanes select(LaneMask mask, Lanes a, Lanes b) {
    return {_mm256_blendv_ps(b.low, a.low, spread(mask & 0xFFu)),
            _mm256_blendv_ps(b.high, a.high, spread(mask >> 8))};
}
inline LaneMask below(Lanes a, Lanes b) {
    int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ));
    int high = _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ));
    return static_cast<LaneMask>(low | high << 8);
}
inline Lanes rounded(Lanes a) {
    constexpr int kHow = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(a.low, kHow), _mm256_round_ps(a.high, kHow)};
}
inline __m256 power_of_two(__m256 n) {
    __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline Lanes times_power_of_two(Lanes a, Lanes n) {
    Lanes product = mul(a, {power_of_two(n.low), power_of_two(n.high)});
    return select(below(n, all(-126.0f)), all(0.0f), product);
}

inline float sum(Lanes a) {
    __m256 eight = _mm256_add_ps(a.low, a.high);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float top(Lanes a) {
    __m256 eight = _mm256_max_ps(a.low, a.high);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline void sums(const Lanes (&a)[4], float (&to)[4]) {
    for (uint32_t i = 0; i < 4; ++i) to[i] = sum(a[i]);
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

inline __m128i sixteen_bytes(const std::byte *from) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
}
inline Lanes load_f16(const std::byte *from) {
    return {_mm256_cvtph_ps(sixteen_bytes(from)), _mm256_cvtph_ps(sixteen_bytes(from + 16))};
}
inline __m256 upper_half(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
inline Lanes load_bf16(const std::byte *from) {
    return {upper_half(sixteen_bytes(from)), upper_half(sixteen_bytes(from + 16))};
}
inline Lanes from_bytes(__m128i bytes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline Lanes load_i8(const std::byte *from) { return from_bytes(sixteen_bytes(from)); }
inline Lanes load_i4(const std::byte *from) {
    const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1);
    const __m128i low_nibble = _mm_set1_epi8(15);
    __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
    __m128i low = _mm_and_si128(pairs, low_nibble);
    __m128i high = _mm_and_si128(_mm_srli_epi16(pairs, 4), low_nibble);
    return from_bytes(_mm_shuffle_epi8(values, _mm_unpacklo_epi8(low, high)));
}

inline Lanes from_halves(__m256i halves) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
// e4m3 times 2^-8; lanes_avx512.hpp explains how.
inline Lanes load_e4m3(const std::byte *from) {
    __m256i wide = _mm256_slli_epi16(_mm256_cvtepi8_epi16(sixteen_bytes(from)), 7);
    __m256i next = _mm256_add_epi16(wide, _mm256_set1_epi16(0x80));
    return from_halves(_mm256_xor_si256(wide, _mm256_and_si256(next, _mm256_set1_epi16(0x4000))));
}
inline Lanes load_e5m2(const std::byte *from) {
    return from_halves(_mm256_slli_epi16(_mm256_cvtepu8_epi16(sixteen_bytes(from)), 8));
}

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
