// SPDX-License-Identifier: Apache-2.0
//
// unit: shared/kernels/unit.h for one workgroup, the state of its queries' softmax, and how scores
// become weights.
//
// Keys come in tiles of 64. A query's numbers depend only on what it sees.
//
// REQUIRES: the including file has defined kQueries, and value_scale(): the factor of a weight
// before it is used, such as its value's scale.

const uint kLanesOfQuery = kLanes / kQueries;

shared float weights[kQueries * kLanes];  // of query m and key j at m * kLanes + j; scores at first
shared uint visible[kLanes];              // per key: the queries that see it
shared float parts[kLanes];
shared float tops[kQueries];
shared float sums[kQueries];
shared float factors[kQueries];
shared uint any_visible;

float slope_of(AttendCall call, uint q_head) { return load_float(call.slopes, q_head); }

#include "../../shared/kernels/unit.h"

void begin_state() {
    if (lane() >= kQueries) return;
    factors[lane()] = 1.0;
    tops[lane()] = kMinusInfinity;
    sums[lane()] = 0.0;
}

// The score of query m and the key at a place. ALiBi alone needs positions.
float score_at(AttendCall call, Unit unit, uint m, float product, int place) {
    if (!has(call, kAlibi)) return score_of(call, unit, m, product, 0, 0);
    int position = position_of(call, unit.row, token_of(unit, m));
    return score_of(call, unit, m, product, position, key_position(call, unit.row, place));
}

// Several lanes per query turn its scores into weights and update its state.
void compute_weights() {
    uint m = lane() / kLanesOfQuery;
    uint first = lane() % kLanesOfQuery;
    float top = kMinusInfinity;
    for (uint j = first; j < kLanes; j += kLanesOfQuery) {
        if ((visible[j] >> m & 1u) != 0) top = max(top, weights[m * kLanes + j]);
    }
    parts[lane()] = top;
    barrier();
    float before = tops[m];
    top = before;
    for (uint i = 0; i < kLanesOfQuery; ++i) top = max(top, parts[m * kLanesOfQuery + i]);
    barrier();
    // If all scores are -inf, the weights are 0; -inf - -inf would be NaN.
    float shift = top == kMinusInfinity ? 0.0 : top;
    float sum = 0.0;
    for (uint j = first; j < kLanes; j += kLanesOfQuery) {
        if ((visible[j] >> m & 1u) == 0) continue;
        float weight = exp_of(weights[m * kLanes + j] - shift);
        sum += weight;
        weights[m * kLanes + j] = weight * value_scale(j);
    }
    parts[lane()] = sum;
    barrier();
    if (first != 0) return;
    float factor = before == kMinusInfinity ? 0.0 : exp_of(before - top);
    factors[m] = top == kMinusInfinity ? 1.0 : factor;
    sum = sums[m] * factors[m];
    for (uint i = 0; i < kLanesOfQuery; ++i) sum += parts[m * kLanesOfQuery + i];
    sums[m] = sum;
    tops[m] = top;
}

// The query's first lane stores its state; returns the state's index.
uint64_t store_softmax(AttendCall call, Unit unit, uint m) {
    uint64_t state = state_index(call, token_of(unit, m), unit.chunk, q_head_of(call, unit, m));
    if (lane() == 0) {
        store_word(call.states + state * 8, floatBitsToUint(tops[m]));
        store_word(call.states + state * 8 + 4, floatBitsToUint(sums[m]));
    }
    return state;
}
