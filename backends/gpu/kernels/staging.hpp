// SPDX-License-Identifier: Apache-2.0
//
// staging: a block's queries and a tile of 64 places in shared memory, and how they get there. Rows
// of K and V are loaded 16 bytes at a time; codes become the numbers they stand for, which each
// 16-bit type represents exactly. All threads of a block load a tile, for all its teams
// (bundle.hpp).
//
// Rows that no team's query sees are stored as zeros, because they may hold a NaN.
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
    kMostFragmentDim + 8;  // elements; padded so that rows begin in different banks

// The teams' units lie one after another: query m of team t has index t * kRowsOfTile + m, and
// place j for that team has index t * kTilePlaces + j.
template <uint32_t kTeams>
struct FragmentShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<uint16_t, kTeams * kRowsOfTile * kRowStride> queries;
    SharedArray<uint16_t, kTilePlaces * kRowStride> keys;
    SharedArray<uint16_t, kTilePlaces * kRowStride> values;
    // Scores; then weights; then, for each weight, the rounded weight in the low half and the
    // remainder in the high half.
    SharedArray<float, kTeams * kRowsOfTile * kTilePlaces> weights;
    SharedArray<uint64_t, kTilePlaces> blocks;  // addresses; 0: no query sees the key
    SharedArray<float, kTilePlaces> k_scales;
    SharedArray<float, kTilePlaces> v_scales;
    // Per key: the team's queries that see it. `seen` is the same for the tile whose V is being
    // added.
    SharedArray<uint32_t, kTeams * kTilePlaces> visible;
    SharedArray<uint32_t, kTeams * kTilePlaces> seen;
    SharedArray<float, kTeams * kTeamThreads> parts;
    SharedArray<float, kTeams * kRowsOfTile> tops;
    SharedArray<float, kTeams * kRowsOfTile> sums;
    SharedArray<float, kTeams * kRowsOfTile> factors;
    SharedArray<float, kTeams * kRowsOfTile> half_scales;  // of the halves of a query's weights
};

// One team's part of it.
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

// The type in which weights and V are multiplied. For codes f16, where weights keep more bits.
QUIRE_DEVICE inline uint32_t value_type(const AttendCall &call) {
    return holds_codes(call.v_format) ? uint32_t{kF16} : call.q_format;
}

// Loads the queries of the thread's team.
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

// Finds, for each key, whether and where it is read. Neighbouring lanes share a key, one lane per
// team.
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

// Where a row lies (0: no query sees it), its format, and the 16-bit type it is converted to.
struct StoredRow {
    uint64_t address;
    uint32_t format;
    uint32_t type;
};

// Copies sixteen elements of a row; zeros if no query sees it.
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

// Like copy_values, for codes.
template <uint32_t count>
QUIRE_DEVICE inline void copy_codes(const AttendCall &call, SharedArray<uint16_t, count> &to,
                                    uint32_t index, const StoredRow &row, uint64_t from) {
    FourWords codes = {{0, 0, 0, 0}};
    if (from != 0 && has(call, kWideRows)) {
        codes = load<FourWords>(from);
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

// Loads a tile's rows of K or of V.
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
