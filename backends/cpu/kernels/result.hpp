// SPDX-License-Identifier: Apache-2.0
//
// result: what attention begins with, what it leaves of a chunk of keys, and what it writes.
//
// Threads: calls on different tokens may run side by side.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"

namespace quire::cpu {

// A query's softmax over one chunk of its keys; `out` has padded(v_head_dim) elements.
struct ChunkState {
    Softmax *softmax;
    float *out;
};

// The states of some tokens' chunks: [chunk][token][query head].
struct ChunkStates {
    float *floats = nullptr;   // NULL = none are kept
    uint32_t first_chunk = 0;  // whose state is the first

    explicit operator bool() const { return floats != nullptr; }

    // The softmax stands in front of the result, which begins on a border of 64 bytes.
    static uint64_t floats_each(const AttendCall &call) {
        return 16 + padded(call.pool.v_head_dim);
    }
    ChunkState at(const AttendCall &call, uint32_t token_count, uint32_t chunk, uint32_t token,
                  uint32_t q_head) const {
        uint64_t index =
            (uint64_t{chunk - first_chunk} * token_count + token) * call.plan->q_heads + q_head;
        float *state = floats + index * floats_each(call);
        return {reinterpret_cast<Softmax *>(state), state + 16};
    }
};

// A sink logit is a key of value 0 that came first.
Softmax before_all_keys(const AttendCall &call, uint32_t q_head);

// Divides `values`, padded(v_head_dim) elements, by the sum and writes them, and the LSE.
void write_result(const AttendCall &call, uint32_t token, uint32_t q_head, const Softmax &total,
                  float *values);

// Token `token` of token_count, the first of which is first_token: makes its result of the states
// of chunks [first_chunk, end_chunk). values: room for padded(v_head_dim) elements.
void fold_states(const AttendCall &call, const ChunkStates &states, uint32_t first_token,
                 uint32_t token_count, uint32_t token, uint32_t first_chunk, uint32_t end_chunk,
                 float *values);

}  // namespace quire::cpu
