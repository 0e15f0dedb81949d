// SPDX-License-Identifier: Apache-2.0
//
// attend_units: like attend, for q of a 16-bit type and K and V of that type or of 8-bit codes, by
// products of fragments: up to sixteen queries of a unit are the rows of a matrix, 64 keys the
// columns of another. attend_fragments (one unit) and attend_prefill (several) share this body:
// what a team of threads computes for its unit does not depend on other teams.
//
// Per tile of 64 places (staging.hpp): a warp multiplies its team's queries by 16 keys; eight
// threads share a query's weights; then a warp multiplies its team's weights by 16 elements of V's
// rows. Sums are f32. A weight is kept as two 16-bit numbers, the rounded weight and the remainder,
// so it has the precision of an f32 except for a bit or two. A query's weights of a tile share a
// power of two that makes the largest as large as the type can use: in f16 small ones would be
// subnormal, which have fewer bits and which MI200 flushes to 0 (MIOpen, "MI200 MFMA behavior
// specifics").
//
// While a tile's V is multiplied, the next tile's K is being copied, and while that K is
// multiplied, its V: so one buffer in shared memory is enough for each. Codes are not copied this
// way, because they must be converted on arrival.
//
// The remainder may be 0, and 0 times infinity is NaN where the weight times infinity is not. So
// the remainder is multiplied only by V's finite elements.
//
// Keys that a query does not see must not be multiplied by 0, because they may hold a NaN. Rows
// that no query of the block sees are zeros. Tiles with keys that some team sees but not every
// query of this one, at the end of a prompt's causal rows or of a window, are summed token by
// token. A team that sees nothing of a tile skips it, as it would alone.
//
// REQUIRES: head dims are multiples of 16, at most 128.
#pragma once

#include "bundle.hpp"
#include "calls.hpp"
#include "dialect.hpp"
#include "fragment.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "staging.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr uint32_t kMostColumnsOfWarp = 4;  // groups of 16 elements of V

QUIRE_DEVICE inline uint16_t to_half(uint32_t format, float value) {
    uint32_t bits = bits_of(value);
    return static_cast<uint16_t>(format == kF16 ? f32_to_f16(bits) : f32_to_bf16(bits));
}

template <uint32_t kTeams>
QUIRE_DEVICE inline bool sees(FragmentShared<kTeams> &shared, uint32_t m, uint32_t j) {
    uint32_t team = kTeams == 1 ? 0 : m / kRowsOfTile;
    return (shared.visible[team * kTilePlaces + j] >> (m - team * kRowsOfTile) & 1u) != 0;
}
template <uint32_t kTeams>
QUIRE_DEVICE inline void keep_weight(FragmentShared<kTeams> &shared, uint32_t m, uint32_t j,
                                     float weight) {
    shared.weights[m * kTilePlaces + j] = weight * shared.v_scales[j];
}
template <uint32_t kTeams>
QUIRE_DEVICE inline void keep_none(FragmentShared<kTeams> &shared, uint32_t m, uint32_t j) {
    shared.weights[m * kTilePlaces + j] = 0.0f;
}

// Splits the thread's weights, after compute_weights(), into two halves each.
template <uint32_t kTeams>
QUIRE_DEVICE inline void split_weights(FragmentShared<kTeams> &shared, uint32_t format) {
    uint32_t m = thread_index() / kThreadsPerQuery;
    uint32_t first = thread_index() % kThreadsPerQuery;
    float peak = 0.0f;
    for (uint32_t j = first; j < kTilePlaces; j += kThreadsPerQuery) {
        peak = fmaxf(peak, fabsf(shared.weights[m * kTilePlaces + j]));
    }
    for (uint32_t step = 1; step < kThreadsPerQuery; step *= 2) {
        peak = fmaxf(peak, shuffle_xor(peak, step));
    }
    // The peak is scaled to [2^14, 2^15) in f16, which ends at 2^16, and to [1/2, 1) in bf16, where
    // V may be as large as sums can be.
    int32_t target = format == kF16 ? 14 : -1;
    auto exponent = static_cast<int32_t>(bits_of(peak) >> 23);
    exponent = smaller(larger(exponent, 15), 252);  // so that both factors are normal numbers
    float scale = float_of(static_cast<uint32_t>(254 + target - exponent) << 23);
    for (uint32_t j = first; j < kTilePlaces; j += kThreadsPerQuery) {
        float weight = shared.weights[m * kTilePlaces + j] * scale;
        uint32_t high = to_half(format, weight);
        uint32_t low = to_half(format, weight - float_of(half_to_f32(format, high)));
        shared.weights[m * kTilePlaces + j] = float_of(high | low << 16);
    }
    if (first == 0) {
        shared.half_scales[m] = float_of(static_cast<uint32_t>(exponent - target) << 23);
    }
}

template <uint32_t kTeams>
struct HighWeights {
    FragmentShared<kTeams> &shared;
    QUIRE_DEVICE uint16_t operator[](uint32_t index) {
        return static_cast<uint16_t>(bits_of(shared.weights[index]));
    }
};
template <uint32_t kTeams>
struct LowWeights {
    FragmentShared<kTeams> &shared;
    QUIRE_DEVICE uint16_t operator[](uint32_t index) {
        return static_cast<uint16_t>(bits_of(shared.weights[index]) >> 16);
    }
};

// Each warp handles groups of 16 keys.
template <uint32_t kTeams>
QUIRE_DEVICE inline void compute_scores(const AttendCall &call, FragmentShared<kTeams> &shared,
                                        const Team<kTeams> &team, int32_t tile) {
    const Unit &unit = team.unit;
    for (uint32_t begin = warp_of_team<kTeams>() * 16; begin < kTilePlaces;
         begin += warps_of_team() * 16) {
        Tile products;
        clear(products);
        for (uint32_t d = 0; d < call.k_dim; d += 16) {
            add_product(products, call.q_format, shared.queries,
                        {team.first_query * kRowStride + d, kRowStride, 1}, shared.keys,
                        {begin * kRowStride + d, kRowStride, 1}, SmallOfA::kept);
        }
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t m = row_of_sum(i);
            uint32_t j = begin + column_of_sum(i);
            if ((shared.visible[team.first_place + j] >> m & 1u) == 0) continue;
            float k_scale = shared.k_scales[j];
            int32_t key = key_position(call, unit.row, tile + static_cast<int32_t>(j));
            int32_t position = position_of(call, unit.row, token_of(unit, m));
            shared.weights[(team.first_query + m) * kTilePlaces + j] =
                score_of(call, unit, m, products.v[i] * k_scale, position, key);
        }
    }
}

// The warp's columns of the weighted values: groups of 16 elements, dealt out to warps in turn.
struct WarpValues {
    Tile columns[kMostColumnsOfWarp];
};

template <uint32_t kTeams>
QUIRE_DEVICE inline uint32_t first_column(uint32_t group) {
    return (group * warps_of_team() + warp_of_team<kTeams>()) * 16;
}

// True if the warp has this column of V. The compile-time part of the test saves registers.
template <uint32_t kTeams>
QUIRE_DEVICE inline bool has_column(const AttendCall &call, uint32_t group) {
    return group * warps_of_team() * 16 < kMostFragmentDim &&
           first_column<kTeams>(group) < call.v_dim;
}

// V as one query sees it, with zeros for what it does not see.
template <uint32_t kTeams>
struct SeenValues {
    FragmentShared<kTeams> &shared;
    uint32_t first_place;  // of the query's team
    uint32_t query;

    QUIRE_DEVICE uint16_t operator[](uint32_t index) {
        bool is_seen = (shared.seen[first_place + index / kRowStride] >> query & 1u) != 0;
        return is_seen ? static_cast<uint16_t>(shared.values[index]) : uint16_t{0};
    }
};

// V's elements, with zeros for those that are infinite or NaN.
template <typename Values>
struct FiniteValues {
    Values &values;
    uint32_t exponent;  // bits that are all set in an infinity or a NaN

    QUIRE_DEVICE uint16_t operator[](uint32_t index) {
        uint16_t bits = values[index];
        return (bits & exponent) == exponent ? uint16_t{0} : bits;
    }
};

template <uint32_t kTeams, typename Values>
QUIRE_DEVICE inline void add_weighed(const AttendCall &call, FragmentShared<kTeams> &shared,
                                     const Team<kTeams> &team, uint32_t column, Values &of_values,
                                     Tile &tile) {
    FiniteValues<Values> finite = {of_values, value_type(call) == kF16 ? 0x7C00u : 0x7F80u};
    HighWeights<kTeams> high = {shared};
    LowWeights<kTeams> low = {shared};
    for (uint32_t j = 0; j < kTilePlaces; j += 16) {
        Piece weights = {team.first_query * kTilePlaces + j, kTilePlaces, 1};
        Piece piece = {j * kRowStride + column, 1, kRowStride};
        add_product(tile, value_type(call), high, weights, of_values, piece, SmallOfA::any);
        add_product(tile, value_type(call), low, weights, finite, piece, SmallOfA::any);
    }
}

// For keys that only some queries see: multiplies once per token and keeps that token's rows of the
// product. So a query's bits are those it would have alone.
template <uint32_t kTeams>
QUIRE_DEVICE inline void add_by_token(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Team<kTeams> &team, uint32_t column, Tile &tile) {
    const Unit &unit = team.unit;
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Tile with;
        clear(with);
        SeenValues<kTeams> seen = {shared, team.first_place, m};
        add_weighed(call, shared, team, column, seen, with);
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t row = row_of_sum(i);
            if (row >= m && row < m + unit.heads) tile.v[i] = with.v[i];
        }
    }
}

// One call per column: a loop that is not unrolled would put the sums on the stack.
template <uint32_t kTeams, uint32_t kGroup = 0>
QUIRE_DEVICE inline void add_values(const AttendCall &call, FragmentShared<kTeams> &shared,
                                    const Team<kTeams> &team, bool is_ragged, WarpValues &values) {
    if (has_column<kTeams>(call, kGroup)) {
        uint32_t column = first_column<kTeams>(kGroup);
        Tile tile;
        clear(tile);
        if (is_ragged) {
            add_by_token(call, shared, team, column, tile);
        } else {
            add_weighed(call, shared, team, column, shared.values, tile);
        }
        Tile &sums = values.columns[kGroup];
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t m = team.first_query + row_of_sum(i);
            sums.v[i] = sums.v[i] * shared.factors[m] + tile.v[i] * shared.half_scales[m];
        }
    }
    if constexpr (kGroup + 1 < kMostColumnsOfWarp) {
        add_values<kTeams, kGroup + 1>(call, shared, team, is_ragged, values);
    }
}

template <uint32_t kTeams>
QUIRE_DEVICE inline void store_states(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Team<kTeams> &team, const WarpValues &values) {
    const Unit &unit = team.unit;
    uint32_t self = member_index<kTeams>();
    if (self < unit.count) {
        uint64_t state =
            state_index(call, token_of(unit, self), unit.chunk, q_head_of(call, unit, self));
        store<float>(call.states + state * 8, shared.tops[team.first_query + self]);
        store<float>(call.states + state * 8 + 4, shared.sums[team.first_query + self]);
    }
    QUIRE_UNROLL
    for (uint32_t group = 0; group < kMostColumnsOfWarp; ++group) {
        if (!has_column<kTeams>(call, group)) continue;
        uint32_t column = first_column<kTeams>(group);
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t m = row_of_sum(i);
            if (m >= unit.count) continue;
            uint64_t state =
                state_index(call, token_of(unit, m), unit.chunk, q_head_of(call, unit, m));
            uint64_t at = state * call.v_dim + column + column_of_sum(i);
            store<float>(call.values + at * 4, values.columns[group].v[i]);
        }
    }
}

// How a tile's keys relate to the thread's team; the same for all threads of a team.
struct TileSight {
    bool is_seen;    // by a query of any team; the same for all threads of the block
    bool is_own;     // by a query of this team
    bool is_ragged;  // not all queries of the team see each seen key
};
template <uint32_t kTeams>
QUIRE_DEVICE inline TileSight look_at_tile(FragmentShared<kTeams> &shared,
                                           const Team<kTeams> &team) {
    uint32_t all = (1u << team.unit.count) - 1;
    TileSight of_lane = {false, false, false};
    for (uint32_t j = lane_index(); j < kTilePlaces; j += warp_width()) {
        if (shared.blocks[j] == 0) continue;
        uint32_t seen = shared.visible[team.first_place + j];
        of_lane.is_seen = true;
        of_lane.is_own = of_lane.is_own || seen != 0;
        of_lane.is_ragged = of_lane.is_ragged || seen != all;
    }
    TileSight sight;
    sight.is_seen = ballot(of_lane.is_seen) != 0;
    sight.is_own = kTeams == 1 ? sight.is_seen : ballot(of_lane.is_own) != 0;
    sight.is_ragged = ballot(of_lane.is_ragged) != 0;
    return sight;
}

// The first tile from this one on that any query sees; the chunk's end if none.
template <uint32_t kTeams>
QUIRE_DEVICE inline int32_t find_tile(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Bundle &bundle, const Team<kTeams> &team, int32_t tile,
                                      TileSight *sight) {
    for (; tile < bundle.unit.chunk_end; tile += static_cast<int32_t>(kTilePlaces)) {
        find_visible(call, shared, bundle, tile);
        barrier();
        *sight = look_at_tile(shared, team);
        if (sight->is_seen) return tile;
        barrier();
    }
    return bundle.unit.chunk_end;
}

template <uint32_t kTeams>
QUIRE_DEVICE inline void keep_sight(FragmentShared<kTeams> &shared) {
    uint32_t i = thread_index();
    if (i < kTeams * kTilePlaces) shared.seen[i] = shared.visible[i];
}

// The softmax over a bundle's chunk, stored as its queries' states.
template <uint32_t kTeams>
QUIRE_DEVICE inline void attend_units(const AttendCall &call, FragmentShared<kTeams> &shared,
                                      const Bundle &bundle) {
    Team<kTeams> team = team_of<kTeams>(bundle);
    load_queries(call, shared, team);
    WarpValues values;
    for (uint32_t group = 0; group < kMostColumnsOfWarp; ++group) clear(values.columns[group]);
    int32_t end = bundle.unit.chunk_end;
    TileSight sight = {false, false, false};
    int32_t tile = find_tile(call, shared, bundle, team, bundle.unit.chunk_begin, &sight);
    if (tile < end) {
        load_keys(call, shared, bundle.unit, tile);
        load_values(call, shared, bundle.unit, tile);
    }
    while (tile < end) {
        bool is_own = kTeams == 1 || sight.is_own;
        bool is_ragged = sight.is_ragged;
        wait_older_copies();  // K has arrived
        barrier();
        if (is_own) compute_scores(call, shared, team, tile);
        barrier();
        compute_weights(shared, is_own);
        if (is_own) split_weights(shared, value_type(call));
        keep_sight(shared);
        barrier();
        tile =
            find_tile(call, shared, bundle, team, tile + static_cast<int32_t>(kTilePlaces), &sight);
        bool is_last = tile >= end;
        if (is_last) {
            wait_copies();
        } else {
            load_keys(call, shared, bundle.unit, tile);
            wait_older_copies();  // V has arrived
        }
        barrier();
        if (is_own) add_values(call, shared, team, is_ragged, values);
        barrier();
        if (!is_last) load_values(call, shared, bundle.unit, tile);
    }
    store_states(call, shared, team, values);
}

}  // namespace quire::gpu
