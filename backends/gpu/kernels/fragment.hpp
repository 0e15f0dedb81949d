// SPDX-License-Identifier: Apache-2.0
//
// fragment: products of small matrices of 16-bit numbers, which a warp computes together.
//
// A Tile is 16 x 16 sums in f32, scattered over the lanes of a warp: element i of a lane is that of
// row_of_sum(i) and column_of_sum(i). add() adds the product of 16 x 16 numbers of A and 16 x 16 of
// B, both in shared memory. Where there is no instruction for it (dialect.hpp), lanes multiply
// their elements one by one.
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

// tile += A B, of numbers of `format`, kF16 or kBf16.
template <typename A, typename B>
QUIRE_DEVICE inline void add_product(Tile &tile, uint32_t format, A &a, const Piece &of_a, B &b,
                                     const Piece &of_b) {
    bool is_bf16 = format == kBf16;
    if (has_fragments(is_bf16)) {
        Fragment left, right;
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            left.v[i] = a[place_in(of_a, row_of_a(i), k_of_a(i))];
            right.v[i] = b[place_in(of_b, column_of_b(i), k_of_b(i))];
        }
        multiply_fragments(is_bf16, left, right, tile.v);
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
