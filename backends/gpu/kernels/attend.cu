// SPDX-License-Identifier: Apache-2.0
//
// attend: the softmax over one chunk of places, for up to eight queries that read the same keys:
// heads of a group, and where there are less than eight, of several tokens. A group of threads has
// one such unit.
//
// Tiles of 64 places: a thread computes its key's scores; eight threads share a query's weights;
// then a thread has its elements of V's rows. Scores, weights and sums are f32. A query's numbers
// depend on its own sight alone: what others of the unit see is left out of its sums, not
// multiplied by 0. Scales are multiplied into scores and weights, never into single codes.
//
// This is the kernel that has every option and every format; it is not made for speed.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "softmax.hpp"

namespace quire::gpu {

constexpr uint32_t kLanes = 64;
constexpr uint32_t kQueries = kQueriesPerUnit;
constexpr uint32_t kMostSlots = kMostValues / kLanes;  // of V's elements, for a thread

struct AttendShared {
    SharedArray<uint32_t, 1> idle;
    SharedArray<float, kQueries * kMostElements> queries;
    SharedArray<float, kQueries * kLanes> weights;  // scores at first
    SharedArray<uint32_t, kLanes> visible;          // of a key: the queries that see it
    SharedArray<uint64_t, kLanes> v_rows;
    SharedArray<float, kLanes> v_scales;
    SharedArray<float, kLanes> parts;
    SharedArray<float, kQueries> tops;
    SharedArray<float, kQueries> sums;
    SharedArray<float, kQueries> factors;
};

// What a unit is about.
struct Unit {
    Row row;
    int32_t first_token;
    uint32_t kv_head;
    uint32_t first_head;  // of the KV head's group
    uint32_t heads;       // of each token
    uint32_t count;       // of queries; of those behind it nothing is kept
    uint32_t chunk;
    int32_t chunk_begin, chunk_end;
};

QUIRE_DEVICE inline int32_t token_of(const Unit &unit, uint32_t m) {
    return unit.first_token + static_cast<int32_t>(m / unit.heads);
}
QUIRE_DEVICE inline uint32_t q_head_of(const AttendCall &call, const Unit &unit, uint32_t m) {
    return unit.kv_head * call.group + unit.first_head + m % unit.heads;
}

// False: the group has nothing to do.
QUIRE_DEVICE inline bool find_unit(const AttendCall &call, Unit *unit) {
    uint32_t heads = smaller(call.group, kQueries);
    uint32_t slices = (call.group + heads - 1) / heads;
    uint64_t left = group_index();
    unit->chunk = static_cast<uint32_t>(left % call.chunk_count);
    left /= call.chunk_count;
    auto slice = static_cast<uint32_t>(left % slices);
    left /= slices;
    unit->kv_head = static_cast<uint32_t>(left % call.kv_heads);
    auto first_of_round = static_cast<int32_t>(call.first_token);
    unit->first_token = first_of_round + static_cast<int32_t>(left / call.kv_heads);
    int32_t row = load_int(call.token_rows, unit->first_token);
    if (row < 0) return false;
    unit->row = row_at(call, static_cast<uint32_t>(row));
    // A unit begins at multiples of its tokens, counted from the row's, and where a round does.
    auto tokens = static_cast<int32_t>(kQueries / heads);
    int32_t in_row = unit->first_token - unit->row.first_token;
    if (in_row % tokens != 0 && unit->first_token != first_of_round) return false;
    int32_t end = unit->row.first_token + (in_row / tokens + 1) * tokens;
    end = smaller(smaller(end, unit->row.end_token), static_cast<int32_t>(call.end_token));
    unit->first_head = slice * heads;
    unit->heads = smaller(heads, call.group - unit->first_head);
    unit->count = static_cast<uint32_t>(end - unit->first_token) * unit->heads;
    unit->chunk_begin = static_cast<int32_t>(unit->chunk) * kChunkPlaces;
    unit->chunk_end = smaller(unit->chunk_begin + kChunkPlaces, unit->row.key_count);
    return true;
}

QUIRE_DEVICE inline bool may_see_any(const AttendCall &call, const Unit &unit) {
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (may_see(sight, unit.chunk_begin, unit.chunk_end)) return true;
    }
    return false;
}

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
    if (thread_index() >= kQueries) return;
    shared.factors[thread_index()] = 1.0f;
    shared.tops[thread_index()] = minus_infinity();
    shared.sums[thread_index()] = 0.0f;
}

// What a key counts for, beside q and k themselves.
QUIRE_DEVICE inline float scale_of(const AttendCall &call, uint64_t block, uint32_t kv_head,
                                   uint32_t in_block, bool is_v) {
    if (has(call, is_v ? kOwnVScale : kOwnKScale)) {
        int64_t offset = is_v ? call.v_scale_offset : call.k_scale_offset;
        uint64_t at = block + static_cast<uint64_t>(offset + kv_head * call.scale_head_stride);
        return load_float(at, in_block);
    }
    if (!has(call, is_v ? kStaticVScale : kStaticKScale)) return 1.0f;
    bool is_behind = is_v && !has(call, kLatent);
    return load_float(call.scales, (is_behind ? call.kv_heads : 0) + kv_head);
}

QUIRE_DEVICE inline float score_of(const AttendCall &call, const Unit &unit, uint32_t m,
                                   float product, int32_t position, int32_t key) {
    float score = product * call.scale;
    if (has(call, kSoftCap)) score = call.soft_cap * tanh_of(score / call.soft_cap);
    if (!has(call, kAlibi)) return score;
    float distance = static_cast<float>(position < key ? key - position : position - key);
    return score - call.slopes[q_head_of(call, unit, m)] * distance;
}

// The products of a key's row with the unit's queries. In sums of 16: each rounds less than one of
// all would.
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
            for (uint32_t m = 0; m < unit.count; ++m) {
                for (uint32_t e = 0; e < 4; ++e) {
                    some[m] =
                        multiply_add(shared.queries[m * kMostElements + d + e], four.v[e], some[m]);
                }
            }
        }
        for (; d < end; ++d) {
            float value = load_number(call.k_format, k, d);
            for (uint32_t m = 0; m < unit.count; ++m) {
                some[m] = multiply_add(shared.queries[m * kMostElements + d], value, some[m]);
            }
        }
        for (uint32_t m = 0; m < kQueries; ++m) products[m] += some[m];
    }
}

// The thread's key: its scores, and where its V lies.
QUIRE_DEVICE inline void compute_scores(const AttendCall &call, AttendShared &shared,
                                        const Unit &unit, int32_t tile) {
    uint32_t lane = thread_index();
    int32_t place = tile + static_cast<int32_t>(lane);
    uint32_t seen = 0;
    int32_t position[kQueries];
    for (uint32_t m = 0; m < kQueries; ++m) {
        position[m] = 0;
        if (m >= unit.count || place >= unit.chunk_end) continue;
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        position[m] = sight.position;
        if (is_visible(call, unit.row, sight, place)) seen |= 1u << m;
    }
    shared.visible[lane] = seen;
    if (seen == 0) return;
    auto in_block = static_cast<uint32_t>(place) % call.block_tokens;
    int64_t entry = int64_t{unit.row.index} * call.block_table_stride +
                    static_cast<uint32_t>(place) / call.block_tokens;
    uint64_t block =
        call.pool + static_cast<uint64_t>(load_int(call.block_table, entry) * call.block_stride);
    uint64_t k = block + static_cast<uint64_t>(unit.kv_head * call.k_head_stride +
                                               in_block * call.k_token_stride);
    shared.v_rows[lane] =
        block + static_cast<uint64_t>(call.v_offset + unit.kv_head * call.v_head_stride +
                                      in_block * call.v_token_stride);
    shared.v_scales[lane] = scale_of(call, block, unit.kv_head, in_block, true);
    float k_scale = scale_of(call, block, unit.kv_head, in_block, false);
    float products[kQueries];
    multiply_row(call, shared, unit, k, products);
    int32_t key = key_position(call, unit.row, place);
    for (uint32_t m = 0; m < unit.count; ++m) {
        shared.weights[m * kLanes + lane] =
            score_of(call, unit, m, products[m] * k_scale, position[m], key);
    }
}

// Eight threads to a query: scores become weights, and the state learns of them. False, for all:
// no query sees a key of the tile.
QUIRE_DEVICE inline bool compute_weights(AttendShared &shared) {
    uint32_t lane = thread_index();
    uint32_t m = lane / 8;
    uint32_t first = lane % 8;
    float top = minus_infinity();
    uint32_t any = 0;
    for (uint32_t j = 0; j < kLanes; ++j) any |= shared.visible[j];
    if (any == 0) return false;
    for (uint32_t j = first; j < kLanes; j += 8) {
        if ((shared.visible[j] >> m & 1u) != 0) top = fmaxf(top, shared.weights[m * kLanes + j]);
    }
    shared.parts[lane] = top;
    barrier();
    float before = shared.tops[m];
    top = before;
    for (uint32_t i = 0; i < 8; ++i) top = fmaxf(top, shared.parts[m * 8 + i]);
    barrier();
    // Scores that are all -inf weigh nothing; -inf - -inf would be NaN.
    float shift = top == minus_infinity() ? 0.0f : top;
    float sum = 0.0f;
    for (uint32_t j = first; j < kLanes; j += 8) {
        if ((shared.visible[j] >> m & 1u) == 0) continue;
        float weight = exp_of(shared.weights[m * kLanes + j] - shift);
        sum += weight;
        shared.weights[m * kLanes + j] = weight * shared.v_scales[j];
    }
    shared.parts[lane] = sum;
    barrier();
    if (first == 0) {
        float factor = before == minus_infinity() ? 0.0f : exp_of(before - top);
        if (top == minus_infinity()) factor = 1.0f;
        shared.factors[m] = factor;
        sum = shared.sums[m] * factor;
        for (uint32_t i = 0; i < 8; ++i) sum += shared.parts[m * 8 + i];
        shared.sums[m] = sum;
        shared.tops[m] = top;
    }
    return true;
}

// The thread's elements of the weighed values: numbers lane, lane + 64 and so on.
struct Weighed {
    float v[kQueries][kMostSlots];
};

QUIRE_DEVICE inline void add_values(const AttendCall &call, AttendShared &shared, const Unit &unit,
                                    int32_t tile, Weighed &values) {
    for (uint32_t m = 0; m < unit.count; ++m) {
        float factor = shared.factors[m];
        for (uint32_t i = 0; i < kMostSlots; ++i) values.v[m][i] *= factor;
    }
    auto count = static_cast<uint32_t>(smaller(unit.chunk_end - tile, int32_t{kLanes}));
    for (uint32_t j = 0; j < count; ++j) {
        uint32_t seen = shared.visible[j];
        if (seen == 0) continue;
        uint64_t row = shared.v_rows[j];
        for (uint32_t i = 0; i < kMostSlots; ++i) {
            uint32_t d = i * kLanes + thread_index();
            if (d >= call.v_dim) break;
            float value = load_number(call.v_format, row, d);
            for (uint32_t m = 0; m < unit.count; ++m) {
                if ((seen >> m & 1u) == 0) continue;
                values.v[m][i] =
                    multiply_add(shared.weights[m * kLanes + j], value, values.v[m][i]);
            }
        }
    }
}

QUIRE_DEVICE inline void store_state(const AttendCall &call, AttendShared &shared, const Unit &unit,
                                     uint32_t m, const Weighed &values) {
    uint64_t state = state_index(call, token_of(unit, m), unit.chunk, q_head_of(call, unit, m));
    if (thread_index() == 0) {
        store<float>(call.states + state * 8, shared.tops[m]);
        store<float>(call.states + state * 8 + 4, shared.sums[m]);
    }
    for (uint32_t i = 0; i < kMostSlots; ++i) {
        uint32_t d = i * kLanes + thread_index();
        if (d >= call.v_dim) break;
        store<float>(call.values + (state * call.v_dim + d) * 4, values.v[m][i]);
    }
}

QUIRE_KERNEL(quire_attend, 64, AttendCall, call) {
    QUIRE_SHARED(AttendShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    Unit unit;
    if (!find_unit(call, &unit) || !may_see_any(call, unit)) return;
    load_queries(call, shared, unit);
    Weighed values;
    for (uint32_t m = 0; m < kQueries; ++m) {
        for (uint32_t i = 0; i < kMostSlots; ++i) values.v[m][i] = 0.0f;
    }
    for (int32_t tile = unit.chunk_begin; tile < unit.chunk_end;
         tile += static_cast<int32_t>(kLanes)) {
        barrier();
        compute_scores(call, shared, unit, tile);
        barrier();
        if (!compute_weights(shared)) continue;
        barrier();
        add_values(call, shared, unit, tile, values);
    }
    barrier();
    for (uint32_t m = 0; m < unit.count; ++m) store_state(call, shared, unit, m, values);
}

}  // namespace quire::gpu
