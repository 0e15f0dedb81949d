// SPDX-License-Identifier: Apache-2.0
//
// unit: a group's share of an attention call: up to `queries` queries that read the same keys
// (heads of a group and, if those are fewer, of several tokens) and one chunk of places.
//
// Each tile of 64 places yields scores, and compute_weights() turns them into weights. Threads
// handle the queries of one unit, or of several that are numbered consecutively (bundle.hpp).
//
// Threads: those of a block; state is kept only in shared memory.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"
#include "sight.hpp"
#include "softmax.hpp"

namespace quire::gpu {

constexpr uint32_t kTilePlaces = 64;
constexpr uint32_t kThreadsPerQuery = 8;  // that compute its weights

struct Unit {
    Row row;
    int32_t first_token;
    uint32_t kv_head;
    uint32_t first_head;  // within the KV head's group
    uint32_t heads;       // per token
    uint32_t count;       // of queries; results of later ones are discarded
    uint32_t chunk;
    int32_t chunk_begin, chunk_end;
};

QUIRE_DEVICE inline int32_t token_of(const Unit &unit, uint32_t m) {
    return unit.first_token + static_cast<int32_t>(m / unit.heads);
}
QUIRE_DEVICE inline uint32_t q_head_of(const AttendCall &call, const Unit &unit, uint32_t m) {
    return unit.kv_head * call.heads_per_kv + unit.first_head + m % unit.heads;
}

// The tokens of a unit, each with all heads of its slice of the KV head's group.
QUIRE_DEVICE inline int32_t tokens_of_unit(const AttendCall &call, uint32_t queries) {
    return static_cast<int32_t>(queries / smaller(call.heads_per_kv, queries));
}

// Sets the unit's heads and chunk from the group's index; returns the rest of that index, a place
// among the round's tokens.
QUIRE_DEVICE inline int32_t find_heads(const AttendCall &call, uint32_t queries, Unit *unit) {
    uint32_t heads = smaller(call.heads_per_kv, queries);
    uint32_t slices = (call.heads_per_kv + heads - 1) / heads;
    uint64_t left = group_index();
    unit->chunk = static_cast<uint32_t>(left % call.chunk_count);
    left /= call.chunk_count;
    auto slice = static_cast<uint32_t>(left % slices);
    left /= slices;
    unit->kv_head = static_cast<uint32_t>(left % call.kv_heads);
    unit->first_head = slice * heads;
    unit->heads = smaller(heads, call.heads_per_kv - unit->first_head);
    return static_cast<int32_t>(left / call.kv_heads);
}

QUIRE_DEVICE inline void set_row(Unit *unit, const Row &row) {
    unit->row = row;
    unit->chunk_begin = static_cast<int32_t>(unit->chunk) * kChunkPlaces;
    unit->chunk_end = smaller(unit->chunk_begin + kChunkPlaces, row.key_count);
}

// Returns false if the group has nothing to do.
QUIRE_DEVICE inline bool find_unit(const AttendCall &call, uint32_t queries, Unit *unit) {
    auto first_of_round = static_cast<int32_t>(call.first_token);
    unit->first_token = first_of_round + find_heads(call, queries, unit);
    int32_t row = load_int(call.token_rows, unit->first_token);
    if (row < 0) return false;
    set_row(unit, row_at(call, static_cast<uint32_t>(row)));
    // A unit begins at each multiple of its token count, counted from the row's first token, and at
    // the start of a round.
    int32_t tokens = tokens_of_unit(call, queries);
    int32_t in_row = unit->first_token - unit->row.first_token;
    if (in_row % tokens != 0 && unit->first_token != first_of_round) return false;
    int32_t end = unit->row.first_token + (in_row / tokens + 1) * tokens;
    end = smaller(smaller(end, unit->row.end_token), static_cast<int32_t>(call.end_token));
    unit->count = static_cast<uint32_t>(end - unit->first_token) * unit->heads;
    return true;
}

QUIRE_DEVICE inline bool may_see_any(const AttendCall &call, const Unit &unit) {
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (may_see(sight, unit.chunk_begin, unit.chunk_end)) return true;
    }
    return false;
}

// The queries that see the key at this place, one bit each.
QUIRE_DEVICE inline uint32_t seen_by(const AttendCall &call, const Unit &unit, int32_t place) {
    if (place >= unit.chunk_end) return 0;
    uint32_t seen = 0;
    uint32_t of_token = (1u << unit.heads) - 1;  // all heads of a token see the same keys
    for (uint32_t m = 0; m < unit.count; m += unit.heads) {
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        if (is_visible(call, unit.row, sight, place)) seen |= of_token << m;
    }
    return seen;
}

QUIRE_DEVICE inline uint64_t block_of(const AttendCall &call, const Unit &unit, int32_t place) {
    int64_t entry = int64_t{unit.row.index} * call.block_table_stride +
                    static_cast<uint32_t>(place) / call.block_tokens;
    return call.pool + static_cast<uint64_t>(load_int(call.block_table, entry) * call.block_stride);
}
QUIRE_DEVICE inline uint64_t k_row_of(const AttendCall &call, const Unit &unit, uint64_t block,
                                      uint32_t in_block) {
    return block + static_cast<uint64_t>(unit.kv_head * call.k_head_stride +
                                         in_block * call.k_token_stride);
}
QUIRE_DEVICE inline uint64_t v_row_of(const AttendCall &call, const Unit &unit, uint64_t block,
                                      uint32_t in_block) {
    return block + static_cast<uint64_t>(call.v_offset + unit.kv_head * call.v_head_stride +
                                         in_block * call.v_token_stride);
}

// The scale of a key's K or V; 1 if it has none.
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

// Eight threads per query turn its scores into weights and update its state. A Shared has a tile's
// `weights`, `parts`, and the state's `tops`, `sums` and `factors`; its sees() says what a query
// sees, and keep_weight() and keep_none() store the results. If `is_seen` is false, the thread's
// query sees nothing of the tile, and its state and weights stay unchanged.
template <typename Shared>
QUIRE_DEVICE inline void compute_weights(Shared &shared, bool is_seen) {
    uint32_t lane = thread_index();
    uint32_t m = lane / kThreadsPerQuery;
    uint32_t first = lane % kThreadsPerQuery;
    float top = minus_infinity();
    for (uint32_t j = first; j < kTilePlaces; j += kThreadsPerQuery) {
        if (!is_seen || !sees(shared, m, j)) continue;
        top = fmaxf(top, shared.weights[m * kTilePlaces + j]);
    }
    shared.parts[lane] = top;
    barrier();
    float before = shared.tops[m];
    top = before;
    for (uint32_t i = 0; i < kThreadsPerQuery; ++i) {
        top = fmaxf(top, shared.parts[m * kThreadsPerQuery + i]);
    }
    barrier();
    // If all scores are -inf, the weights are 0; -inf - -inf would be NaN. If all are NaN, the top
    // is -inf too, and the weights are NaN.
    float shift = top == minus_infinity() ? 0.0f : top;
    float sum = 0.0f;
    for (uint32_t j = first; is_seen && j < kTilePlaces; j += kThreadsPerQuery) {
        if (!sees(shared, m, j)) {
            keep_none(shared, m, j);
            continue;
        }
        float weight = exp_of(shared.weights[m * kTilePlaces + j] - shift);
        sum += weight;
        keep_weight(shared, m, j, weight);
    }
    shared.parts[lane] = sum;
    barrier();
    if (!is_seen || first != 0) return;
    float factor = before == minus_infinity() ? 0.0f : exp_of(before - top);
    if (top == minus_infinity()) factor = 1.0f;
    shared.factors[m] = factor;
    sum = shared.sums[m] * factor;
    for (uint32_t i = 0; i < kThreadsPerQuery; ++i) sum += shared.parts[m * kThreadsPerQuery + i];
    shared.sums[m] = sum;
    shared.tops[m] = top;
}

template <typename Shared>
QUIRE_DEVICE inline void begin_state(Shared &shared, uint32_t queries) {
    uint32_t m = thread_index();
    if (m >= queries) return;
    shared.factors[m] = 1.0f;
    shared.tops[m] = minus_infinity();
    shared.sums[m] = 0.0f;
}

}  // namespace quire::gpu
