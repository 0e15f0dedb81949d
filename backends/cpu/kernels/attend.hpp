// SPDX-License-Identifier: Apache-2.0
//
// attend: attention of query tokens over paged K and V, its softmax updated tile by tile.
//
// For one query q at position p, over the visible keys j of one tile after another
//     s_j = scale q·k_j      then s_j = c tanh(s_j / c) with a soft cap c, and less slope |p - j|
//                            with ALiBi
//     m' = max(m, max s_j)   w_j = exp(s_j - m')
//     l' = l exp(m - m') + sum w_j                     o' = o exp(m - m') + sum w_j v_j
// and at the end out = o / l, lse = m + log l. (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018.) A sink logit is a key of value 0 that came first: it begins as
// m = sink, l = 1.
//
// Batch invariance: a tile holds the keys of places [64 i, 64 i + 64) whatever the block size, a
// query visits the tiles in rising order, and inside a tile its arithmetic reads only its own q and
// its visible keys in rising order. What shares the batch, how a prompt was chunked, which blocks
// hold the keys, which rows share them and which thread computes decide only what is loaded
// together. (Needs -ffp-contract=off: else it would be the compiler's choice, loop by loop, where
// to round.)
//
// Reads only slots that some query of the call sees, so slots behind a row's length, dropped window
// positions, keys that a mask hides and the null block may hold anything. A hidden key is left out,
// not weighed with 0.
//
// Threads: one scratch each.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"
#include "kernels/sight.hpp"

namespace quire::cpu {

constexpr uint32_t kQueries = 64;  // query rows (token, head) that share the loading of a tile
constexpr uint32_t kLanes = 16;    // partial sums of a dot product: one 64 B vector of f32

// Rows lie one behind another, each rounded up to kLanes: at head dim 128 four arrays of 32 KiB,
// which fit beside a second-level cache of 1 MiB. The V of a latent tile is its K.
struct alignas(64) AttendScratch {
    float k[kTileTokens * kMaxLatentKDim];
    float v[kTileTokens * kMaxHeadDim];
    float q[kQueries * kMaxLatentKDim];
    float out[kQueries * kMaxLatentVDim];
    float weights[kTileTokens];
    float top[kQueries];         // m
    float sum[kQueries];         // l
    Sight sight[kQueries];       // of each token
    uint64_t visible[kQueries];  // keys of the tile, of each token
};

// Computes the query heads of one KV head for query tokens [token_begin, token_end).
// REQUIRES: the rows were checked (rows.hpp).
void attend(const AttendCall &call, uint32_t kv_head, uint32_t token_begin, uint32_t token_end,
            AttendScratch *scratch);

}  // namespace quire::cpu
