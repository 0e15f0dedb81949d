// SPDX-License-Identifier: Apache-2.0
//
// attend: the softmax over one chunk of places, for up to eight queries that read the same keys:
// heads of a group, and where there are less than eight, of several tokens. A workgroup has one
// such unit.
//
// Tiles of 64 places: a lane computes its key's scores; eight lanes share a query's weights; then a
// lane has its elements of V's rows. Scores, weights and sums are f32. A query's numbers depend on
// its own sight alone: what others of the unit see is left out of its sums, not multiplied by 0.
// Scales are multiplied into scores and weights, never into single codes.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "softmax.glsl"
#include "attend_call.glsl"
#include "sight.glsl"

const uint kQueries = 8;
const uint kMostKDim = 576;
const uint kMostSlots = 8;  // of 64 elements: V has at most 512

shared float queries[kQueries][kMostKDim];
shared float weights[kQueries][kLanes];  // scores at first
shared uint visible[kLanes];             // of a key: the queries that see it
shared uint64_t v_rows[kLanes];
shared float v_scales[kLanes];
shared float parts[kLanes];
shared float tops[kQueries];
shared float sums[kQueries];
shared float factors[kQueries];
shared uint any_visible;

// What a unit is about.
struct Unit {
    Row row;
    int first_token;
    uint kv_head;
    uint first_head;     // of the KV head's group
    uint heads;          // of each token
    uint count;          // of queries
    int chunk_begin, chunk_end;
};

// Of those behind unit.count nothing is kept.
uint queries_of(Unit unit) { return is_any_shape() ? unit.count : kQueries; }

int token_of(Unit unit, uint m) { return unit.first_token + int(m / unit.heads); }
uint q_head_of(Arguments call, Unit unit, uint m) {
    return unit.kv_head * group_of(call) + unit.first_head + m % unit.heads;
}

// False: the group has nothing to do.
bool find_unit(Arguments call, out Unit unit, out uint chunk) {
    uint heads = min(group_of(call), kQueries);
    uint slices = (group_of(call) + heads - 1) / heads;
    uint64_t left = group();
    chunk = uint(left % call.chunk_count);
    left /= call.chunk_count;
    uint slice = uint(left % slices);
    left /= slices;
    unit.kv_head = uint(left % call.kv_heads);
    unit.first_token = int(call.first_token) + int(left / call.kv_heads);
    int row = load_int(call.token_rows, unit.first_token);
    if (row < 0) return false;
    unit.row = row_at(call, uint(row));
    // A unit begins at multiples of its tokens, counted from the row's, and where a round does.
    int tokens = int(kQueries / heads);
    int in_row = unit.first_token - unit.row.first_token;
    if (in_row % tokens != 0 && unit.first_token != int(call.first_token)) return false;
    int end = unit.row.first_token + (in_row / tokens + 1) * tokens;
    end = min(min(end, unit.row.end_token), int(call.end_token));
    unit.first_head = slice * heads;
    unit.heads = min(heads, group_of(call) - unit.first_head);
    unit.count = uint(end - unit.first_token) * unit.heads;
    unit.chunk_begin = int(chunk) * kChunkPlaces;
    unit.chunk_end = min(unit.chunk_begin + kChunkPlaces, unit.row.key_count);
    return true;
}

void load_queries(Arguments call, Unit unit) {
    uint dim = k_dim_of(call);
    for (uint m = 0; m < unit.count; ++m) {
        int64_t first = int64_t(token_of(unit, m)) * call.q_stride +
                        int64_t(q_head_of(call, unit, m)) * dim;
        uint64_t from = call.q + uint64_t(first) * bytes_of(q_format_of(call), 1);
        for (uint d = lane(); d < dim; d += kLanes) {
            queries[m][d] = load_number(q_format_of(call), from, d);
        }
    }
    if (lane() >= kQueries) return;
    factors[lane()] = 1.0;
    tops[lane()] = kMinusInfinity;
    sums[lane()] = 0.0;
}

// What the lane's key counts for, beside q and k themselves.
float scale_of(Arguments call, uint64_t block, uint kv_head, uint in_block, bool is_v) {
    if (has(call, is_v ? kOwnVScale : kOwnKScale)) {
        int64_t offset = is_v ? call.v_scale_offset : call.k_scale_offset;
        uint64_t at = block + uint64_t(offset + int64_t(kv_head) * call.scale_head_stride);
        return load_float(at, in_block);
    }
    if (!has(call, is_v ? kStaticVScale : kStaticKScale)) return 1.0;
    bool is_behind = is_v && !has(call, kLatent);
    return load_float(call.scales, (is_behind ? call.kv_heads : 0) + kv_head);
}

float score_of(Arguments call, Unit unit, uint m, float product, int position, int key) {
    float score = product * call.scale;
    if (has(call, kSoftCap)) score = call.soft_cap * tanh_of(score / call.soft_cap);
    if (!has(call, kAlibi)) return score;
    float slope = load_float(call.slopes, q_head_of(call, unit, m));
    return score - slope * float(abs(position - key));
}

// The lane's key: its scores, and where its V lies.
void compute_scores(Arguments call, Unit unit, int tile) {
    int place = tile + int(lane());
    uint seen = 0;
    int position[kQueries];
    for (uint m = 0; m < queries_of(unit); ++m) {
        position[m] = 0;
        if (m >= unit.count || place >= unit.chunk_end) continue;
        Sight sight = sight_of(call, unit.row, token_of(unit, m));
        position[m] = sight.position;
        if (is_visible(call, unit.row, sight, place)) seen |= 1u << m;
    }
    visible[lane()] = seen;
    if (seen == 0) return;
    any_visible = 1;
    uint block_tokens = block_tokens_of(call);
    uint in_block = uint(place) % block_tokens;
    int64_t entry = int64_t(unit.row.index) * call.block_table_stride + place / int(block_tokens);
    uint64_t block = call.pool + uint64_t(load_int(call.block_table, entry) * call.block_stride);
    uint64_t k = block + uint64_t(unit.kv_head * call.k_head_stride +
                                  in_block * call.k_token_stride);
    v_rows[lane()] = block + uint64_t(call.v_offset + unit.kv_head * call.v_head_stride +
                                      in_block * call.v_token_stride);
    v_scales[lane()] = scale_of(call, block, unit.kv_head, in_block, true);
    float k_scale = scale_of(call, block, unit.kv_head, in_block, false);
    float products[kQueries];
    for (uint m = 0; m < queries_of(unit); ++m) products[m] = 0.0;
    // In sums of 16: each rounds less than one of all would.
    for (uint begin = 0; begin < k_dim_of(call); begin += 16) {
        float some[kQueries];
        for (uint m = 0; m < queries_of(unit); ++m) some[m] = 0.0;
        uint end = min(begin + 16, k_dim_of(call));
        uint d = begin;
        for (; d < end && has(call, kWideK); d += 4) {
            vec4 four = load_four(k_format_of(call), k, d);
            for (uint e = 0; e < 4; ++e) {
                for (uint m = 0; m < queries_of(unit); ++m) {
                    some[m] += queries[m][d + e] * four[e];
                }
            }
        }
        for (; d < end; ++d) {
            float value = load_number(k_format_of(call), k, d);
            for (uint m = 0; m < queries_of(unit); ++m) some[m] += queries[m][d] * value;
        }
        for (uint m = 0; m < queries_of(unit); ++m) products[m] += some[m];
    }
    int key = key_position(call, unit.row, place);
    for (uint m = 0; m < unit.count; ++m) {
        weights[m][lane()] = score_of(call, unit, m, products[m] * k_scale, position[m], key);
    }
}

// Eight lanes to a query: scores become weights, and the state learns of them.
void compute_weights() {
    uint m = lane() / 8;
    uint first = lane() % 8;
    float top = kMinusInfinity;
    for (uint j = first; j < kLanes; j += 8) {
        if ((visible[j] >> m & 1u) != 0) top = max(top, weights[m][j]);
    }
    parts[lane()] = top;
    barrier();
    float before = tops[m];
    top = before;
    for (uint i = 0; i < 8; ++i) top = max(top, parts[m * 8 + i]);
    barrier();
    // Scores that are all -inf weigh nothing; -inf - -inf would be NaN.
    float shift = top == kMinusInfinity ? 0.0 : top;
    float sum = 0.0;
    for (uint j = first; j < kLanes; j += 8) {
        if ((visible[j] >> m & 1u) == 0) continue;
        float weight = exp_of(weights[m][j] - shift);
        sum += weight;
        weights[m][j] = weight * v_scales[j];
    }
    parts[lane()] = sum;
    barrier();
    if (first != 0) return;
    float factor = before == kMinusInfinity ? 0.0 : exp_of(before - top);
    factors[m] = top == kMinusInfinity ? 1.0 : factor;
    sum = sums[m] * factors[m];
    for (uint i = 0; i < 8; ++i) sum += parts[m * 8 + i];
    sums[m] = sum;
    tops[m] = top;
}

// The lane's elements of the weighed values: numbers lane, lane + 64 and so on.
float values[kQueries][kMostSlots];

void add_values(Arguments call, Unit unit, int tile) {
    uint dim = v_dim_of(call);
    for (uint m = 0; m < queries_of(unit); ++m) {
        for (uint i = 0; i < slots_of(dim); ++i) values[m][i] *= factors[m];
    }
    int count = min(unit.chunk_end - tile, int(kLanes));
    for (int j = 0; j < count; ++j) {
        uint seen = visible[j];
        if (seen == 0) continue;
        for (uint i = 0; i < slots_of(dim); ++i) {
            uint d = i * kLanes + lane();
            if (d >= dim) continue;
            float value = load_number(v_format_of(call), v_rows[j], d);
            for (uint m = 0; m < queries_of(unit); ++m) {
                if ((seen >> m & 1u) != 0) values[m][i] += weights[m][j] * value;
            }
        }
    }
}

void store_state(Arguments call, Unit unit, uint chunk, uint m) {
    uint64_t state = state_index(call, token_of(unit, m), chunk, q_head_of(call, unit, m));
    uint dim = v_dim_of(call);
    if (lane() == 0) {
        store_word(call.states + state * 8, floatBitsToUint(tops[m]));
        store_word(call.states + state * 8 + 4, floatBitsToUint(sums[m]));
    }
    for (uint i = 0; i < slots_of(dim); ++i) {
        uint d = i * kLanes + lane();
        if (d >= dim) continue;
        store_word(call.values + (state * dim + d) * 4, floatBitsToUint(values[m][i]));
    }
}

void main() {
    if (is_idle()) return;
    Arguments call = Arguments(push.arguments);
    Unit unit;
    uint chunk;
    if (!find_unit(call, unit, chunk)) return;
    bool is_seen = false;
    uint tokens = unit.count / unit.heads;
    for (uint i = 0; i < tokens; ++i) {
        Sight sight = sight_of(call, unit.row, unit.first_token + int(i));
        is_seen = is_seen || may_see(sight, unit.chunk_begin, unit.chunk_end);
    }
    if (!is_seen) return;
    load_queries(call, unit);
    for (uint m = 0; m < queries_of(unit); ++m) {
        for (uint i = 0; i < slots_of(v_dim_of(call)); ++i) values[m][i] = 0.0;
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
    for (uint m = 0; m < queries_of(unit); ++m) {
        if (m < unit.count) store_state(call, unit, chunk, m);
    }
}
