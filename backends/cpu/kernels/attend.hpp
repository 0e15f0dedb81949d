// SPDX-License-Identifier: Apache-2.0
//
// attend: attention of query tokens over paged K and V, its softmax updated tile by tile.
//
// For one query q at position p, over the visible keys j of one tile after another
//     s_j = scale q·k_j      m' = max(m, max s_j)      w_j = exp(s_j - m')
//     l' = l exp(m - m') + sum w_j                     o' = o exp(m - m') + sum w_j v_j
// and at the end out = o / l, lse = m + log l. (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018.)
//
// Batch invariance: a tile holds the keys of positions [64 i, 64 i + 64) whatever the block size, a
// query visits the tiles in rising order, and inside a tile its arithmetic reads only its own q and
// its visible keys in rising order. What shares the batch, how a prompt was chunked, which blocks
// hold the keys and which thread computes decide only what is loaded together. (Needs
// -ffp-contract=off: else it would be the compiler's choice, loop by loop, where to round.)
//
// Reads only slots that some query of the call sees, so slots behind a row's length, dropped window
// positions and the null block may hold anything.
//
// Threads: one scratch each.
#pragma once

#include <cstdint>

#include "kernels/element.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

constexpr uint32_t kMaxHeadDim = 256;
constexpr uint32_t kTileTokens = 64;
constexpr uint32_t kQueries = 64;  // query rows (token, head) that share the loading of a tile
constexpr uint32_t kLanes = 16;    // partial sums of a dot product: one 64 B vector of f32

// 4 x 64 KiB and a little: fits beside a second-level cache of 1 MiB.
struct alignas(64) AttendScratch {
    float k[kTileTokens][kMaxHeadDim];
    float v[kTileTokens][kMaxHeadDim];
    float q[kQueries][kMaxHeadDim];
    float out[kQueries][kMaxHeadDim];
    float weights[kTileTokens];
    float top[kQueries];      // m
    float sum[kQueries];      // l
    int64_t begin[kQueries];  // visible keys
    int64_t end[kQueries];
};

struct AttendCall {
    quire_be_attention args;
    quire_be_pool pool;
    // Of the plan.
    const Element *q;
    const Element *k;
    const Element *v;
    float scale;
    uint32_t q_heads;
    uint32_t flags;   // QUIRE_ATTENTION_*
    uint32_t window;  // tokens; 0 = none
};

// Computes the query heads of one KV head for query tokens [token_begin, token_end).
// REQUIRES: the rows were checked: cu_q rises, and every visible block lies in the pool.
void attend(const AttendCall &call, uint32_t kv_head, uint32_t token_begin, uint32_t token_end,
            AttendScratch *scratch);

// The keys that the token at `position` of a row of `length` tokens sees: [*begin, *end).
void visible_keys(const AttendCall &call, int64_t position, int64_t length, int64_t *begin,
                  int64_t *end);

}  // namespace quire::cpu
