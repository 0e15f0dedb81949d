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

// The shape that a decode kernel is compiled for: K and V hold 16-bit numbers of q's own type, or
// codes, beside which q may have either 16-bit type.
template <uint32_t format, uint32_t dim, uint32_t queries>
struct DecodeShape {
    static constexpr uint32_t kQueries = queries;  // of a unit, at most
    static constexpr uint32_t kGroups = queries / 8;
    static constexpr uint32_t kOfLane = 2 * kGroups;  // queries whose scores a lane has
    static constexpr uint32_t kFormat = format;
    static constexpr bool kHasCodes = format != kF16 && format != kBf16;
    static constexpr bool kIsBf16 = format == kBf16;  // V, when it is multiplied
    static constexpr uint32_t kDim = dim;
    static constexpr uint32_t kStages = kRingStages;
    static constexpr uint32_t kSixteens = dim / 16;
    static constexpr uint32_t kUnitElements = kHasCodes ? 16 : 8;
    // Sixteens that four matrices cover.
    static constexpr uint32_t kSixteensOfLoad = kUnitElements / 8;
    static constexpr uint32_t kRowUnits = dim / kUnitElements;
    static constexpr uint32_t kStageUnits = kPagePlaces * kRowUnits;
    // Scales that codes have for each row follow the stages: sixteen numbers of each stage.
    static constexpr uint32_t kScaleUnits = kHasCodes ? kPagePlaces / 4 : 0;
    static constexpr uint32_t kFirstScale = kStages * kStageUnits;
    // Rings begin at multiples of eight units, so that swizzling stays within them.
    static constexpr uint32_t kRingUnits = (kFirstScale + kStages * kScaleUnits + 7) / 8 * 8;
    // Units within which a row is swizzled.
    static constexpr uint32_t kSwizzled = kRowUnits % 8 == 0 ? 8 : kRowUnits % 4 == 0 ? 4 : 2;
    // A copy of all lanes covers 32 units: whole rows, or with 6 or 12 units a row 16 or 8 rows in
    // three.
    static constexpr uint32_t kPhases = kRowUnits % 3 == 0 ? 3 : 1;
    static constexpr uint32_t kRowsOfRound = 32 * kPhases / kRowUnits;
    static constexpr uint32_t kRounds = kPagePlaces / kRowsOfRound;
    static_assert(dim == 64 || dim == 96 || dim == 128);
};

// Eight rows of a matrix begin at one place of the banks, at two, or at four, as a row has a
// multiple of 8, 4 or 2 units.
template <typename Shape>
QUIRE_DEVICE constexpr uint32_t swizzle(uint32_t row) {
    return row * Shape::kSwizzled / 8 % Shape::kSwizzled;
}
template <typename Shape>
QUIRE_DEVICE constexpr uint32_t unit_of_row(uint32_t row, uint32_t unit) {
    return row * Shape::kRowUnits + (unit ^ swizzle<Shape>(row));
}

// Where the lane reads a stage's matrices, four at a time; the place of two units' columns follows
// from that of the first two, since swizzling is an exclusive or.
template <typename Shape>
QUIRE_DEVICE inline uint32_t unit_of_columns(uint32_t first, uint32_t pair) {
    uint32_t unit = 2 * pair;
    return (first ^ unit % Shape::kSwizzled) + unit / Shape::kSwizzled * Shape::kSwizzled;
}
// In the order of the words of a left matrix. K: matrices of the first unit, keys 0 to 7 and 8 to
// 15; then of the second.
template <typename Shape>
QUIRE_DEVICE inline uint32_t first_unit_of_k() {
    uint32_t matrix = lane_index() / 8;
    return unit_of_row<Shape>(matrix % 2 * 8 + lane_index() % 8, matrix / 2);
}
// V, turned: matrices of keys 0 to 7, the first and the second unit; then of keys 8 to 15.
template <typename Shape>
QUIRE_DEVICE inline uint32_t first_unit_of_v() {
    uint32_t matrix = lane_index() / 8;
    return unit_of_row<Shape>(matrix / 2 * 8 + lane_index() % 8, matrix % 2);
}

// Sixteen bytes of a row that is not aligned to them.
template <typename Shape>
QUIRE_DEVICE inline FourWords load_unit(uint64_t from) {
    FourWords unit = {{0, 0, 0, 0}};
    for (uint32_t i = 0; i < 16; i += 16 / Shape::kUnitElements) {
        uint32_t element =
            Shape::kHasCodes ? load<uint8_t>(from + i) : uint32_t{load<uint16_t>(from + i)};
        unit.v[i / 4] |= element << (i % 4 * 8);
    }
    return unit;
}

// The units of each page that the lane copies: those of the first round, by phase.
template <typename Shape>
struct LaneCopies {
    uint64_t from[Shape::kPhases];  // bytes from the page's first row
    uint64_t step;                  // bytes from round to round
    uint32_t to[Shape::kPhases];
    uint32_t row[Shape::kPhases];
};

// Rows of K and of V are equally far apart where whole pages are copied (has_whole_pages()).
template <typename Shape>
QUIRE_DEVICE inline LaneCopies<Shape> copies_of_lane(const AttendCall &call) {
    LaneCopies<Shape> copies;
    auto stride = static_cast<uint64_t>(call.k_token_stride);
    QUIRE_UNROLL
    for (uint32_t phase = 0; phase < Shape::kPhases; ++phase) {
        uint32_t unit = phase * 32 + lane_index();
        uint32_t row = unit / Shape::kRowUnits;
        copies.row[phase] = row;
        copies.to[phase] = unit_of_row<Shape>(row, unit % Shape::kRowUnits);
        copies.from[phase] = row * stride + unit % Shape::kRowUnits * 16;
    }
    copies.step = Shape::kRowsOfRound * stride;
    return copies;
}

// Where the scales of the page's sixteen rows are that begin at this key.
QUIRE_DEVICE inline uint64_t scales_at(const AttendCall &call, const Unit &unit, uint64_t block,
                                       uint32_t in_block, uint32_t side) {
    int64_t offset = side == 0 ? call.k_scale_offset : call.v_scale_offset;
    return block + static_cast<uint64_t>(offset + unit.kv_head * call.scale_head_stride) +
           in_block * 4;
}

// Where the lane's page of the warp's is: its rows of K, and beside codes its keys' scales.
template <typename Shape>
struct Addresses {
    uint64_t keys;
    uint64_t scales;
};

template <typename Shape>
QUIRE_DEVICE inline Addresses<Shape> addresses_of_pages(const AttendCall &call, const Unit &unit,
                                                        const Pages &pages) {
    Addresses<Shape> addresses = {0, 0};
    if ((pages.seen >> lane_index() & 1u) == 0) return addresses;
    int32_t place = place_of_page(pages, lane_index());
    uint64_t block = block_of(call, unit, place);
    uint32_t in_block = static_cast<uint32_t>(place) % call.block_tokens;
    addresses.keys = k_row_of(call, unit, block, in_block);
    if constexpr (Shape::kHasCodes) addresses.scales = scales_at(call, unit, block, in_block, 0);
    return addresses;
}

// A page's rows of K (side 0) or of V (1). REQUIRES: has_whole_pages(). All lanes of the warp,
// together.
template <typename Shape>
QUIRE_DEVICE inline uint64_t rows_of_page(const AttendCall &call, const Unit &unit,
                                          const Addresses<Shape> &addresses, uint32_t index,
                                          uint32_t side) {
    uint64_t keys = shuffle_from(addresses.keys, index);
    if (side == 0) return keys;
    int64_t between = call.v_offset + unit.kv_head * (call.v_head_stride - call.k_head_stride);
    return keys + static_cast<uint64_t>(between);
}
// The same of its scales.
template <typename Shape>
QUIRE_DEVICE inline uint64_t scales_of_page(const AttendCall &call,
                                            const Addresses<Shape> &addresses, uint32_t index,
                                            uint32_t side) {
    uint64_t of_keys = shuffle_from(addresses.scales, index);
    if (side == 0) return of_keys;
    return of_keys + static_cast<uint64_t>(call.v_scale_offset - call.k_scale_offset);
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
    return rows * Shape::kRowUnits + (copies.to[phase] ^ swizzle<Shape>(rows));
}

// Starts to copy a page's rows of K or of V to the stage that begins at unit `stage`.
// places: those that any query sees.
template <typename Shape>
QUIRE_DEVICE inline void copy_page(RingOf<Shape> &ring, uint32_t stage, uint64_t page,
                                   const LaneCopies<Shape> &copies, uint32_t places) {
    QUIRE_UNROLL
    for (uint32_t phase = 0; phase < Shape::kPhases; ++phase) {
        uint64_t from = page + copies.from[phase];
        QUIRE_UNROLL
        for (uint32_t round = 0; round < Shape::kRounds; ++round) {
            bool is_seen = (places >> row_of_copy(copies, phase, round) & 1u) != 0;
            copy_unit_async(ring, stage + unit_of_copy(copies, phase, round), from, is_seen);
            from += copies.step;
        }
    }
}

// The four scales of the lane's rows 4 lane to 4 lane + 3 of a page; REQUIRES: lane < 4.
QUIRE_DEVICE inline FourWords load_scales(const AttendCall &call, const Unit &unit, int32_t page,
                                          uint32_t side, uint32_t places) {
    FourWords four = {{0, 0, 0, 0}};
    for (uint32_t i = 0; i < 4; ++i) {
        uint32_t row = lane_index() * 4 + i;
        if ((places >> row & 1u) == 0) continue;
        int32_t place = page + static_cast<int32_t>(row);
        uint64_t block = block_of(call, unit, place);
        uint32_t in_block = static_cast<uint32_t>(place) % call.block_tokens;
        four.v[i] = load<uint32_t>(scales_at(call, unit, block, in_block, side));
    }
    return four;
}

// True if each page lies in one block, in rows and scales that are aligned to 16 bytes, and rows of
// K and of V are equally far apart.
QUIRE_DEVICE inline bool has_whole_pages(const AttendCall &call) {
    return has(call, kWideRows) && has(call, kWideScales) &&
           call.k_token_stride == call.v_token_stride &&
           call.block_tokens % static_cast<uint32_t>(kPagePlaces) == 0;
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
                ring[to] = is_seen ? load_unit<Shape>(from) : nothing;
            }
        }
    }
}

}  // namespace quire::gpu
