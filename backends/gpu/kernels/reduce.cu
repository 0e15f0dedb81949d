// SPDX-License-Identifier: Apache-2.0
//
// reduce: folds the states of a query's chunks in order and writes the result. A group handles one
// query: one head of one token.

#include "calls.hpp"
#include "dialect.hpp"
#include "fault.hpp"
#include "number.hpp"
#include "sight.hpp"
#include "softmax.hpp"

namespace quire::gpu {

constexpr uint32_t kReduceThreads = 64;
constexpr uint32_t kReduceSlots = kMostValues / kReduceThreads;  // V elements per thread, at most

struct ReduceShared {
    SharedArray<uint32_t, 1> idle;
};

struct Softmax {
    float top;
    float sum;
};

QUIRE_DEVICE inline Softmax before_all_keys(const AttendCall &call, uint32_t q_head) {
    if (!has(call, kSinkLogits)) return {minus_infinity(), 0.0f};
    float sink = load_float(call.sinks, q_head);
    return {sink, sink == minus_infinity() ? 0.0f : 1.0f};
}

QUIRE_DEVICE inline void store_result(const AttendCall &call, int32_t token, uint32_t q_head,
                                      const Softmax &total, const float *values) {
    int64_t first = int64_t{token} * call.out_stride + int64_t{q_head} * call.v_dim;
    uint64_t to = call.out + static_cast<uint64_t>(first) * bytes_of(call.q_format, 1);
    bool is_empty = total.sum == 0.0f;
    for (uint32_t i = 0; i < kReduceSlots; ++i) {
        uint32_t d = i * kReduceThreads + thread_index();
        if (d >= call.v_dim) continue;
        float value = is_empty ? 0.0f : values[i] / total.sum;
        store_value(call.q_format, to, d, bits_of(value));
    }
    if (call.lse == 0 || thread_index() != 0) return;
    float lse = is_empty ? minus_infinity() : total.top + log_of(total.sum);
    uint64_t at = static_cast<uint64_t>(token) * call.q_heads + q_head;
    store<float>(call.lse + at * 4, lse);
}

QUIRE_KERNEL(quire_reduce, 64, AttendCall, call) {
    QUIRE_SHARED(ReduceShared, shared);
    if (is_idle(call.head, shared.idle)) return;
    auto q_head = static_cast<uint32_t>(group_index() % call.q_heads);
    int32_t token =
        static_cast<int32_t>(call.first_token) + static_cast<int32_t>(group_index() / call.q_heads);
    int32_t row_index = load_int(call.token_rows, token);
    if (row_index < 0) return;
    Row row = row_at(call, static_cast<uint32_t>(row_index));
    Sight sight = sight_of(call, row, token);
    Softmax total = before_all_keys(call, q_head);
    float values[kReduceSlots];
    for (uint32_t i = 0; i < kReduceSlots; ++i) values[i] = 0.0f;
    for (int32_t begin = 0; begin < sight.end; begin += kChunkPlaces) {
        if (!may_see(sight, begin, smaller(begin + kChunkPlaces, row.key_count))) continue;
        uint64_t state =
            state_index(call, token, static_cast<uint32_t>(begin / kChunkPlaces), q_head);
        float top = load_float(call.states, state * 2);
        float sum = load_float(call.states, state * 2 + 1);
        // The chunk saw no key. If all scores are NaN, the top is -inf as well, but the sum is NaN.
        if (top == minus_infinity() && sum == 0.0f) continue;
        float higher = fmaxf(total.top, top);
        float of_total = exp_of_difference(total.top, higher);
        float of_state = exp_of_difference(top, higher);
        total = {higher, total.sum * of_total + sum * of_state};
        for (uint32_t i = 0; i < kReduceSlots; ++i) {
            uint32_t d = i * kReduceThreads + thread_index();
            if (d >= call.v_dim) continue;
            float value = load_float(call.values, state * call.v_dim + d);
            values[i] = values[i] * of_total + value * of_state;
        }
    }
    store_result(call, token, q_head, total, values);
}

}  // namespace quire::gpu
