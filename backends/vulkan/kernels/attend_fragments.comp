// SPDX-License-Identifier: Apache-2.0
//
// attend_fragments: like attend, for f16 q, K and V, by products of fragments (fragment.glsl): up
// to sixteen queries of a unit are the rows of a matrix, 64 keys the columns of another.
//
// Per tile of 64 places: rows of K are staged in shared memory, 64 elements of each at a time, and
// multiplied by all queries; lanes turn the products into scores and those into weights; rows of V
// are staged in the same memory and multiplied by all weights. Sums are f32.
//
// A weight, at most 1, is multiplied by 2^15 and kept as two f16 numbers, the rounded weight and
// the remainder. So weights down to 2^-18 keep 22 bits, and smaller ones the part above 2^-40.
//
// Keys that a query does not see must not be multiplied by 0, because they may hold a NaN or an
// infinity. Rows that no query sees are stored as zeros. If a row that only some queries see has
// such an element, the unit's tokens are processed one after another, each with its own rows and
// zeros for the others; the bits are the same, since finite values times 0 add nothing.
//
// REQUIRES: head dims are multiples of 16, at most 256.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "dialect.glsl"
#include "../../shared/kernels/softmax.h"
#include "attend_call.glsl"
#include "../../shared/kernels/sight.h"

const uint kQueries = 16;
const uint kMostDim = 256;
const uint kSlice = 64;                     // elements of rows that are staged at a time
const uint kMostSlices = kMostDim / kSlice;
const float kWeightScale = 32768.0;

float value_scale(uint j) { return kWeightScale; }

#include "unit.glsl"

// f16 elements in groups of eight. Strides are odd, so that rows begin in different banks.
const uint kQueryStride = kMostDim / 8 + 1;
const uint kRowStride = kSlice / 8 + 1;
const uint kWeightStride = kLanes / 8 + 1;
const uint kRowsBegin = kQueries * kQueryStride;           // of K or V
const uint kHighBegin = kRowsBegin + kLanes * kRowStride;  // weights, rounded
const uint kLowBegin = kHighBegin + kQueries * kWeightStride;
shared uvec4 halves[kLowBegin + kQueries * kWeightStride];
shared uint64_t blocks[kLanes];
shared uint is_wild;  // a value that only some queries see is infinite or NaN

#include "fragment.glsl"

// Loads eight f16 numbers; is_wide: they are aligned to 16 bytes.
uvec4 load_eight(uint64_t from, bool is_wide) {
    if (is_wide) return FourWords(real(from)).v;
    uvec4 eight;
    [[unroll]] for (uint i = 0; i < 4; ++i) {
        eight[i] = load_half(from + i * 4) | load_half(from + i * 4 + 2) << 16;
    }
    return eight;
}

void load_queries(AttendCall call, Unit unit) {
    uint dim = k_dim_of(call);
    uint eights = dim / 8;
    for (uint i = lane(); i < kQueries * eights; i += kLanes) {
        uint m = i / eights;
        uvec4 eight = uvec4(0);
        if (m < unit.count) {
            int64_t first = int64_t(token_of(unit, m)) * call.q_stride +
                            int64_t(q_head_of(call, unit, m)) * dim;
            eight = load_eight(call.q + uint64_t(first) * 2 + i % eights * 16, false);
        }
        halves[m * kQueryStride + i % eights] = eight;
    }
}

void find_visible(AttendCall call, Unit unit, int tile) {
    int place = tile + int(lane());
    uint seen = seen_by(call, unit, place);
    visible[lane()] = seen;
    if (seen == 0) return;
    atomicOr(any_visible, 1);
    blocks[lane()] = block_of(call, unit, place);
}

bool has_no_number(uvec4 eight) {
    return any(equal(eight & 0x7C00u, uvec4(0x7C00u))) ||
           any(equal(eight & 0x7C000000u, uvec4(0x7C000000u)));
}

// Stages elements from `begin` on of rows that one of `queries` sees, and zeros for others.
void stage_rows(AttendCall call, Unit unit, int tile, uint begin, bool is_v, uint queries) {
    uint dim = is_v ? v_dim_of(call) : k_dim_of(call);
    uint eights = min(kSlice, dim - begin) / 8;
    uint all = (1u << unit.count) - 1;
    bool is_wide = has(call, is_v ? kWideV : kWideK);
    for (uint i = lane(); i < kLanes * eights; i += kLanes) {
        uint j = i / eights;
        uint seen = visible[j];
        uvec4 eight = uvec4(0);
        if ((seen & queries) != 0) {
            uint in_block = uint(tile + int(j)) % block_tokens_of(call);
            uint64_t row = is_v ? v_row_of(call, unit, blocks[j], in_block)
                                : k_row_of(call, unit, blocks[j], in_block);
            eight = load_eight(row + (begin + i % eights * 8) * 2, is_wide);
            if (is_v && seen != all && has_no_number(eight)) atomicOr(is_wild, 1);
        }
        halves[kRowsBegin + j * kRowStride + i % eights] = eight;
    }
}

// Each team handles groups of 16 keys.
void add_scores(uint begin, uint count) {
    for (uint key = team() * 16; key < kLanes; key += team_count() * 16) {
        Sum sum = no_sum();
        if (begin != 0) sum = load_sum(key, kLanes);
        for (uint d = 0; d < count; d += 16) {
            Left q = load_left((begin + d) / 8, kQueryStride);
            Right k = load_right_turned(kRowsBegin + key * kRowStride + d / 8, kRowStride);
            sum = add_product(q, k, sum);
        }
        store_sum(sum, key, kLanes);
    }
}

void compute_scores(AttendCall call, Unit unit, int tile) {
    uint dim = k_dim_of(call);
    for (uint begin = 0; begin < dim; begin += kSlice) {
        stage_rows(call, unit, tile, begin, false, ~0u);
        barrier();
        add_scores(begin, min(kSlice, dim - begin));
        barrier();
    }
    uint seen = visible[lane()];
    for (uint m = 0; m < unit.count; ++m) {
        if ((seen >> m & 1u) == 0) continue;
        uint at = m * kLanes + lane();
        weights[at] = score_at(call, unit, m, weights[at], tile + int(lane()));
    }
}

uint high_of(float weight) { return f32_to_f16(floatBitsToUint(weight)); }
uint low_of(float weight, uint high) {
    precise float left = weight - uintBitsToFloat(f16_to_f32(high));
    return f32_to_f16(floatBitsToUint(left));
}

// Packs f32 weights as two f16 numbers each; 0 where a query does not see the key.
void pack_weights() {
    for (uint i = lane(); i < kQueries * kLanes / 8; i += kLanes) {
        uint m = i / (kLanes / 8);
        uint eight = i % (kLanes / 8);
        uvec4 high = uvec4(0);
        uvec4 low = uvec4(0);
        [[unroll]] for (uint e = 0; e < 8; ++e) {
            uint j = eight * 8 + e;
            if ((visible[j] >> m & 1u) != 0) {
                float weight = weights[m * kLanes + j];
                uint rounded = high_of(weight);
                high[e / 2] |= rounded << (e % 2 * 16);
                low[e / 2] |= low_of(weight, rounded) << (e % 2 * 16);
            }
        }
        halves[kHighBegin + m * kWeightStride + eight] = high;
        halves[kLowBegin + m * kWeightStride + eight] = low;
    }
}

// Multiplies all weights by the staged rows; the results replace the f32 weights. Each team handles
// groups of 16 elements.
void weigh_rows(uint count) {
    for (uint d = team() * 16; d < count; d += team_count() * 16) {
        Sum sum = no_sum();
        for (uint j = 0; j < kLanes; j += 16) {
            Right v = load_right(kRowsBegin + j * kRowStride + d / 8, kRowStride);
            sum = add_product(load_left(kHighBegin + j / 8, kWeightStride), v, sum);
            sum = add_product(load_left(kLowBegin + j / 8, kWeightStride), v, sum);
        }
        store_sum(sum, d, kLanes);
    }
}

// The lane's elements of the weighted values: numbers lane, lane + 64 and so on.
float values[kQueries][kMostSlices];

// Adds what weigh_rows() computed, of `count` elements and queries [begin, end). A constant `slice`
// keeps the values in registers.
void add_slice(uint slice, uint begin, uint end, uint count) {
    [[unroll]] for (uint m = 0; m < kQueries; ++m) {
        if (m >= begin && m < end && lane() < count) {
            float added = weights[m * kLanes + lane()] * (1.0 / kWeightScale);
            values[m][slice] = values[m][slice] * factors[m] + added;
        }
    }
}

void add_values(AttendCall call, Unit unit, int tile) {
    uint dim = v_dim_of(call);
    for (uint slice = 0; slice * kSlice < dim; ++slice) {
        uint begin = slice * kSlice;
        uint count = min(kSlice, dim - begin);
        if (lane() == 0) is_wild = 0;
        barrier();
        stage_rows(call, unit, tile, begin, true, ~0u);
        barrier();
        bool by_token = is_wild != 0;
        uint step = by_token ? unit.heads : unit.count;
        for (uint first = 0; first < unit.count; first += step) {
            if (by_token) {
                stage_rows(call, unit, tile, begin, true, ((1u << step) - 1) << first);
                barrier();
            }
            weigh_rows(count);
            barrier();
            [[unroll]] for (uint i = 0; i < kMostSlices; ++i) {
                if (i == slice) add_slice(i, first, first + step, count);
            }
            barrier();
        }
    }
}

void store_state(AttendCall call, Unit unit, uint m) {
    uint64_t state = store_softmax(call, unit, m);
    uint dim = v_dim_of(call);
    [[unroll]] for (uint slice = 0; slice < kMostSlices; ++slice) {
        uint d = slice * kSlice + lane();
        if (d < dim) {
            store_word(call.values + (state * dim + d) * 4, floatBitsToUint(values[m][slice]));
        }
    }
}

void main() {
    if (is_idle()) return;
    AttendCall call = AttendCall(push.arguments);
    Unit unit;
    if (!find_unit(call, kQueries, workgroup(), unit) || !may_see_any(call, unit)) return;
    begin_state();
    load_queries(call, unit);
    [[unroll]] for (uint m = 0; m < kQueries; ++m) {
        [[unroll]] for (uint slice = 0; slice < kMostSlices; ++slice) values[m][slice] = 0.0;
    }
    for (int tile = unit.chunk_begin; tile < unit.chunk_end; tile += int(kLanes)) {
        if (lane() == 0) any_visible = 0;
        barrier();
        find_visible(call, unit, tile);
        barrier();
        bool goes_on = any_visible != 0;
        barrier();
        if (!goes_on) continue;
        compute_scores(call, unit, tile);
        barrier();
        compute_weights();
        barrier();
        pack_weights();
        add_values(call, unit, tile);
    }
    barrier();
    [[unroll]] for (uint m = 0; m < kQueries; ++m) {
        if (m < unit.count) store_state(call, unit, m);
    }
}
