// SPDX-License-Identifier: Apache-2.0
//
// attend: attention of query tokens over paged K and V, its softmax updated tile by tile.
//
// For one query q at position p, over the visible keys j of one tile after another
//     s_j = scale q·k_j      then s_j = c tanh(s_j / c) with a soft cap c, minus slope |p - j|
//                            with ALiBi
//     m' = max(m, max s_j)   w_j = exp(s_j - m')
//     l' = l exp(m - m') + sum w_j                     o' = o exp(m - m') + sum w_j v_j
// and at the end out = o / l, lse = m + log l. (Milakov and Gimelshein, Online normalizer
// calculation for softmax, 2018.) Tiles are accumulated chunk by chunk, and the chunks' states are
// folded together in rising order, so that several threads may compute chunks. A sink logit acts as
// a key of value 0 before all others: the fold begins with m = sink, l = 1.
//
// Batch invariance: a tile holds the keys at places [64 i, 64 i + 64) and a chunk those at places
// [512 i, 512 i + 512), whatever the block size. A query visits them in rising order and reads only
// its own q and its visible keys (kernels/tile.hpp gives the order of arithmetic). The rest of the
// batch, how a prompt was chunked, which blocks hold the keys, which rows share them and which
// thread computes affect only what is loaded together. (Needs -ffp-contract=off; otherwise the
// compiler would choose, loop by loop, where to round.)
//
// Reads only slots that some query of the call sees, so slots past a row's length, dropped window
// positions, masked keys and the null block may hold anything. A hidden key is left out, not given
// weight 0.
//
// Memory: V of a tile is prefetched while its scores are computed, and K of the next tile while its
// values are. If few queries share a tile, it is read as stored; many queries share a copy in f32.
//
// Threads: any, each with its own scratch.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"
#include "kernels/matrix.hpp"
#include "kernels/result.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

constexpr uint32_t kQueries = 64;    // query rows (token, head) of one KV head that share a tile
constexpr uint32_t kMaxRows = 1024;  // over all KV heads of a work
// Floats for all rows of a work: 256 KiB, three of which fit in a second-level cache of 1 MiB.
constexpr uint32_t kRowFloats = 64 * 1024;
// Bytes for q split into terms, for a matrix unit.
constexpr uint32_t kTermBytes = 640 * 1024;
constexpr uint32_t kChunkTokens = 8 * kTileTokens;

// The part of a call that one thread computes: query tokens [first_token, end_token), which belong
// to one row or to neighbours that share a prefix; for each KV head in [first_kv_head,
// end_kv_head), its query heads [first_query, first_query + query_count); over chunks [first_chunk,
// end_chunk). REQUIRES: their rows fit in one scratch (kv_heads_in_scratch).
struct AttendWork {
    uint32_t first_token;
    uint32_t end_token;
    uint32_t first_kv_head;
    uint32_t end_kv_head;
    uint32_t first_query;
    uint32_t query_count;
    uint32_t first_chunk;
    uint32_t end_chunk;
    // If empty, the chunks are all that the tokens see, and the result is written; otherwise each
    // chunk's state is stored here.
    ChunkStates states;
};

// The most KV heads whose queries fit in one scratch; 0 if not even one does.
uint32_t kv_heads_in_scratch(const AttendCall &call, uint32_t token_count, uint32_t query_count);

struct alignas(64) AttendScratch {
    float k[kTileTokens * kMaxLatentKDim];  // a copy of a tile
    float v[kTileTokens * kMaxHeadDim];
    float columns[kMaxLatentKDim * kTileTokens];  // K of a tile
    float packed_q[kQueries * kMaxLatentKDim];
    float q[kRowFloats];
    float chunk_out[kRowFloats];
    float out[kRowFloats];
    Softmax chunk[kMaxRows];
    Softmax total[kMaxRows];
    float scores[kQueries * kTileTokens];
    float kept[kQueries];
    MatrixScratch matrix;
    float q_factors[kMaxRows];
    // The unit takes whole groups of queries, so it may read past the last query.
    alignas(64) std::byte q_terms[kTermBytes + 16 * term_bytes(Format::e4m3, kMaxLatentKDim)];
};

// REQUIRES: the rows were checked (rows.hpp).
void attend(const AttendCall &call, const AttendWork &work, AttendScratch *scratch);

}  // namespace quire::cpu
