// SPDX-License-Identifier: Apache-2.0
//
// attend: the softmax over one chunk of places, for a unit of up to eight queries.
//
// Per tile of 64 places: a lane computes its key's scores; eight lanes share a query's weights;
// then a lane accumulates its elements of V's rows. Scores, weights and sums are f32. A query's
// numbers depend only on what it sees: keys that only others of the unit see are left out of its
// sums, not multiplied by 0. Scales are multiplied into scores and weights, never into single
// codes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "dialect.glsl"
#include "../../shared/kernels/softmax.h"
#include "attend_call.glsl"
#include "../../shared/kernels/sight.h"

const uint kQueries = 8;
const uint kMostKDim = 576;
const uint kMostSlots = 8;  // of 64 elements: V has at most 512

shared float queries[kQueries][kMostKDim];
shared uint64_t v_rows[kLanes];
shared float v_scales[kLanes];

// For unit.glsl.
float value_scale(uint j) { return v_scales[j]; }

#include "unit.glsl"

// Results beyond unit.count are discarded.
uint queries_of(Unit unit) { return is_any_shape() ? unit.count : kQueries; }

void load_queries(AttendCall call, Unit unit) {
    uint dim = k_dim_of(call);
    for (uint m = 0; m < unit.count; ++m) {
        int64_t first = int64_t(token_of(unit, m)) * call.q_stride +
                        int64_t(q_head_of(call, unit, m)) * dim;
        uint64_t from = call.q + uint64_t(first) * bytes_of(q_format_of(call), 1);
        for (uint d = lane(); d < dim; d += kLanes) {
            queries[m][d] = load_number(q_format_of(call), from, d);
        }
    }
}

// The scale of a key's K or V; 1 if it has none.
float scale_of(AttendCall call, uint64_t block, uint kv_head, uint in_block, bool is_v) {
    if (has(call, is_v ? kOwnVScale : kOwnKScale)) {
        int64_t offset = is_v ? call.v_scale_offset : call.k_scale_offset;
        uint64_t at = block + uint64_t(offset + int64_t(kv_head) * call.scale_head_stride);
        return load_float(at, in_block);
    }
    if (!has(call, is_v ? kStaticVScale : kStaticKScale)) return 1.0;
    bool is_behind = is_v && !has(call, kLatent);
    return load_float(call.scales, (is_behind ? call.kv_heads : 0) + kv_head);
}

// Computes the scores of the lane's key and finds its V.
void compute_scores(AttendCall call, Unit unit, int tile) {
    int place = tile + int(lane());
    uint seen = seen_by(call, unit, place);
    visible[lane()] = seen;
    if (seen == 0) return;
    atomicOr(any_visible, 1);
    uint in_block = uint(place) % block_tokens_of(call);
    uint64_t block = block_of(call, unit, place);
    uint64_t k = k_row_of(call, unit, block, in_block);
    v_rows[lane()] = v_row_of(call, unit, block, in_block);
    v_scales[lane()] = scale_of(call, block, unit.kv_head, in_block, true);
    float k_scale = scale_of(call, block, unit.kv_head, in_block, false);
    float products[kQueries];
    [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) products[m] = 0.0;
    // In partial sums of 16, each of which rounds less than one long sum would.
    for (uint begin = 0; begin < k_dim_of(call); begin += 16) {
        float some[kQueries];
        [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) some[m] = 0.0;
        uint end = min(begin + 16, k_dim_of(call));
        uint d = begin;
        for (; d < end && has(call, kWideK); d += 4) {
            vec4 four = load_four(k_format_of(call), k, d);
            [[unroll]] for (uint e = 0; e < 4; ++e) {
                [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
                    some[m] += queries[m][d + e] * four[e];
                }
            }
        }
        for (; d < end; ++d) {
            float value = load_number(k_format_of(call), k, d);
            [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) some[m] += queries[m][d] * value;
        }
        [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) products[m] += some[m];
    }
    [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
        if (m < unit.count) {
            weights[m * kLanes + lane()] = score_at(call, unit, m, products[m] * k_scale, place);
        }
    }
}

// The lane's elements of the weighted values: numbers lane, lane + 64 and so on.
float values[kQueries][kMostSlots];

void add_values(AttendCall call, Unit unit, int tile) {
    uint dim = v_dim_of(call);
    [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
        [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) values[m][i] *= factors[m];
    }
    int count = min(unit.chunk_end - tile, int(kLanes));
    for (int j = 0; j < count; ++j) {
        uint seen = visible[j];
        if (seen == 0) continue;
        [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) {
            uint d = i * kLanes + lane();
            if (d < dim) {
                float value = load_number(v_format_of(call), v_rows[j], d);
                [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
                    if ((seen >> m & 1u) != 0) values[m][i] += weights[m * kLanes + j] * value;
                }
            }
        }
    }
}

void store_state(AttendCall call, Unit unit, uint m) {
    uint64_t state = store_softmax(call, unit, m);
    uint dim = v_dim_of(call);
    [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) {
        uint d = i * kLanes + lane();
        if (d < dim) {
            store_word(call.values + (state * dim + d) * 4, floatBitsToUint(values[m][i]));
        }
    }
}

void main() {
    if (is_idle()) return;
    AttendCall call = AttendCall(push.arguments);
    Unit unit;
    if (!find_unit(call, kQueries, workgroup(), unit)) return;
    if (!may_see_any(call, unit)) return;
    begin_state();
    load_queries(call, unit);
    [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
        [[unroll]] for (uint i = 0; i < slots_of(v_dim_of(call)); ++i) values[m][i] = 0.0;
    }
    for (int tile = unit.chunk_begin; tile < unit.chunk_end; tile += int(kLanes)) {
        if (lane() == 0) any_visible = 0;
        barrier();
        compute_scores(call, unit, tile);
        barrier();
        bool goes_on = any_visible != 0;
        barrier();
        if (!goes_on) continue;
        compute_weights();
        barrier();
        add_values(call, unit, tile);
    }
    barrier();
    [[unroll]] for (uint m = 0; m < queries_of(unit); ++m) {
        if (m < unit.count) store_state(call, unit, m);
    }
}
