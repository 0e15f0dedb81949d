// SPDX-License-Identifier: Apache-2.0
//
// unit: shared/kernels/unit.h for CUDA and HIP; the scales of keys, and how scores become weights.
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

QUIRE_DEVICE inline uint32_t heads_per_kv_of(const AttendCall &call) { return call.heads_per_kv; }
QUIRE_DEVICE inline uint32_t block_tokens_of(const AttendCall &call) { return call.block_tokens; }
QUIRE_DEVICE inline float slope_of(const AttendCall &call, uint32_t q_head) {
    return call.slopes[q_head];
}

#include "shared/kernels/unit.h"

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
