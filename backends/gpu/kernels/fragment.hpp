// SPDX-License-Identifier: Apache-2.0
//
// fragment: products of small matrices of 16-bit numbers, computed by a whole warp.
//
// A Tile is 16 x 16 f32 sums scattered over the lanes of a warp: a lane's element i belongs to
// row_of_sum(i) and column_of_sum(i). add_product() adds the product of 16 x 16 numbers of A and 16
// x 16 of B, both in shared memory. Without a matrix instruction (dialect.hpp), lanes multiply
// their elements one by one.
//
// Where the instruction flushes subnormal f16 numbers to 0, a sum with a subnormal in its row of A
// or its column of B comes from a slower instruction. Each sum's own numbers decide that, so its
// bits do not depend on the rest of the matrices.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "number.hpp"

namespace quire::gpu {

// 16 rows, or columns, of 16 numbers: number k of row i lies at first + i * stride + k * k_stride.
struct Piece {
    uint32_t first;
    uint32_t stride;
    uint32_t k_stride;
};

QUIRE_DEVICE inline uint32_t place_in(const Piece &piece, uint32_t i, uint32_t k) {
    return piece.first + i * piece.stride + k * piece.k_stride;
}

struct Tile {
    float v[kMostElementsOfLane];
};

QUIRE_DEVICE inline void clear(Tile &tile) {
    for (uint32_t i = 0; i < kMostElementsOfLane; ++i) tile.v[i] = 0.0f;
}

// Whether subnormal numbers of A may count as 0.
enum class SmallOfA { kept, any };

QUIRE_DEVICE inline bool has_subnormal(const Fragment &fragment) {
    bool found = false;
    for (uint32_t i = 0; i < fragment_elements(); ++i) {
        uint32_t magnitude = fragment.v[i] & 0x7FFFu;
        found = found || (magnitude != 0 && magnitude < 0x400);
    }
    return found;
}

// For 64 lanes: the mask of the 16 rows, or columns, in which any lane's vote is true.
QUIRE_DEVICE inline uint32_t lines_with(bool vote) {
    uint64_t votes = ballot(vote);
    return static_cast<uint32_t>(votes | votes >> 16 | votes >> 32 | votes >> 48) & 0xFFFFu;
}

// Like multiply_fragments() for f16, where that flushes subnormals.
QUIRE_DEVICE inline void multiply_unflushed(Tile &tile, const Fragment &a, const Fragment &b,
                                            SmallOfA small_of_a) {
    uint32_t rows = small_of_a == SmallOfA::any ? 0 : lines_with(has_subnormal(a));
    uint32_t columns = lines_with(has_subnormal(b));
    Tile exact = tile;
    if ((rows | columns) != 0) multiply_small_fragments(a, b, exact.v);
    multiply_fragments(false, a, b, tile.v);
    for (uint32_t i = 0; i < fragment_elements(); ++i) {
        bool is_small = ((rows >> row_of_sum(i) | columns >> column_of_sum(i)) & 1u) != 0;
        if (is_small) tile.v[i] = exact.v[i];
    }
}

// tile += A B, for numbers of `format`, kF16 or kBf16.
template <typename A, typename B>
QUIRE_DEVICE inline void add_product(Tile &tile, uint32_t format, A &a, const Piece &of_a, B &b,
                                     const Piece &of_b, SmallOfA small_of_a) {
    bool is_bf16 = format == kBf16;
    if (has_fragments(is_bf16)) {
        Fragment left, right;
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            left.v[i] = a[place_in(of_a, row_of_a(i), k_of_a(i))];
            right.v[i] = b[place_in(of_b, column_of_b(i), k_of_b(i))];
        }
        if (flushes_subnormals(is_bf16)) {
            multiply_unflushed(tile, left, right, small_of_a);
        } else {
            multiply_fragments(is_bf16, left, right, tile.v);
        }
        return;
    }
    for (uint32_t i = 0; i < fragment_elements(); ++i) {
        for (uint32_t k = 0; k < 16; ++k) {
            uint16_t left = a[place_in(of_a, row_of_sum(i), k)];
            uint16_t right = b[place_in(of_b, column_of_sum(i), k)];
            tile.v[i] = multiply_add(float_of(half_to_f32(format, left)),
                                     float_of(half_to_f32(format, right)), tile.v[i]);
        }
    }
}

}  // namespace quire::gpu
