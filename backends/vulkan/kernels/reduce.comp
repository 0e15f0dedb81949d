// SPDX-License-Identifier: Apache-2.0
//
// reduce: folds the states of a query's chunks in order and writes the result. A workgroup handles
// one query: one head of one token.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "call.glsl"
#include "fault.glsl"
#include "number.glsl"
#include "dialect.glsl"
#include "../../shared/kernels/softmax.h"
#include "attend_call.glsl"
#include "../../shared/kernels/sight.h"

const uint kMostSlots = 8;  // of 64 elements: V has at most 512

struct Softmax {
    float top;
    float sum;
};

Softmax before_all_keys(AttendCall call, uint q_head) {
    if (!has(call, kSinkLogits)) return Softmax(kMinusInfinity, 0.0);
    float sink = load_float(call.sinks, q_head);
    return Softmax(sink, sink == kMinusInfinity ? 0.0 : 1.0);
}

void main() {
    if (is_idle()) return;
    AttendCall call = AttendCall(push.arguments);
    uint q_head = uint(workgroup() % call.q_heads);
    int token = int(call.first_token) + int(workgroup() / call.q_heads);
    int row_index = load_int(call.token_rows, token);
    if (row_index < 0) return;
    Row row = row_at(call, uint(row_index));
    Sight sight = sight_of(call, row, token);
    uint dim = v_dim_of(call);
    Softmax total = before_all_keys(call, q_head);
    float values[kMostSlots];
    [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) values[i] = 0.0;
    for (int begin = 0; begin < sight.end; begin += kChunkPlaces) {
        if (!may_see(sight, begin, min(begin + kChunkPlaces, row.key_count))) continue;
        uint64_t state = state_index(call, token, uint(begin / kChunkPlaces), q_head);
        float top = load_float(call.states, int64_t(state * 2));
        float sum = load_float(call.states, int64_t(state * 2 + 1));
        // The chunk saw no key. If all scores are NaN, the top is -inf as well, but the sum is NaN.
        if (top == kMinusInfinity && sum == 0.0) continue;
        float higher = max(total.top, top);
        float of_total = exp_of_difference(total.top, higher);
        float of_state = exp_of_difference(top, higher);
        total = Softmax(higher, total.sum * of_total + sum * of_state);
        [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) {
            uint d = i * kLanes + lane();
            if (d < dim) {
                float value = load_float(call.values, int64_t(state * dim + d));
                values[i] = values[i] * of_total + value * of_state;
            }
        }
    }
    int64_t first = int64_t(token) * call.out_stride + int64_t(q_head) * dim;
    uint64_t to = call.out_to + uint64_t(first) * bytes_of(q_format_of(call), 1);
    bool is_empty = total.sum == 0.0;
    [[unroll]] for (uint i = 0; i < slots_of(dim); ++i) {
        uint d = i * kLanes + lane();
        if (d < dim) {
            float value = is_empty ? 0.0 : values[i] / total.sum;
            store_value(q_format_of(call), to, d, floatBitsToUint(value));
        }
    }
    if (call.lse == 0 || lane() != 0) return;
    float lse = is_empty ? kMinusInfinity : total.top + log_of(total.sum);
    uint64_t at = uint64_t(token) * call.q_heads + q_head;
    store_word(call.lse + at * 4, floatBitsToUint(lse));
}
