// SPDX-License-Identifier: Apache-2.0
//
// attend_fragments: as attend, for q, K and V of one 16-bit type, by products of fragments: up to
// sixteen queries of a unit are the rows of a matrix, 64 keys the columns of another.
//
// Tiles of 64 places: rows of K and V are copied into shared memory, 16 bytes at a time; a warp
// multiplies all queries by 16 keys; eight threads share a query's weights; then a warp multiplies
// all weights by 16 elements of V's rows. Sums are f32. A weight is kept as two 16-bit numbers, the
// rounded one and what rounding left, so it has the precision of an f32 but for a bit or two.
//
// What a query does not see must not be multiplied by 0, for it may hold a NaN. Rows that no query
// sees are zeros here. Tiles with keys that some queries see and others do not, at the end of a
// prompt's causal rows or at a window's, are summed one by one.
//
// REQUIRES: head dims are multiples of 16, at most 128.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "fragment.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr uint32_t kRowsOfTile = kFragmentQueries;
constexpr uint32_t kFragmentThreads = kRowsOfTile * kThreadsPerQuery;
constexpr uint32_t kRowStride =
    kMostFragmentDim + 8;                   // elements; so that rows begin in other banks
constexpr uint32_t kMostColumnsOfWarp = 4;  // groups of 16 elements of V

struct FragmentShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<uint16_t, kRowsOfTile * kRowStride> queries;
    SharedArray<uint16_t, kTilePlaces * kRowStride> keys;
    SharedArray<uint16_t, kTilePlaces * kRowStride> values;
    SharedArray<float, kRowsOfTile * kTilePlaces> weights;  // scores at first
    SharedArray<uint16_t, kRowsOfTile * kTilePlaces> high;  // weights, rounded
    SharedArray<uint16_t, kRowsOfTile * kTilePlaces> low;   // and what that left
    SharedArray<uint64_t, kTilePlaces> blocks;
    SharedArray<uint32_t, kTilePlaces> visible;  // of a key: the queries that see it
    SharedArray<float, kFragmentThreads> parts;
    SharedArray<float, kRowsOfTile> tops;
    SharedArray<float, kRowsOfTile> sums;
    SharedArray<float, kRowsOfTile> factors;
    SharedArray<uint32_t, 1> format;
};

QUIRE_DEVICE inline uint16_t to_half(uint32_t format, float value) {
    uint32_t bits = bits_of(value);
    return static_cast<uint16_t>(format == kF16 ? f32_to_f16(bits) : f32_to_bf16(bits));
}

QUIRE_DEVICE inline void keep_weight(FragmentShared &shared, uint32_t m, uint32_t j, float weight) {
    uint32_t at = m * kTilePlaces + j;
    uint32_t format = shared.format[0];
    uint16_t high = to_half(format, weight);
    shared.weights[at] = weight;
    shared.high[at] = high;
    shared.low[at] = to_half(format, weight - float_of(half_to_f32(format, high)));
}
QUIRE_DEVICE inline void keep_none(FragmentShared &shared, uint32_t m, uint32_t j) {
    shared.high[m * kTilePlaces + j] = uint16_t{0};
    shared.low[m * kTilePlaces + j] = uint16_t{0};
}

QUIRE_DEVICE inline void load_queries(const AttendCall &call, FragmentShared &shared,
                                      const Unit &unit) {
    for (uint32_t m = 0; m < kRowsOfTile; ++m) {
        uint64_t from = 0;
        if (m < unit.count) {
            int64_t first = int64_t{token_of(unit, m)} * call.q_stride +
                            int64_t{q_head_of(call, unit, m)} * call.k_dim;
            from = call.q + static_cast<uint64_t>(first) * 2;
        }
        for (uint32_t d = thread_index(); d < call.k_dim; d += kFragmentThreads) {
            shared.queries[m * kRowStride + d] =
                from == 0 ? uint16_t{0} : load<uint16_t>(from + d * 2);
        }
    }
    if (thread_index() == 0) shared.format[0] = call.q_format;
    begin_state(shared, kRowsOfTile);
}

QUIRE_DEVICE inline void find_visible(const AttendCall &call, FragmentShared &shared,
                                      const Unit &unit, int32_t tile) {
    uint32_t j = thread_index();
    if (j >= kTilePlaces) return;
    int32_t place = tile + static_cast<int32_t>(j);
    uint32_t seen = seen_by(call, unit, place);
    shared.visible[j] = seen;
    if (seen != 0) shared.blocks[j] = block_of(call, unit, place);
}

// Eight elements of a row; zeros where nobody sees it.
template <uint32_t count>
QUIRE_DEVICE inline void copy_eight(const AttendCall &call, SharedArray<uint16_t, count> &to,
                                    uint32_t index, bool is_seen, uint64_t from) {
    if (is_seen && has(call, kWideRows)) {
        copy_async(to, index, from);
        return;
    }
    for (uint32_t e = 0; e < 8; ++e) {
        to[index + e] = is_seen ? load<uint16_t>(from + e * 2) : uint16_t{0};
    }
}

QUIRE_DEVICE inline void load_rows(const AttendCall &call, FragmentShared &shared, const Unit &unit,
                                   int32_t tile) {
    uint32_t k_eights = call.k_dim / 8;
    uint32_t eights = k_eights + call.v_dim / 8;
    for (uint32_t i = thread_index(); i < kTilePlaces * eights; i += kFragmentThreads) {
        uint32_t j = i / eights;
        uint32_t eight = i % eights;
        bool is_seen = shared.visible[j] != 0;
        uint64_t block = is_seen ? shared.blocks[j] : uint64_t{0};
        auto in_block = (static_cast<uint32_t>(tile) + j) % call.block_tokens;
        if (eight < k_eights) {
            copy_eight(call, shared.keys, j * kRowStride + eight * 8, is_seen,
                       k_row_of(call, unit, block, in_block) + eight * 16);
        } else {
            eight -= k_eights;
            copy_eight(call, shared.values, j * kRowStride + eight * 8, is_seen,
                       v_row_of(call, unit, block, in_block) + eight * 16);
        }
    }
}

// A warp has groups of 16 keys.
QUIRE_DEVICE inline void compute_scores(const AttendCall &call, FragmentShared &shared,
                                        const Unit &unit, int32_t tile) {
    uint32_t warps = kFragmentThreads / warp_width();
    for (uint32_t begin = thread_index() / warp_width() * 16; begin < kTilePlaces;
         begin += warps * 16) {
        Tile products;
        clear(products);
        for (uint32_t d = 0; d < call.k_dim; d += 16) {
            add_product(products, call.q_format, shared.queries, {d, kRowStride, 1}, shared.keys,
                        {begin * kRowStride + d, kRowStride, 1});
        }
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t m = row_of_sum(i);
            uint32_t j = begin + column_of_sum(i);
            if ((shared.visible[j] >> m & 1u) == 0) continue;
            int32_t key = key_position(call, unit.row, tile + static_cast<int32_t>(j));
            int32_t position = position_of(call, unit.row, token_of(unit, m));
            shared.weights[m * kTilePlaces + j] =
                score_of(call, unit, m, products.v[i], position, key);
        }
    }
}

// The warp's columns of the weighed values: groups of 16 elements, every so many warps.
struct WarpValues {
    Tile columns[kMostColumnsOfWarp];
};

QUIRE_DEVICE inline uint32_t first_column(uint32_t group) {
    uint32_t warps = kFragmentThreads / warp_width();
    return (group * warps + thread_index() / warp_width()) * 16;
}

// V as one query sees it: what it does not see is zeros.
struct SeenValues {
    FragmentShared &shared;
    uint32_t query;

    QUIRE_DEVICE uint16_t operator[](uint32_t index) {
        bool is_seen = (shared.visible[index / kRowStride] >> query & 1u) != 0;
        return is_seen ? static_cast<uint16_t>(shared.values[index]) : uint16_t{0};
    }
};

template <typename Values>
QUIRE_DEVICE inline void add_weighed(const AttendCall &call, FragmentShared &shared,
                                     uint32_t column, Values &of_values, Tile &tile) {
    for (uint32_t j = 0; j < kTilePlaces; j += 16) {
        Piece weights = {j, kTilePlaces, 1};
        Piece piece = {j * kRowStride + column, 1, kRowStride};
        add_product(tile, call.v_format, shared.high, weights, of_values, piece);
        add_product(tile, call.v_format, shared.low, weights, of_values, piece);
    }
}

// Keys that some queries see and others do not: a token after the other, and of each product its
// own rows are kept. So a query's bits are those it would have alone.
QUIRE_DEVICE inline void add_by_token(const AttendCall &call, FragmentShared &shared,
                                      const Unit &unit, uint32_t column, Tile &tile) {
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Tile with = tile;
        SeenValues seen = {shared, m};
        add_weighed(call, shared, column, seen, with);
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            uint32_t row = row_of_sum(i);
            if (row >= m && row < m + unit.heads) tile.v[i] = with.v[i];
        }
    }
}

QUIRE_DEVICE inline void add_values(const AttendCall &call, FragmentShared &shared,
                                    const Unit &unit, bool is_ragged, WarpValues &values) {
    QUIRE_UNROLL
    for (uint32_t group = 0; group < kMostColumnsOfWarp; ++group) {
        uint32_t column = first_column(group);
        if (column >= call.v_dim) continue;
        Tile &tile = values.columns[group];
        for (uint32_t i = 0; i < fragment_elements(); ++i) {
            tile.v[i] *= shared.factors[row_of_sum(i)];
        }
        if (is_ragged) {
            add_by_token(call, shared, unit, column, tile);
        } else {
            add_weighed(call, shared, column, shared.values, tile);
        }
    }
}

QUIRE_DEVICE inline void store_states(const AttendCall &call, FragmentShared &shared,
                                      const Unit &unit, const WarpValues &values) {
    uint32_t self = thread_index();
    if (self < unit.count) {
        uint64_t state =
            state_index(call, token_of(unit, self), unit.chunk, q_head_of(call, unit, self));
        store<float>(call.states + state * 8, shared.tops[self]);
        store<float>(call.states + state * 8 + 4, shared.sums[self]);
    }
    QUIRE_UNROLL
    for (uint32_t group = 0; group < kMostColumnsOfWarp; ++group) {
        uint32_t column = first_column(group);
        if (column >= call.v_dim) continue;
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

QUIRE_KERNEL(quire_attend_fragments, 128, AttendCall, call) {
    QUIRE_SHARED(FragmentShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    Unit unit;
    if (!find_unit(call, kRowsOfTile, &unit) || !may_see_any(call, unit)) return;
    load_queries(call, shared, unit);
    WarpValues values;
    for (uint32_t group = 0; group < kMostColumnsOfWarp; ++group) clear(values.columns[group]);
    for (int32_t tile = unit.chunk_begin; tile < unit.chunk_end;
         tile += static_cast<int32_t>(kTilePlaces)) {
        barrier();
        find_visible(call, shared, unit, tile);
        barrier();
        TileSight sight = look_at_tile(shared, unit);
        if (!sight.is_seen) continue;
        load_rows(call, shared, unit, tile);
        wait_copies();
        barrier();
        compute_scores(call, shared, unit, tile);
        barrier();
        compute_weights(shared);
        barrier();
        add_values(call, shared, unit, sight.is_ragged, values);
    }
    barrier();
    store_states(call, shared, unit, values);
}

}  // namespace quire::gpu
