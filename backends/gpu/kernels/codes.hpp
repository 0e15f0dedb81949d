// SPDX-License-Identifier: Apache-2.0
//
// codes: a stage's rows, 16-bit numbers or codes, as left matrices of products.
//
// Four matrices of 8 x 8 16-bit numbers, as ldmatrix loads them, hold two codes per number: 32
// columns of sixteen keys. A lane's word has four codes, and its even and its odd bytes become a
// pair of f16 each, which costs few instructions and puts the columns into another order:
//
//   K: the lane has elements 4 t to 4 t + 3 of a sixteen, t = lane % 4. A product with q does not
//      depend on the order of elements, so q's are loaded in this order too (queries.hpp).
//   V: rows g and g + 8 of a product are elements 2 g and 2 g + 1 of a sixteen, g = lane / 4;
//      join.hpp stores them so.
//
// The quick way makes the code's exponent and fraction those of an f16, which is then too small by
// a power of two; whoever uses the sums makes up for it. A code that is a NaN becomes a number
// there, which is reported (`nans`). The careful way converts exactly.
//
// Threads: all lanes of a warp, together; stateless.
#pragma once

#include "dialect_warp.hpp"
#include "number.hpp"

namespace quire::gpu {

enum class Way { quick, careful };

// The quick way's numbers are the codes' times 2^-n.
template <uint32_t format>
QUIRE_DEVICE constexpr uint32_t log2_of_codes() {
    return format == kE4m3 && !has_e4m3_to_f16() ? 8 : 0;
}

// A word's bytes 0 and 2, and its bytes 1 and 3, as pairs of 16-bit numbers.
struct Halves {
    uint32_t even, odd;
};

template <uint32_t format>
QUIRE_DEVICE inline Halves quick_halves(uint32_t codes, uint32_t &nans) {
    if constexpr (format == kE5m2) return {codes << 8 & 0xFF00FF00u, codes & 0xFF00FF00u};
    if constexpr (format == kI8) {
        // 1,024 + (code + 128), minus 1,152: an f16 of this exponent counts ones.
        uint32_t even = (codes & 0x00FF00FFu) ^ 0x64806480u;
        uint32_t odd = (codes >> 8 & 0x00FF00FFu) ^ 0x64806480u;
        return {add_f16_pairs(even, 0xE480E480u), add_f16_pairs(odd, 0xE480E480u)};
    }
    if constexpr (has_e4m3_to_f16()) {
        uint32_t sorted = even_bytes_first(codes);
        return {e4m3_to_f16(sorted & 0xFFFFu), e4m3_to_f16(sorted >> 16)};
    }
    nans |= ((codes & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u;
    return {(codes << 7 & 0x3F803F80u) | (codes << 8 & 0x80008000u),
            (codes >> 1 & 0x3F803F80u) | (codes & 0x80008000u)};
}

template <uint32_t format, Way way>
QUIRE_DEVICE inline Halves halves_of(uint32_t codes, uint32_t half_format, uint32_t &nans) {
    if constexpr (way == Way::quick) return quick_halves<format>(codes, nans);
    TwoPairs pairs = codes_to_halves(format, half_format, even_bytes_first(codes));
    return {pairs.v[0], pairs.v[1]};
}

// Codes of K of e4m3 become f16 by neighbours where an instruction takes neighbours.
template <uint32_t format>
QUIRE_DEVICE constexpr bool keys_are_neighbours() {
    return format == kE4m3 && has_e4m3_to_f16();
}
template <uint32_t format, Way way>
QUIRE_DEVICE inline Halves halves_of_keys(uint32_t codes, uint32_t half_format, uint32_t &nans) {
    if constexpr (!keys_are_neighbours<format>()) {
        return halves_of<format, way>(codes, half_format, nans);
    }
    if constexpr (way == Way::quick) {
        return {e4m3_to_f16(codes & 0xFFFFu), e4m3_to_f16(codes >> 16)};
    }
    TwoPairs pairs = codes_to_halves(format, half_format, codes);
    return {pairs.v[0], pairs.v[1]};
}

// The left matrix of sixteen keys and sixteen of their elements: `which` counts them in what
// load_matrices() gave, and `half_format` is the type to multiply by.
template <typename Shape, Way way>
QUIRE_DEVICE inline void keys_of(const uint32_t (&words)[4], uint32_t which, uint32_t half_format,
                                 uint32_t (&keys)[4], uint32_t &nans) {
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
        if constexpr (Shape::kHasCodes) {
            Halves halves =
                halves_of_keys<Shape::kFormat, way>(words[2 * which + half], half_format, nans);
            keys[half] = halves.even;
            keys[2 + half] = halves.odd;
        } else {
            keys[half] = words[half];
            keys[2 + half] = words[2 + half];
        }
    }
}

// The same of load_matrices_turned(): sixteen elements of V of sixteen keys, as numbers of f16 if
// they are codes.
template <typename Shape, Way way>
QUIRE_DEVICE inline void values_of(const uint32_t (&words)[4], uint32_t which,
                                   uint32_t (&values)[4], uint32_t &nans) {
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
        if constexpr (Shape::kHasCodes) {
            Halves halves = halves_of<Shape::kFormat, way>(words[2 * half + which], kF16, nans);
            values[2 * half] = halves.even;
            values[2 * half + 1] = halves.odd;
        } else {
            values[2 * half] = words[2 * half];
            values[2 * half + 1] = words[2 * half + 1];
        }
    }
}

}  // namespace quire::gpu
