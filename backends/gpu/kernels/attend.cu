// SPDX-License-Identifier: Apache-2.0
//
// attend: the softmax over one chunk of places, for up to eight queries that read the same keys:
// heads of a group and, if those are fewer than eight, of several tokens. A group of threads
// handles one such unit.
//
// Per tile of 64 places: a thread computes its key's scores; eight threads share a query's weights;
// then a thread accumulates its elements of V's rows. Scores, weights and sums are f32. A query's
// numbers depend only on what it sees: keys that only others of the unit see are left out of its
// sums, not multiplied by 0. Scales are multiplied into scores and weights, never into single
// codes.
//
// This kernel supports every option and every format; it is not optimized for speed.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "unit.hpp"

namespace quire::gpu {

constexpr uint32_t kLanes = kTilePlaces;
constexpr uint32_t kQueries = kQueriesPerUnit;
constexpr uint32_t kMostSlots = kMostValues / kLanes;  // V elements per thread, at most

struct AttendShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<float, kQueries * kMostElements> queries;
    SharedArray<float, kQueries * kLanes> weights;  // scores at first
    SharedArray<uint32_t, kLanes> visible;          // per key: the queries that see it
    SharedArray<uint64_t, kLanes> v_rows;
    SharedArray<float, kLanes> v_scales;
    SharedArray<float, kLanes> parts;
    SharedArray<float, kQueries> tops;
    SharedArray<float, kQueries> sums;
    SharedArray<float, kQueries> factors;
};

QUIRE_DEVICE inline bool sees(AttendShared &shared, uint32_t m, uint32_t j) {
    return (shared.visible[j] >> m & 1u) != 0;
}
QUIRE_DEVICE inline void keep_weight(AttendShared &shared, uint32_t m, uint32_t j, float weight) {
    shared.weights[m * kTilePlaces + j] = weight * shared.v_scales[j];
}
QUIRE_DEVICE inline void keep_none(AttendShared &, uint32_t, uint32_t) {}

QUIRE_DEVICE inline void load_queries(const AttendCall &call, AttendShared &shared,
                                      const Unit &unit) {
    for (uint32_t m = 0; m < unit.count; ++m) {
        int64_t first = int64_t{token_of(unit, m)} * call.q_stride +
                        int64_t{q_head_of(call, unit, m)} * call.k_dim;
        uint64_t from = call.q + static_cast<uint64_t>(first) * bytes_of(call.q_format, 1);
        for (uint32_t d = thread_index(); d < call.k_dim; d += kLanes) {
            shared.queries[m * kMostElements + d] = load_number(call.q_format, from, d);
        }
    }
    begin_state(shared, kQueries);
}

// The products of a key's row with the unit's queries, in partial sums of 16, each of which rounds
// less than one long sum would.
QUIRE_DEVICE inline void multiply_row(const AttendCall &call, AttendShared &shared,
                                      const Unit &unit, uint64_t k, float *products) {
    for (uint32_t m = 0; m < kQueries; ++m) products[m] = 0.0f;
    for (uint32_t begin = 0; begin < call.k_dim; begin += 16) {
        float some[kQueries];
        for (uint32_t m = 0; m < kQueries; ++m) some[m] = 0.0f;
        uint32_t end = smaller(begin + 16, call.k_dim);
        uint32_t d = begin;
        for (; d < end && has(call, kWideK); d += 4) {
            FourNumbers four = load_four(call.k_format, k, d);
            QUIRE_UNROLL
            for (uint32_t m = 0; m < kQueries; ++m) {
                if (m >= unit.count) continue;
                for (uint32_t e = 0; e < 4; ++e) {
                    some[m] =
                        multiply_add(shared.queries[m * kMostElements + d + e], four.v[e], some[m]);
                }
            }
        }
        for (; d < end; ++d) {
            float value = load_number(call.k_format, k, d);
            QUIRE_UNROLL
            for (uint32_t m = 0; m < kQueries; ++m) {
                if (m >= unit.count) continue;
                some[m] = multiply_add(shared.queries[m * kMostElements + d], value, some[m]);
            }
        }
        for (uint32_t m = 0; m < kQueries; ++m) products[m] += some[m];
    }
}

// Finds which queries see the thread's key.
QUIRE_DEVICE inline void find_visible(const AttendCall &call, AttendShared &shared,
                                      const Unit &unit, int32_t tile) {
    int32_t place = tile + static_cast<int32_t>(thread_index());
    shared.visible[thread_index()] = seen_by(call, unit, place);
}

// True if any query sees a key of the tile.
QUIRE_DEVICE inline bool is_tile_seen(AttendShared &shared) {
    uint32_t seen = 0;
    for (uint32_t j = 0; j < kLanes; ++j) seen |= shared.visible[j];
    return seen != 0;
}

// Computes the scores of the thread's key and finds its V.
QUIRE_DEVICE inline void compute_scores(const AttendCall &call, AttendShared &shared,
                                        const Unit &unit, int32_t tile) {
    uint32_t lane = thread_index();
    int32_t place = tile + static_cast<int32_t>(lane);
    if (shared.visible[lane] == 0) return;
    auto in_block = static_cast<uint32_t>(place) % call.block_tokens;
    uint64_t block = block_of(call, unit, place);
    shared.v_rows[lane] = v_row_of(call, unit, block, in_block);
    shared.v_scales[lane] = scale_of(call, block, unit.kv_head, in_block, true);
    float k_scale = scale_of(call, block, unit.kv_head, in_block, false);
    float products[kQueries];
    multiply_row(call, shared, unit, k_row_of(call, unit, block, in_block), products);
    int32_t key = key_position(call, unit.row, place);
    QUIRE_UNROLL
    for (uint32_t m = 0; m < kQueries; ++m) {
        if (m >= unit.count) continue;
        int32_t position = position_of(call, unit.row, token_of(unit, m));
        shared.weights[m * kLanes + lane] =
            score_of(call, unit, m, products[m] * k_scale, position, key);
    }
}

// The thread's elements of the weighted values: numbers lane, lane + 64 and so on.
struct Weighed {
    float v[kQueries][kMostSlots];
};

QUIRE_DEVICE inline void add_values(const AttendCall &call, AttendShared &shared, const Unit &unit,
                                    int32_t tile, Weighed &values) {
    QUIRE_UNROLL
    for (uint32_t m = 0; m < kQueries; ++m) {
        if (m >= unit.count) continue;
        float factor = shared.factors[m];
        for (uint32_t i = 0; i < kMostSlots; ++i) values.v[m][i] *= factor;
    }
    auto count = static_cast<uint32_t>(smaller(unit.chunk_end - tile, int32_t{kLanes}));
    for (uint32_t j = 0; j < count; ++j) {
        uint32_t seen = shared.visible[j];
        if (seen == 0) continue;
        uint64_t row = shared.v_rows[j];
        QUIRE_UNROLL
        for (uint32_t i = 0; i < kMostSlots; ++i) {
            uint32_t d = i * kLanes + thread_index();
            if (d >= call.v_dim) continue;
            float value = load_number(call.v_format, row, d);
            QUIRE_UNROLL
            for (uint32_t m = 0; m < kQueries; ++m) {
                if ((seen >> m & 1u) == 0) continue;
                values.v[m][i] =
                    multiply_add(shared.weights[m * kLanes + j], value, values.v[m][i]);
            }
        }
    }
}

QUIRE_DEVICE inline void store_states(const AttendCall &call, AttendShared &shared,
                                      const Unit &unit, const Weighed &values) {
    QUIRE_UNROLL
    for (uint32_t m = 0; m < kQueries; ++m) {
        if (m >= unit.count) continue;
        uint64_t state = state_index(call, token_of(unit, m), unit.chunk, q_head_of(call, unit, m));
        if (thread_index() == 0) {
            store<float>(call.states + state * 8, shared.tops[m]);
            store<float>(call.states + state * 8 + 4, shared.sums[m]);
        }
        QUIRE_UNROLL
        for (uint32_t i = 0; i < kMostSlots; ++i) {
            uint32_t d = i * kLanes + thread_index();
            if (d >= call.v_dim) continue;
            store<float>(call.values + (state * call.v_dim + d) * 4, values.v[m][i]);
        }
    }
}

QUIRE_KERNEL(quire_attend, 64, AttendCall, call) {
    QUIRE_SHARED(AttendShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    Unit unit;
    if (!find_unit(call, kQueries, group_index(), unit) || !may_see_any(call, unit)) return;
    load_queries(call, shared, unit);
    Weighed values;
    for (uint32_t m = 0; m < kQueries; ++m) {
        for (uint32_t i = 0; i < kMostSlots; ++i) values.v[m][i] = 0.0f;
    }
    for (int32_t tile = unit.chunk_begin; tile < unit.chunk_end;
         tile += static_cast<int32_t>(kLanes)) {
        barrier();
        find_visible(call, shared, unit, tile);
        barrier();
        if (!is_tile_seen(shared)) continue;
        compute_scores(call, shared, unit, tile);
        barrier();
        compute_weights(shared, true);
        barrier();
        add_values(call, shared, unit, tile, values);
    }
    barrier();
    store_states(call, shared, unit, values);
}

}  // namespace quire::gpu
