// SPDX-License-Identifier: Apache-2.0
//
// tile: the computations over the keys of one tile and one KV head, as a table of functions.
//
// There is one table per instruction set, made from tile.cpp; kernels/targets picks one when the
// process first uses the backend. A kernel is given the address of each key's row, so block sizes,
// strides and shuffled blocks do not concern it. A key that must not be read has the address of
// zeros.
//
// Order of arithmetic, whatever else is computed together:
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

using Rows = const std::byte *const *;  // [kTileTokens], one address per key

// Rows that a later call will read, to be prefetched.
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

// The queries of a column tile come in packs: [pack][dim][kPack], the last one padded.
constexpr uint32_t kPack = 8;

// As ScoreTile, for many queries: K is in f32 and stored by columns, so that a lane is a key and no
// sums over lanes are needed.
struct ScoreColumns {
    uint32_t vectors;  // of 16 elements, of q and of a key
    uint32_t packs;
    uint32_t keys;   // a multiple of 16
    const float *q;  // [packs][16 vectors][kPack]
    const float *k;  // [16 vectors][kTileTokens]
    float *scores;   // [packs kPack][kTileTokens]
    Ahead ahead;
};

// Parameters for turning one query's scores into weights.
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

// A query's state so far: the largest score, and the sum of weights relative to it.
struct Softmax {
    float top;
    float sum;
};

struct AbsorbTile {
    Format format;
    uint32_t vectors;      // of 16 elements, of V and of a result
    const float *weights;  // [queries][kTileTokens]
    const float *kept;     // [queries]: factor for the result so far
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
    // A power of two: an element as the kernels read it, times this, is its value.
    float (*factor)(Format format);
    // Copies rows of `dim` elements to f32, one after another, each padded with zeros to a multiple
    // of 16.
    void (*stage)(Format format, Rows rows, uint32_t keys, uint32_t dim, float *copies);
    // Copies rows of `dim` elements to f32: columns[d][j] is element d of key j, 0 past the last d.
    void (*stage_columns)(Format format, Rows rows, uint32_t keys, uint32_t dim, float *columns);
    // scores[i][j] = q[i] . k[j]
    void (*score)(const ScoreTile &tile);
    // The same, bit for bit.
    void (*score_columns)(const ScoreColumns &tile);
    // Replaces scores by weights exp(score - top) v_scale, 0 where not visible, and adds them to
    // the softmax. Returns the factor for the query's result so far.
    float (*weigh)(const WeighTile &tile, float *scores, Softmax *softmax);
    // out[i] = kept[i] out[i] + sum weights[i][j] v[j]
    void (*absorb)(const AbsorbTile &tile);
    // Folds the later state, which is over other keys, into the earlier one.
    void (*fold)(Softmax *earlier, float *out, const Softmax &later, const float *later_out,
                 uint32_t vectors);
    // values[i] /= sum
    void (*divide)(float *values, float sum, uint32_t vectors);
};

}  // namespace quire::cpu
