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
// calculation for softmax, 2018.) Tiles are summed up chunk by chunk, and the chunks' states folded
// into one another in rising order, so that chunks may be computed by several threads. A sink logit
// is a key of value 0 that came first: the fold begins with m = sink, l = 1.
//
// Batch invariance: a tile holds the keys of places [64 i, 64 i + 64) and a chunk those of places
// [512 i, 512 i + 512), whatever the block size; a query visits them in rising order, and what it
// computes reads only its own q and its visible keys (kernels/tile.hpp says in which order). What
// shares the batch, how a prompt was chunked, which blocks hold the keys, which rows share them and
// which thread computes decide only what is loaded together. (Needs -ffp-contract=off: else it
// would be the compiler's choice, loop by loop, where to round.)
//
// Reads only slots that some query of the call sees, so slots behind a row's length, dropped window
// positions, keys that a mask hides and the null block may hold anything. A hidden key is left out,
// not weighed with 0.
//
// Memory: V of a tile is fetched while its scores are computed, K of the next one while its values
// are. Where few queries share a tile it is read as it is stored; many queries share a copy in f32.
//
// Threads: one scratch each.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"
#include "kernels/matrix.hpp"
#include "kernels/result.hpp"
#include "kernels/tile.hpp"

namespace quire::cpu {

constexpr uint32_t kQueries = 64;    // query rows (token, head) of one KV head that share a tile
constexpr uint32_t kMaxRows = 1024;  // of all KV heads of a work
// Of all rows of a work: 256 KiB, of which three fit into a second-level cache of 1 MiB.
constexpr uint32_t kRowFloats = 64 * 1024;
// Of q in terms, for a matrix unit.
constexpr uint32_t kTermBytes = 640 * 1024;
constexpr uint32_t kChunkTokens = 8 * kTileTokens;

// A part of a call that one thread computes: query tokens [first_token, end_token), which are of
// one row, or of neighbours that share a prefix; of KV heads [first_kv_head, end_kv_head) the query
// heads [first_query, first_query + query_count) of each; over chunks [first_chunk, end_chunk).
// REQUIRES: their rows fit into a scratch (kv_heads_in_scratch).
struct AttendWork {
    uint32_t first_token;
    uint32_t end_token;
    uint32_t first_kv_head;
    uint32_t end_kv_head;
    uint32_t first_query;
    uint32_t query_count;
    uint32_t first_chunk;
    uint32_t end_chunk;
    // None: the chunks are all that the tokens see, and the result is written. Else each chunk's
    // state is left there.
    ChunkStates states;
};

// The most KV heads whose queries fit into one scratch; 0: not even one.
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
    // A unit takes whole groups of queries, and finds something behind the last one.
    alignas(64) std::byte q_terms[kTermBytes + 16 * term_bytes(Format::e4m3, kMaxLatentKDim)];
};

// REQUIRES: the rows were checked (rows.hpp).
void attend(const AttendCall &call, const AttendWork &work, AttendScratch *scratch);

}  // namespace quire::cpu
