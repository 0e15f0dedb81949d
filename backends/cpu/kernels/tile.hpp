// SPDX-License-Identifier: Apache-2.0
//
// tile: what is computed for the keys of one tile and one KV head, as a table of functions.
//
// There is a table for each instruction set, made from tile.cpp; kernels/targets picks one when the
// process starts to use the backend. A kernel is given the address of each key's row, so block
// sizes, strides and shuffled blocks are nothing to it. A key that is not to be read has the
// address of zeros.
//
// How arithmetic is fixed, whatever is computed together:
//     a score is the sum, over the dims in rising order, of sixteen partial sums, added as
//     kernels/lanes says
//     a value is the sum of weighted V in the order of the keys
//
// Threads: any; nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/format.hpp"

namespace quire::cpu {

constexpr uint32_t kTileTokens = 64;

using Rows = const std::byte *const *;  // [kTileTokens], one address a key

// Rows that a later call will read, to be fetched meanwhile.
struct Ahead {
    Rows rows;       // [count]
    uint32_t count;  // 0 = nothing
    uint32_t row_bytes;
};

struct ScoreTile {
    Format format;
    uint32_t vectors;  // of 16 elements, of q and of a key
    const float *q;    // [queries], q_stride elements apart
    uint32_t q_stride;
    uint32_t queries;
    uint32_t keys;  // a multiple of 16
    Rows k;
    float *scores;  // [queries][kTileTokens]
    Ahead ahead;
};

// The queries of a column tile come in packs: [pack][dim][kPack], the last one filled up.
constexpr uint32_t kPack = 8;

// As ScoreTile for many queries: K in f32 and column by column, so that a lane is a key and nothing
// has to be summed over lanes.
struct ScoreColumns {
    uint32_t vectors;  // of 16 elements, of q and of a key
    uint32_t packs;
    uint32_t keys;   // a multiple of 16
    const float *q;  // [packs][16 vectors][kPack]
    const float *k;  // [16 vectors][kTileTokens]
    float *scores;   // [packs kPack][kTileTokens]
    Ahead ahead;
};

// One query's scores become weights.
struct WeighTile {
    uint64_t visible;        // of the tile's keys; not 0
    float scale;             // of a score
    float soft_cap;          // 0 = none
    float slope;             // of distances
    float v_scale;           // of all V
    const float *k_scales;   // [kTileTokens]; NULL = 1
    const float *v_scales;   // likewise
    const float *distances;  // [kTileTokens], for ALiBi; NULL = none
};

// What a query has seen so far: the largest score and the sum of weights relative to it.
struct Softmax {
    float top;
    float sum;
};

struct AbsorbTile {
    Format format;
    uint32_t vectors;      // of 16 elements, of a V and of a result
    const float *weights;  // [queries][kTileTokens]
    const float *kept;     // [queries]: what is left of a result so far
    uint32_t queries;
    uint32_t begin;  // keys [begin, end)
    uint32_t end;
    Rows v;
    float *out;  // [queries], out_stride elements apart
    uint32_t out_stride;
    Ahead ahead;
};

struct TileKernels {
    const char *name;  // of the instruction set
    // What the kernels read of a format times this is its value. A power of two.
    float (*factor)(Format format);
    // Copies rows of `dim` elements to f32, one behind another, each with zeros behind it up to a
    // multiple of 16.
    void (*stage)(Format format, Rows rows, uint32_t keys, uint32_t dim, float *copies);
    // Copies rows of `dim` elements to f32: columns[d][j] is element d of key j, 0 behind the last.
    void (*stage_columns)(Format format, Rows rows, uint32_t keys, uint32_t dim, float *columns);
    // scores[i][j] = q[i] . k[j]
    void (*score)(const ScoreTile &tile);
    // The same, bit for bit.
    void (*score_columns)(const ScoreColumns &tile);
    // Replaces scores by weights exp(score - top) v_scale, 0 where not visible, and takes them into
    // the softmax. Returns what is to be kept of the query's results so far.
    float (*weigh)(const WeighTile &tile, float *scores, Softmax *softmax);
    // out[i] = kept[i] out[i] + sum weights[i][j] v[j]
    void (*absorb)(const AbsorbTile &tile);
    // Takes the later state, over other keys, into the earlier one.
    void (*fold)(Softmax *earlier, float *out, const Softmax &later, const float *later_out,
                 uint32_t vectors);
    // values[i] /= sum
    void (*divide)(float *values, float sum, uint32_t vectors);
};

}  // namespace quire::cpu
