// SPDX-License-Identifier: Apache-2.0
//
// units: the steps of one attention work, each computed at once, and where their keys lie.
//
// A unit is the keys of one tile, for one KV head and some neighbouring tokens of the work whose
// rows share the tile: usually all tokens of a row, or of several rows that share a prefix. Units
// come tile by tile, and within a tile head by head, which is the order of a block-major pool.
//
// Invariants
//   (1) a key that no token of the unit sees has the address of zeros, and its scale is 0
//   (2) a unit and the next one may be held at once: visible bits and pieces are double-buffered
//
// Units: places are tokens of a row.
//
// Threads: one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/attend.hpp"
#include "kernels/paged.hpp"
#include "kernels/sight.hpp"

namespace quire::cpu {

// Calls body(begin, end) for each run of ones, in rising order. A causal query has one.
template <typename Body>
void for_each_run(uint64_t bits, Body body) {
    while (bits != 0) {
        auto begin = static_cast<uint32_t>(std::countr_zero(bits));
        uint32_t end = begin + static_cast<uint32_t>(std::countr_one(bits >> begin));
        body(begin, end);
        bits = end == kTileTokens ? 0 : bits >> end << end;
    }
}

// A row of zeros in any format, for K or V that no token sees.
const std::byte *zero_row();

// Keys [begin, end) of a tile that are consecutive in one block.
struct Piece {
    uint32_t begin;
    uint32_t end;
    TokenPlace at;  // of the first
};

struct Pieces {
    uint32_t count;
    Piece of[kTileTokens];
};

struct Unit {
    int64_t tile;             // place of its first key
    const uint64_t *visible;  // of the tile's keys, per token of the work
    uint32_t segment;
    uint32_t first;  // tokens [first, end) of the work
    uint32_t end;
    uint32_t head;    // index in the work
    uint64_t needed;  // keys that at least one token sees
    const std::byte *k[kTileTokens];
    const std::byte *v[kTileTokens];
    const Pieces *pieces;
    // Set by load_scales() if each token and head has its own scale.
    float k_scales[kTileTokens];
    float v_scales[kTileTokens];
};

class Units {
 public:
    // REQUIRES: call and work outlive this.
    Units(const AttendCall &call, const AttendWork &work);

    // False if no key is left.
    bool first(Unit *unit);
    bool next(const Unit &unit, Unit *next);
    // Scales are prefetched when a unit is placed, and must be loaded before it is computed.
    void load_scales(Unit *unit) const;

    // `token` is an index in the work.
    const Row &row_of(uint32_t token) const { return segments_[segment_of_[token]].row; }
    const Sight &sight_of(uint32_t token) const { return sight_[token]; }

 private:
    // Some tokens of one row.
    struct Segment {
        Row row;
        int64_t first_token;
        uint32_t token_count;
        uint32_t first_index;   // of its tokens in the work
        int64_t shared_places;  // places shared with the segment before
    };
    int64_t next_tile(int64_t tile) const;
    void look(int64_t tile, uint64_t *visible) const;
    bool first_from(int64_t tile, uint64_t *visible, Unit *unit);
    uint32_t segments_behind(uint32_t segment, int64_t tile) const;
    bool set_unit(uint32_t segment, uint32_t head, Unit *unit);
    void place_tile(const Unit &unit);
    void place_unit(Unit *unit);
    void fetch_scales(const Unit &unit, int64_t offset) const;
    void copy_scales(const Unit &unit, int64_t offset, float *scales) const;

    const AttendCall &call_;
    const AttendWork &work_;
    uint32_t token_count_;
    uint32_t head_count_;
    uint32_t k_scale_kind_;
    uint32_t v_scale_kind_;
    // Addresses of a segment's keys for the first head; other heads lie at a constant distance.
    int64_t placed_tile_ = -1;
    uint32_t placed_segment_ = 0;
    Pieces pieces_[2];  // of a unit and of the next one, as in visible_
    uint32_t pieces_turn_ = 0;
    uint64_t placed_k_[kTileTokens] = {};
    uint64_t placed_v_[kTileTokens] = {};
    uint32_t segment_count_ = 0;
    Segment segments_[kQueries];
    uint32_t segment_of_[kQueries] = {};
    Sight sight_[kQueries];
    uint64_t visible_[2][kQueries];
};

}  // namespace quire::cpu
