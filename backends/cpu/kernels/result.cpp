// SPDX-License-Identifier: Apache-2.0

#include "kernels/result.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "quire/attention.h"

namespace quire::cpu {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

Softmax before_all_keys(const AttendCall &call, uint32_t q_head) {
    if ((call.plan->flags & QUIRE_ATTENTION_SINK_LOGITS) == 0) return {-kInfinity, 0.0f};
    float sink = array_at<const float>(call.args.sinks)[q_head];
    return {sink, sink == -kInfinity ? 0.0f : 1.0f};
}

void write_result(const AttendCall &call, uint32_t token, uint32_t q_head, const Softmax &total,
                  float *values) {
    const AttendPlan &plan = *call.plan;
    auto *out = array_at<std::byte>(call.args.out);
    auto *lse = array_at<float>(call.args.lse);
    uint32_t dim = call.pool.v_head_dim;
    bool is_empty = total.sum == 0.0f;
    if (is_empty) std::fill_n(values, dim, 0.0f);
    if (!is_empty) plan.tile->divide(values, total.sum, padded(dim) / 16);
    int64_t at = int64_t{token} * call.args.out_token_stride + int64_t{q_head} * dim;
    plan.q->store(values, out + at * plan.q->size_bytes, dim);
    if (lse == nullptr) return;
    lse[uint64_t{token} * plan.q_heads + q_head] =
        is_empty ? -kInfinity : total.top + std::log(total.sum);
}

void fold_states(const AttendCall &call, const ChunkStates &states, uint32_t first_token,
                 uint32_t token_count, uint32_t token, uint32_t first_chunk, uint32_t end_chunk,
                 float *values) {
    uint32_t vectors = padded(call.pool.v_head_dim) / 16;
    for (uint32_t q_head = 0; q_head < call.plan->q_heads; ++q_head) {
        Softmax total = before_all_keys(call, q_head);
        std::fill_n(values, vectors * 16, 0.0f);
        for (uint32_t chunk = first_chunk; chunk < end_chunk; ++chunk) {
            ChunkState state = states.at(call, token_count, chunk, token, q_head);
            call.plan->tile->fold(&total, values, *state.softmax, state.out, vectors);
        }
        write_result(call, first_token + token, q_head, total, values);
    }
}

}  // namespace quire::cpu
