// SPDX-License-Identifier: Apache-2.0
//
// operands_avx512: rows of K and V in the order that a matrix unit needs (kernels/matrix.hpp).
//
// A format is read 64 bytes of a row at a time. If its elements are smaller than what the unit
// multiplies, widen() makes two registers from one, of its even and its odd elements. This
// determines the order of the other operand's terms, which arranged() produces. No unit here
// multiplies f16, so part_halves() splits each f16 into two bf16 that add up to it.
//
// Included by units compiled for more than the baseline: internal linkage only.
//
// Threads: any; nothing is kept.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/fetcher.hpp"
#include "kernels/format.hpp"
#include "kernels/lanes_avx512.hpp"
#include "kernels/matrix_instructions.hpp"

namespace quire::cpu::QUIRE_CPU_TARGET {
namespace {

using Bytes = __m512i;

constexpr bool is_integer(Format format) { return format == Format::i8 || format == Format::i4; }
constexpr bool is_half(Format format) { return format == Format::f16 || format == Format::bf16; }
// True if elements are widened for the unit: one register becomes two, of different elements.
constexpr bool is_wide(Format format) { return format != Format::i8 && !is_half(format); }
// Operands per number; all of them meet the same terms.
template <Format format>
constexpr size_t kParts = format == Format::f16 ? 2 : 1;

constexpr size_t kTileRows = 16;
constexpr size_t kTileBytes = 1024;  // 16 rows of 64 bytes
constexpr size_t kLine = 64;

inline void store_line(std::byte *to, Bytes line) { _mm512_store_si512(to, line); }

// A mask of the first `count` bytes of a line.
inline __mmask64 line_mask(size_t count) {
    return count >= kLine ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
}

inline Lanes upper_half(Lanes a) {
    return _mm512_castsi512_ps(
        _mm512_and_epi32(_mm512_castps_si512(a), _mm512_set1_epi32(-0x10000)));
}
// The upper halves of all lanes.
inline __m256i upper_halves(Lanes a) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(a), 16));
}
// The rest of a below its upper half; 0 for an infinity, whose rest would be a NaN.
inline Lanes rest_of(Lanes a) {
    constexpr int kInfinite = 0x18;
    __mmask16 is_other = _knot_mask16(_mm512_fpclass_ps_mask(a, kInfinite));
    return _mm512_maskz_sub_ps(is_other, a, upper_half(a));
}

// Splits each of thirty-two f16 into two bf16: the first 8 of its 11 bits, and the rest. Nothing is
// lost.
inline void part_halves(Bytes halves, Bytes *first, Bytes *second) {
    Lanes low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    Lanes high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    *first = _mm512_inserti64x4(_mm512_castsi256_si512(upper_halves(low)), upper_halves(high), 1);
    *second = _mm512_inserti64x4(_mm512_castsi256_si512(upper_halves(rest_of(low))),
                                 upper_halves(rest_of(high)), 1);
}

// The code of an 8-bit float without its sign, as the bits of a bf16, which is exact.
constexpr uint16_t bf16_of(uint32_t code, uint32_t mantissa_bits, uint32_t bias,
                           bool has_infinity) {
    uint32_t exponent = code >> mantissa_bits;
    uint32_t mantissa = code & ((1u << mantissa_bits) - 1);
    bool is_last = code == 0x7F;  // e4m3's only NaN
    if (has_infinity && exponent == (0x7Fu >> mantissa_bits)) {
        return static_cast<uint16_t>(0x7F80 | mantissa << (7 - mantissa_bits));
    }
    if (!has_infinity && is_last) return 0x7FC0;
    float scale = std::bit_cast<float>((127 + 1 - bias - mantissa_bits) << 23);
    if (exponent != 0) {
        mantissa |= 1u << mantissa_bits;
        scale = std::bit_cast<float>((127 + exponent - bias - mantissa_bits) << 23);
    }
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(mantissa) * scale) >>
                                 16);
}

// Upper and lower bytes of the bf16 of every code.
struct ByteTables {
    alignas(64) uint8_t upper[128];
    alignas(64) uint8_t lower[128];
};

constexpr ByteTables byte_tables(uint32_t mantissa_bits, uint32_t bias, bool has_infinity) {
    ByteTables tables = {};
    for (uint32_t code = 0; code < 128; ++code) {
        uint16_t bits = bf16_of(code, mantissa_bits, bias, has_infinity);
        tables.upper[code] = static_cast<uint8_t>(bits >> 8);
        tables.lower[code] = static_cast<uint8_t>(bits & 0xFF);
    }
    return tables;
}

constexpr ByteTables kE4m3Bytes = byte_tables(3, 7, false);
constexpr ByteTables kE5m2Bytes = byte_tables(2, 15, true);

// a | (b & mask).
inline Bytes merged(Bytes a, Bytes b, Bytes mask) {
    return _mm512_ternarylogic_epi64(a, b, mask, 0xF8);
}

inline Bytes looked_up(Bytes codes, const uint8_t (&table)[128]) {
    return bytes_at(_mm512_load_si512(table), codes, _mm512_load_si512(table + 64));
}

inline void widen_floats(const ByteTables &tables, Bytes codes, Bytes *even, Bytes *odd) {
    Bytes upper = merged(looked_up(codes, tables.upper), codes, _mm512_set1_epi8(-128));
    Bytes lower = looked_up(codes, tables.lower);
    *even = merged(_mm512_slli_epi16(upper, 8), lower, _mm512_set1_epi16(0x00FF));
    *odd = merged(_mm512_srli_epi16(lower, 8), upper, _mm512_set1_epi16(-0x100));
}

// The value of a nibble is (nibble ^ 8) - 8.
inline Bytes signed_nibbles(Bytes a) {
    Bytes turned = _mm512_ternarylogic_epi64(a, _mm512_set1_epi8(0x0F), _mm512_set1_epi8(8), 0x6A);
    return _mm512_sub_epi8(turned, _mm512_set1_epi8(8));
}

template <Format format>
inline void widen(Bytes codes, Bytes *even, Bytes *odd) {
    static_assert(is_wide(format));
    if constexpr (format == Format::i4) {
        *even = signed_nibbles(codes);
        *odd = signed_nibbles(_mm512_srli_epi16(codes, 4));
    } else {
        widen_floats(format == Format::e4m3 ? kE4m3Bytes : kE5m2Bytes, codes, even, odd);
    }
}

// Interleaves sixteen rows of K: tile [64 bytes of a row][half, of wide formats][part]; a tile's
// row has the same four bytes of each key.
template <Format format>
inline void interleave_keys(Rows rows, size_t row_bytes, std::byte *tile, Fetcher *fetcher) {
    constexpr size_t kTiles = (is_wide(format) ? 2 : 1) * kParts<format>;
    for (size_t at = 0; at < row_bytes; at += kLine, tile += kTiles * kTileBytes) {
        __mmask64 mask = line_mask(row_bytes - at);
        Lanes square[16];
#pragma GCC unroll 16
        for (size_t j = 0; j < 16; ++j) {
            if (j % 4 == 0) fetcher->step();
            square[j] = _mm512_castsi512_ps(_mm512_maskz_loadu_epi8(mask, rows[j] + at));
        }
        transpose(square);
#pragma GCC unroll 16
        for (size_t j = 0; j < 16; ++j) {
            Bytes codes = _mm512_castps_si512(square[j]);
            if constexpr (kTiles == 2) {
                Bytes first, second;
                if constexpr (is_wide(format)) {
                    widen<format>(codes, &first, &second);
                } else {
                    part_halves(codes, &first, &second);
                }
                store_line(tile + j * kLine, first);
                store_line(tile + kTileBytes + j * kLine, second);
            } else {
                store_line(tile + j * kLine, codes);
            }
        }
    }
}

// Interleaves four rows by bytes: register t has dims 16 l + 4 t to 16 l + 4 t + 3 in quarter l.
inline void interleave_four(const Bytes (&rows)[4], Bytes (&to)[4]) {
    Bytes low = _mm512_unpacklo_epi8(rows[0], rows[1]);
    Bytes high = _mm512_unpackhi_epi8(rows[0], rows[1]);
    Bytes next_low = _mm512_unpacklo_epi8(rows[2], rows[3]);
    Bytes next_high = _mm512_unpackhi_epi8(rows[2], rows[3]);
    to[0] = _mm512_unpacklo_epi16(low, next_low);
    to[1] = _mm512_unpackhi_epi16(low, next_low);
    to[2] = _mm512_unpacklo_epi16(high, next_high);
    to[3] = _mm512_unpackhi_epi16(high, next_high);
}

// V: slabs of 64 results, each [step][part][four tiles of 16 results]. kSteps is over contracted
// keys.
template <Format format>
constexpr size_t kSteps = is_integer(format) ? 1 : 2;
// Slabs made at once: for int4 one of the even dims and one of the odd dims.
template <Format format>
constexpr size_t kSlabs = format == Format::i4 ? 2 : 1;
// Bytes of a row that these slabs are made from.
template <Format format>
constexpr size_t kSlabBytes = is_half(format) ? 2 * kLine : kLine;

// Interleaves 64 bytes of each row of codes, for four keys from 4 * quad on.
template <Format format>
inline void interleave_quad(const Bytes (&rows)[4], size_t quad, std::byte *slab) {
    Bytes line[4];
    if constexpr (format == Format::i4) {
        Bytes even[4], odd[4];
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; ++j) widen<format>(rows[j], &even[j], &odd[j]);
        Bytes other[4];
        interleave_four(even, line);
        interleave_four(odd, other);
#pragma GCC unroll 4
        for (size_t t = 0; t < 4; ++t) {
            store_line(slab + t * kTileBytes + quad * kLine, line[t]);
            store_line(slab + (4 + t) * kTileBytes + quad * kLine, other[t]);
        }
        return;
    }
    interleave_four(rows, line);
#pragma GCC unroll 4
    for (size_t t = 0; t < 4; ++t) {
        std::byte *to = slab + t * kTileBytes + quad * kLine;
        if constexpr (is_wide(format)) {
            Bytes even, odd;
            widen<format>(line[t], &even, &odd);
            store_line(to, even);
            store_line(to + 4 * kTileBytes, odd);
        } else {
            store_line(to, line[t]);
        }
    }
}

// Interleaves two rows by elements: register t has dims 8 l + 4 t to 8 l + 4 t + 3 in quarter l.
template <Format format>
inline void interleave_two(const Bytes (&rows)[2], std::byte *to) {
    Bytes lines[2] = {_mm512_unpacklo_epi16(rows[0], rows[1]),
                      _mm512_unpackhi_epi16(rows[0], rows[1])};
#pragma GCC unroll 2
    for (size_t t = 0; t < 2; ++t, to += kTileBytes) {
        if constexpr (kParts<format> == 2) {
            Bytes first, second;
            part_halves(lines[t], &first, &second);
            store_line(to, first);
            store_line(to + 4 * kTileBytes, second);
        } else {
            store_line(to, lines[t]);
        }
    }
}

// As interleave_values, for 16-bit formats.
template <Format format>
inline void interleave_half_values(Rows rows, size_t at, size_t count, std::byte *slab,
                                   Fetcher *fetcher) {
    const __mmask64 masks[2] = {line_mask(count), line_mask(count < kLine ? 0 : count - kLine)};
    for (size_t pair = 0; pair < kTileTokens / 2; ++pair) {
        if (pair % 2 == 0) fetcher->step();
        std::byte *to =
            slab + pair / kTileRows * kParts<format> * 4 * kTileBytes + pair % kTileRows * kLine;
#pragma GCC unroll 2
        for (size_t line = 0; line < 2; ++line) {
            Bytes lines[2];
#pragma GCC unroll 2
            for (size_t j = 0; j < 2; ++j) {
                const std::byte *row = rows[2 * pair + j] + at + line * kLine;
                lines[j] = _mm512_maskz_loadu_epi8(masks[line], row);
            }
            interleave_two<format>(lines, to + 2 * line * kTileBytes);
        }
    }
}

// Interleaves `count` bytes of all rows of V, from `at` on; the first kSlabBytes make kSlabs slabs.
template <Format format>
inline void interleave_values(Rows rows, size_t at, size_t count, std::byte *slab,
                              Fetcher *fetcher) {
    if constexpr (is_half(format)) {
        interleave_half_values<format>(rows, at, count, slab, fetcher);
        return;
    }
    __mmask64 mask = line_mask(count);
    for (size_t quad = 0; quad < kTileTokens / 4; ++quad) {
        fetcher->step();
        Bytes lines[4];
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; ++j) {
            lines[j] = _mm512_maskz_loadu_epi8(mask, rows[4 * quad + j] + at);
        }
        interleave_quad<format>(lines, quad, slab);
    }
}

// Puts the sums of a slab's four tiles in the order of the dims: quarters of registers trade
// places.
inline void order_slab(Lanes (&a)[4]) {
    Lanes b0 = _mm512_shuffle_f32x4(a[0], a[1], 0x44);
    Lanes b1 = _mm512_shuffle_f32x4(a[0], a[1], 0xEE);
    Lanes b2 = _mm512_shuffle_f32x4(a[2], a[3], 0x44);
    Lanes b3 = _mm512_shuffle_f32x4(a[2], a[3], 0xEE);
    a[0] = _mm512_shuffle_f32x4(b0, b2, 0x88);
    a[1] = _mm512_shuffle_f32x4(b0, b2, 0xDD);
    a[2] = _mm512_shuffle_f32x4(b1, b3, 0x88);
    a[3] = _mm512_shuffle_f32x4(b1, b3, 0xDD);
}

// The same for 16 bits, where each two tiles make 32 results.
inline void order_half_slab(Lanes (&a)[4]) {
#pragma GCC unroll 2
    for (size_t t = 0; t < 4; t += 2) {
        Lanes low = _mm512_shuffle_f32x4(a[t], a[t + 1], 0x44);
        Lanes high = _mm512_shuffle_f32x4(a[t], a[t + 1], 0xEE);
        a[t] = _mm512_shuffle_f32x4(low, low, 0xD8);
        a[t + 1] = _mm512_shuffle_f32x4(high, high, 0xD8);
    }
}

// Alternates the elements of an even and an odd slab.
inline void order_pair(Lanes even, Lanes odd, Lanes *first, Lanes *second) {
    const Bytes low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const Bytes high =
        _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    *first = _mm512_permutex2var_ps(even, low, odd);
    *second = _mm512_permutex2var_ps(even, high, odd);
}

// Contracted values at..at + 15, with 0 past the last.
inline Lanes part(const float *values, size_t at, size_t count) {
    if (at >= count) return all(0.0f);
    size_t left = count - at;
    auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1u << left) - 1);
    return _mm512_maskz_loadu_ps(mask, values + at);
}

// Sixteen contracted elements from place `at` in the order of the terms. In each kGroup elements
// the even ones come first; 0 keeps the order.
template <size_t kGroup>
inline Lanes arranged(const float *values, size_t at, size_t count) {
    if constexpr (kGroup == 0) return part(values, at, count);
    const Bytes even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    size_t in_group = at % kGroup;
    bool is_odd = in_group >= kGroup / 2;
    size_t from = at - in_group + 2 * (is_odd ? in_group - kGroup / 2 : in_group);
    Bytes places = is_odd ? _mm512_add_epi32(even, _mm512_set1_epi32(1)) : even;
    return _mm512_permutex2var_ps(part(values, from, count), places,
                                  part(values, from + 16, count));
}

}  // namespace
}  // namespace quire::cpu::QUIRE_CPU_TARGET
