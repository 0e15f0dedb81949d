// SPDX-License-Identifier: Apache-2.0
//
// ring: a warp's stages in shared memory, through which its pages of K and V stream.
//
// A stage holds the sixteen rows of a page's K or V. Stages are filled in the order K, V, K, V and
// emptied in that order; while one is read, the next four are on their way: 16 KiB per warp at head
// dim 128. Only lanes of the warp read what its lanes copied, so no barrier of the block is needed.
//
// Why five: two blocks of four warps then take 161 KiB of the 164 that a multiprocessor of compute
// capability 8.0 has, and 128 KiB are in flight, four times what an H200 needs to hide a latency of
// one microsecond.
//
// A row is a sequence of units of sixteen bytes. Neighbouring lanes copy neighbouring units, so a
// request covers whole sectors. Unit u of row r lies at place u ^ swizzle(r) of its row: then the
// eight rows of a matrix, which ldmatrix reads at the same u, lie in different banks.
//
// Rows that no query sees become zeros, because they may hold a NaN, and are not read.
//
// Threads: all lanes of a warp, together.
#pragma once

#include "calls.hpp"
#include "dialect_warp.hpp"
#include "number.hpp"
#include "pages.hpp"

namespace quire::gpu {

constexpr uint32_t kStages = 5;

// The shape that a decode kernel is compiled for.
template <uint32_t format, uint32_t dim>
struct DecodeShape {
    static constexpr uint32_t kFormat = format;
    static constexpr bool kIsBf16 = format == kBf16;
    static constexpr uint32_t kDim = dim;
    static constexpr uint32_t kSixteens = dim / 16;
    static constexpr uint32_t kRowUnits = dim / 8;
    static constexpr uint32_t kStageUnits = kPagePlaces * kRowUnits;
    static constexpr uint32_t kRingUnits = kStages * kStageUnits;
    // Units within which a row is swizzled.
    static constexpr uint32_t kSwizzled = kRowUnits % 8 == 0 ? 8 : 4;
    // A copy of all lanes covers 32 units: whole rows, or with 12 units a row eight rows in three.
    static constexpr uint32_t kPhases = kRowUnits == 12 ? 3 : 1;
    static constexpr uint32_t kRowsOfRound = 32 * kPhases / kRowUnits;
    static constexpr uint32_t kRounds = kPagePlaces / kRowsOfRound;
    static_assert(dim == 64 || dim == 96 || dim == 128);
};

// Rows r and r + 1 of twelve units begin 64 bytes apart in the banks, so pairs of rows count there.
template <typename Shape>
QUIRE_DEVICE constexpr uint32_t swizzle(uint32_t row) {
    return Shape::kSwizzled == 8 ? row % 8 : row / 2 % 4;
}
template <typename Shape>
QUIRE_DEVICE constexpr uint32_t unit_of_row(uint32_t row, uint32_t unit) {
    return row * Shape::kRowUnits + (unit ^ swizzle<Shape>(row));
}

// Where the lane reads a stage's matrices; the place of sixteen columns follows from that of the
// first, since swizzling is an exclusive or.
template <typename Shape>
QUIRE_DEVICE inline uint32_t unit_of_columns(uint32_t first, uint32_t sixteen) {
    uint32_t unit = 2 * sixteen;
    return (first ^ unit % Shape::kSwizzled) + unit / Shape::kSwizzled * Shape::kSwizzled;
}
// K: matrices of keys 0 to 7, elements 0 to 7 and 8 to 15; then of keys 8 to 15.
template <typename Shape>
QUIRE_DEVICE inline uint32_t first_unit_of_k() {
    uint32_t matrix = lane_index() / 8;
    return unit_of_row<Shape>(matrix / 2 * 8 + lane_index() % 8, matrix % 2);
}
// V: matrices of elements 0 to 7, keys 0 to 7 and 8 to 15; then of elements 8 to 15.
template <typename Shape>
QUIRE_DEVICE inline uint32_t first_unit_of_v() {
    uint32_t matrix = lane_index() / 8;
    return unit_of_row<Shape>(matrix % 2 * 8 + lane_index() % 8, matrix / 2);
}

// Sixteen bytes of a row that is not aligned to them.
QUIRE_DEVICE inline FourWords load_unit(uint64_t from) {
    FourWords unit;
    for (uint32_t i = 0; i < 4; ++i) {
        unit.v[i] = load<uint16_t>(from + i * 4) | uint32_t{load<uint16_t>(from + i * 4 + 2)} << 16;
    }
    return unit;
}

// The units of each page that the lane copies: those of the first round, by phase.
template <typename Shape>
struct LaneCopies {
    uint64_t from[2][Shape::kPhases];  // bytes from the page's first row of K and of V
    uint64_t step[2];                  // bytes from round to round
    uint32_t to[Shape::kPhases];
    uint32_t row[Shape::kPhases];
};

template <typename Shape>
QUIRE_DEVICE inline LaneCopies<Shape> copies_of_lane(const AttendCall &call) {
    LaneCopies<Shape> copies;
    uint64_t strides[2] = {static_cast<uint64_t>(call.k_token_stride),
                           static_cast<uint64_t>(call.v_token_stride)};
    QUIRE_UNROLL
    for (uint32_t phase = 0; phase < Shape::kPhases; ++phase) {
        uint32_t unit = phase * 32 + lane_index();
        uint32_t row = unit / Shape::kRowUnits;
        copies.row[phase] = row;
        copies.to[phase] = unit_of_row<Shape>(row, unit % Shape::kRowUnits);
        for (uint32_t side = 0; side < 2; ++side) {
            copies.from[side][phase] = row * strides[side] + unit % Shape::kRowUnits * 16;
        }
    }
    for (uint32_t side = 0; side < 2; ++side)
        copies.step[side] = Shape::kRowsOfRound * strides[side];
    return copies;
}

// Lane i holds the address of K in the warp's page i, and lane kPagesOfWarp + i that of V.
QUIRE_DEVICE inline uint64_t addresses_of_pages(const AttendCall &call, const Unit &unit,
                                                const Pages &pages) {
    uint32_t index = lane_index() % kPagesOfWarp;
    if ((pages.seen >> index & 1u) == 0) return 0;
    int32_t place = place_of_page(pages, index);
    uint64_t block = block_of(call, unit, place);
    uint32_t in_block = static_cast<uint32_t>(place) % call.block_tokens;
    return lane_index() / kPagesOfWarp % 2 == 0 ? k_row_of(call, unit, block, in_block)
                                                : v_row_of(call, unit, block, in_block);
}

template <typename Shape>
using RingOf = SharedArray<FourWords, kWarpsOfBlock * Shape::kRingUnits>;

// The row and the place, from a stage's first unit, of what the lane copies in a round.
template <typename Shape>
QUIRE_DEVICE inline uint32_t row_of_copy(const LaneCopies<Shape> &copies, uint32_t phase,
                                         uint32_t round) {
    return copies.row[phase] + round * Shape::kRowsOfRound;
}
template <typename Shape>
QUIRE_DEVICE inline uint32_t unit_of_copy(const LaneCopies<Shape> &copies, uint32_t phase,
                                          uint32_t round) {
    uint32_t rows = round * Shape::kRowsOfRound;
    // A row's bits that a round changes are above those that a lane's row has.
    uint32_t turned = Shape::kSwizzled == 8 ? rows % 8 : 0;
    return rows * Shape::kRowUnits + (copies.to[phase] ^ turned);
}

// Starts to copy a page's K (side 0) or V (1) to the stage that begins at unit `stage`.
// places: those that any query sees.
template <typename Shape>
QUIRE_DEVICE inline void copy_page(RingOf<Shape> &ring, uint32_t stage, uint64_t page,
                                   const LaneCopies<Shape> &copies, uint32_t side,
                                   uint32_t places) {
    QUIRE_UNROLL
    for (uint32_t phase = 0; phase < Shape::kPhases; ++phase) {
        uint64_t from = page + copies.from[side][phase];
        QUIRE_UNROLL
        for (uint32_t round = 0; round < Shape::kRounds; ++round) {
            bool is_seen = (places >> row_of_copy(copies, phase, round) & 1u) != 0;
            copy_unit_async(ring, stage + unit_of_copy(copies, phase, round), from, is_seen);
            from += copies.step[side];
        }
    }
}

// True if each page lies in one block, in rows that are aligned to 16 bytes.
QUIRE_DEVICE inline bool has_whole_pages(const AttendCall &call) {
    return has(call, kWideRows) && call.block_tokens % static_cast<uint32_t>(kPagePlaces) == 0;
}

// Like copy_page(), for any other pool: finds each row's block, and copies at once what is not
// aligned.
template <typename Shape>
QUIRE_DEVICE inline void copy_rows(const AttendCall &call, const Unit &unit, RingOf<Shape> &ring,
                                   uint32_t stage, int32_t page, const LaneCopies<Shape> &copies,
                                   uint32_t side, uint32_t places) {
    QUIRE_UNROLL
    for (uint32_t phase = 0; phase < Shape::kPhases; ++phase) {
        uint32_t column = (phase * 32 + lane_index()) % Shape::kRowUnits * 16;
        for (uint32_t round = 0; round < Shape::kRounds; ++round) {
            uint32_t row = row_of_copy(copies, phase, round);
            uint32_t to = stage + unit_of_copy(copies, phase, round);
            bool is_seen = (places >> row & 1u) != 0;
            uint64_t from = call.pool;
            if (is_seen) {
                int32_t place = page + static_cast<int32_t>(row);
                uint64_t block = block_of(call, unit, place);
                uint32_t in_block = static_cast<uint32_t>(place) % call.block_tokens;
                from = (side == 0 ? k_row_of(call, unit, block, in_block)
                                  : v_row_of(call, unit, block, in_block)) +
                       column;
            }
            if (has(call, kWideRows)) {
                copy_unit_async(ring, to, from, is_seen);
            } else {
                FourWords nothing = {{0, 0, 0, 0}};
                ring[to] = is_seen ? load_unit(from) : nothing;
            }
        }
    }
}

}  // namespace quire::gpu
