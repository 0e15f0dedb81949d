// SPDX-License-Identifier: Apache-2.0
//
// staging: what a block has of its queries and of a tile of 64 places in shared memory, and how it
// gets there: rows of K and V 16 bytes at a time, codes as the numbers they are, which each 16-bit
// type has. All threads of a block load a tile, for all its teams (bundle.hpp).
//
// Rows that no team's query sees are zeros here, for they may hold a NaN.
//
// Threads: all of a block, together.
#pragma once

#include "bundle.hpp"
#include "calls.hpp"
#include "dialect.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr uint32_t kRowsOfTile = kFragmentQueries;
constexpr uint32_t kRowStride =
    kMostFragmentDim + 8;  // elements; so that rows begin in other banks

// Of the teams' units one after the other: query m of team t is number t * kRowsOfTile + m, place j
// is for that team number t * kTilePlaces + j.
template <uint32_t kTeams>
struct FragmentShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<uint16_t, kTeams * kRowsOfTile * kRowStride> queries;
    SharedArray<uint16_t, kTilePlaces * kRowStride> keys;
    SharedArray<uint16_t, kTilePlaces * kRowStride> values;
    // Scores, then weights, then in the low half of each its rounded weight, and in the high half
    // what rounding left.
    SharedArray<float, kTeams * kRowsOfTile * kTilePlaces> weights;
    SharedArray<uint64_t, kTilePlaces> blocks;  // addresses; 0: nobody sees the key
    SharedArray<float, kTilePlaces> k_scales;
    SharedArray<float, kTilePlaces> v_scales;
    // Of a key: the team's queries that see it. Then the same, of the tile whose V is weighed.
    SharedArray<uint32_t, kTeams * kTilePlaces> visible;
    SharedArray<uint32_t, kTeams * kTilePlaces> seen;
    SharedArray<float, kTeams * kTeamThreads> parts;
    SharedArray<float, kTeams * kRowsOfTile> tops;
    SharedArray<float, kTeams * kRowsOfTile> sums;
    SharedArray<float, kTeams * kRowsOfTile> factors;
    SharedArray<float, kTeams * kRowsOfTile> half_scales;  // of the halves of a query's weights
};

// What is a team's of it.
template <uint32_t kTeams>
struct Team {
    Unit unit;
    uint32_t first_query;
    uint32_t first_place;
};

template <uint32_t kTeams>
QUIRE_DEVICE inline Team<kTeams> team_of(const Bundle &bundle) {
    uint32_t team = team_index<kTeams>();
    return {unit_of<kTeams>(bundle, team), team * kRowsOfTile, team * kTilePlaces};
}

// The type in which weights and V are multiplied. Of codes f16: there weights keep more bits.
QUIRE_DEVICE inline uint32_t value_type(const AttendCall &call) {
    return holds_codes(call.v_format) ? uint32_t{kF16} : call.q_format;
}

// The thread's team's.
template <uint32_t kTeams>
QUIRE_DEVICE inline void load_queries(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Team<kTeams> &team) {
    const Unit &unit = team.unit;
    for (uint32_t m = 0; m < kRowsOfTile; ++m) {
        uint64_t from = 0;
        if (m < unit.count) {
            int64_t first = int64_t{token_of(unit, m)} * call.q_stride +
                            int64_t{q_head_of(call, unit, m)} * call.k_dim;
            from = call.q + static_cast<uint64_t>(first) * 2;
        }
        for (uint32_t d = member_index<kTeams>(); d < call.k_dim; d += kTeamThreads) {
            shared.queries[(team.first_query + m) * kRowStride + d] =
                from == 0 ? uint16_t{0} : load<uint16_t>(from + d * 2);
        }
    }
    begin_state(shared, kTeams * kRowsOfTile);
}

// Of each key, whether and where it is to be read. Lanes beside each other have the same key, each
// for a team.
template <uint32_t kTeams>
QUIRE_DEVICE inline void find_visible(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Bundle &bundle, int32_t tile) {
    static_assert((kTeams & (kTeams - 1)) == 0, "lanes of a key are found by shuffles");
    if (thread_index() >= kTilePlaces * kTeams) return;
    uint32_t j = thread_index() / kTeams;
    uint32_t team = thread_index() % kTeams;
    int32_t place = tile + static_cast<int32_t>(j);
    uint32_t seen = seen_by(call, unit_of<kTeams>(bundle, team), place);
    shared.visible[team * kTilePlaces + j] = seen;
    for (uint32_t step = 1; step < kTeams; step *= 2) seen |= shuffle_xor(seen, step);
    if (team != 0) return;
    uint64_t block = seen == 0 ? 0 : block_of(call, bundle.unit, place);
    shared.blocks[j] = block;
    if (seen == 0) return;
    auto in_block = static_cast<uint32_t>(place) % call.block_tokens;
    shared.k_scales[j] = scale_of(call, block, bundle.unit.kv_head, in_block, false);
    shared.v_scales[j] = scale_of(call, block, bundle.unit.kv_head, in_block, true);
}

// Where a row lies, of which format, and of which 16-bit type it becomes; 0: nobody sees it.
struct StoredRow {
    uint64_t address;
    uint32_t format;
    uint32_t type;
};

// Sixteen elements of a row; zeros where nobody sees it.
template <uint32_t count>
QUIRE_DEVICE inline void copy_values(const AttendCall &call, SharedArray<uint16_t, count> &to,
                                     uint32_t index, uint64_t from) {
    if (from != 0 && has(call, kWideRows)) {
        copy_async(to, index, from);
        copy_async(to, index + 8, from + 16);
        return;
    }
    for (uint32_t e = 0; e < 16; ++e) {
        to[index + e] = from != 0 ? load<uint16_t>(from + e * 2) : uint16_t{0};
    }
}

// As copy_values, of codes.
template <uint32_t count>
QUIRE_DEVICE inline void copy_codes(const AttendCall &call, SharedArray<uint16_t, count> &to,
                                    uint32_t index, const StoredRow &row, uint64_t from) {
    FourWords codes = {{0, 0, 0, 0}};
    if (from != 0 && has(call, kWideRows)) {
        codes = load_constant(from);
    } else if (from != 0) {
        for (uint32_t e = 0; e < 16; ++e) {
            codes.v[e / 4] |= uint32_t{load<uint8_t>(from + e)} << (e % 4 * 8);
        }
    }
    for (uint32_t half = 0; half < 2; ++half) {
        TwoPairs first = codes_to_halves(row.format, row.type, codes.v[2 * half]);
        TwoPairs second = codes_to_halves(row.format, row.type, codes.v[2 * half + 1]);
        uint32_t pairs[4] = {first.v[0], first.v[1], second.v[0], second.v[1]};
        store_eight(to, index + half * 8, pairs);
    }
}

template <uint32_t count>
QUIRE_DEVICE inline void copy_sixteen(const AttendCall &call, SharedArray<uint16_t, count> &to,
                                      uint32_t j, uint32_t sixteen, const StoredRow &row) {
    uint32_t index = j * kRowStride + sixteen * 16;
    uint64_t from = row.address == 0 ? 0 : row.address + bytes_of(row.format, sixteen * 16);
    if (holds_codes(row.format)) {
        copy_codes(call, to, index, row, from);
    } else {
        copy_values(call, to, index, from);
    }
}

// A tile's rows of K or of V.
template <uint32_t kTeams, uint32_t count>
QUIRE_DEVICE inline void load_rows(const AttendCall &call, FragmentShared<kTeams> &shared,
                                   const Unit &unit, int32_t tile, bool is_v,
                                   SharedArray<uint16_t, count> &to) {
    uint32_t sixteens = (is_v ? call.v_dim : call.k_dim) / 16;
    for (uint32_t i = thread_index(); i < kTilePlaces * sixteens; i += kTeams * kTeamThreads) {
        uint32_t j = i / sixteens;
        StoredRow row = {0, is_v ? call.v_format : call.k_format,
                         is_v ? value_type(call) : call.q_format};
        uint64_t block = shared.blocks[j];
        if (block != 0) {
            auto in_block = (static_cast<uint32_t>(tile) + j) % call.block_tokens;
            row.address = is_v ? v_row_of(call, unit, block, in_block)
                               : k_row_of(call, unit, block, in_block);
        }
        copy_sixteen(call, to, j, i % sixteens, row);
    }
    end_copies();
}
template <uint32_t kTeams>
QUIRE_DEVICE inline void load_keys(const AttendCall &call, FragmentShared<kTeams> &shared,
                                   const Unit &unit, int32_t tile) {
    load_rows(call, shared, unit, tile, false, shared.keys);
}
template <uint32_t kTeams>
QUIRE_DEVICE inline void load_values(const AttendCall &call, FragmentShared<kTeams> &shared,
                                     const Unit &unit, int32_t tile) {
    load_rows(call, shared, unit, tile, true, shared.values);
}

}  // namespace quire::gpu
