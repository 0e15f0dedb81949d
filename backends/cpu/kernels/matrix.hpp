// SPDX-License-Identifier: Apache-2.0
//
// matrix: scores and values of one tile and one KV head as matrix products, for processors with a
// matrix unit (AMX). A table of functions next to that of kernels/tile: used for codes always, and
// for 16-bit K and V on a device opened with QUIRE_DEVICE_FAST_16BIT.
//
// Such a unit multiplies int8 by int8 with sums in int32, or bf16 by bf16 with sums in f32. Codes
// convert to one of these without loss, bf16 is used as it is, and f16 is the sum of two bf16: one
// holds 8 of its 11 bits, the other the rest. The other operand, a query or the weights of a tile,
// is f32 and is first split into terms that are small enough:
//     for int8 and int4       x = f (65536 a + 256 b + c) + e with int8 a, b, c and f = max|x| / m,
//                             m = 8355000: digits to the base of 256, balanced around 0;
//                             |e| <= f / 2 < 2^-23.9 max|x|
//     for floats              x = a + b + c, each the upper half of what is left of x: nothing is
//                             lost, except below 2^-126
// Products of int8 are exact: |sum| <= 128 * 128 * 576 < 2^24. So a score over floats is as good as
// one in f32, and one over int8 or int4 differs from the exact one by at most 2^-23.9 max|q|
// sum|code|: less than f32's own rounding, unless one element of q is thousands of times as large
// as the rest and its codes are small. Even then the effect is that of changing the code at that
// element by 2^-23.9 sum|code|, at 128 dims a thousandth at most, whereas rounding K to codes has
// moved it by up to a half.
//
// Why three terms per weight: two terms of 8 bits are accurate to 2^-17, and so is a result over
// few keys, whereas f32 is accurate to 2^-24. A query over 16-bit K has as many terms as the bits
// of its type need, terms_of(): one for bf16, two for f16, three for f32; none of them is rounded.
//
// An infinity in e5m2, f16 or bf16 counts as a NaN, since a term of 0 may meet it. kv_write makes
// none from finite numbers within the type's range.
//
// Order: operands are [rows][contracted] and [contracted][16 columns]; the columns of scores are
// keys, those of results are dims. The unit takes two (bf16) or four (int8) contracted elements of
// one column at a time, side by side, so rows of K or V are interleaved for it. Codes smaller than
// that are widened afterwards, all even elements and all odd ones separately. So terms are in that
// order too: even elements before odd ones in each group.
//
// The format alone fixes the order of arithmetic, whatever else is computed together. A sum of bf16
// takes the pairs in rising order of the group; a key that a query does not see has weight 0.
//
// Threads: any, each between its own begin() and end().
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

constexpr uint32_t kTerms = 3;  // terms of a query or weight, at most

// Terms of a query of this type over K of this format.
constexpr uint32_t terms_of(Format q, Format k) {
    bool is_half = k == Format::f16 || k == Format::bf16;
    if (!is_half || q == Format::f32) return kTerms;
    return q == Format::f16 ? 2 : 1;
}

// The bytes of one term of `count` elements.
constexpr uint32_t term_bytes(Format format, uint32_t count) {
    switch (format) {
        case Format::i4:
            return (count + 127) / 128 * 128;
        case Format::i8:
            return (count + 63) / 64 * 64;
        case Format::f16:
        case Format::bf16:
            return (count + 31) / 32 * 64;
        default:
            return (count + 63) / 64 * 128;
    }
}

// Room for sixteen rows of K in the unit's order, and for V of 64 keys, a few results wide. No
// more: what is written and soon read again must stay in the first-level cache, because loads from
// the next level queue behind those from memory.
constexpr size_t kOperandBytes = size_t{term_bytes(Format::f16, 576)} * 2 * 16;

struct MatrixScratch {
    alignas(64) std::byte operand[kOperandBytes];
    alignas(64) std::byte weights[64 * kTerms * 2 * kTileTokens];
    alignas(64) std::byte sums[16 * 128 * sizeof(float)];
    float factors[64];
};

struct MatrixScore {
    Format format;
    uint32_t dim;
    uint32_t terms;        // per query
    const std::byte *q;    // [queries][terms][term_bytes]
    const float *factors;  // [queries]
    uint32_t queries;      // at most 64
    uint32_t keys;         // a multiple of 16
    Rows k;
    float *scores;  // [queries][kTileTokens]
    MatrixScratch *scratch;
    Ahead ahead;
};

struct MatrixAbsorb {
    Format format;
    uint32_t dim;
    const float *weights;  // [queries][kTileTokens], 0 where a key is not seen
    const float *kept;     // [queries]: factor for the result so far; < 0: sees no key
    uint32_t queries;      // at most 64
    Rows v;                // finite where some query does not see it
    float *out;            // [queries], out_stride elements apart
    uint32_t out_stride;   // a multiple of 16
    MatrixScratch *scratch;
    Ahead ahead;
};

struct MatrixKernels {
    const char *name;  // of the unit
    // Sets up and releases the unit's state for a thread; `queries` is the most that a call has.
    void (*begin)(uint32_t queries);
    void (*end)();
    // Splits numbers that need no more than `count` terms; products with them must be multiplied by
    // *factor.
    void (*split)(Format format, const float *values, uint32_t value_count, uint32_t count,
                  std::byte *terms, float *factor);
    // scores[i][j] = q[i] . k[j]
    void (*score)(const MatrixScore &tile);
    // out[i] = kept[i] out[i] + sum weights[i][j] v[j]. NULL, like the next, if the unit only
    // scores.
    void (*absorb)(const MatrixAbsorb &tile);
    // True if no element of the rows whose bits are set is infinite or a NaN.
    bool (*are_finite)(Format format, Rows rows, uint64_t which, uint32_t dim);
};

}  // namespace quire::cpu
