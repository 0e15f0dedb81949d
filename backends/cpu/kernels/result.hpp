// SPDX-License-Identifier: Apache-2.0
//
// result: the initial state of attention, the states of chunks of keys, and the final output.
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

// The states of the chunks of several tokens: [chunk][token][query head].
struct ChunkStates {
    float *floats = nullptr;   // NULL if none are kept
    uint32_t first_chunk = 0;  // the chunk of the first state

    explicit operator bool() const { return floats != nullptr; }

    // The softmax precedes the result, which is aligned to 64 bytes.
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

// The state before any key. A sink logit acts as a first key of value 0.
Softmax before_all_keys(const AttendCall &call, uint32_t q_head);

// Divides `values`, padded(v_head_dim) elements, by the sum, and writes them and the LSE.
void write_result(const AttendCall &call, uint32_t token, uint32_t q_head, const Softmax &total,
                  float *values);

// Computes the result of token `token` of token_count, the first of which is first_token, from the
// states of chunks [first_chunk, end_chunk). values: room for padded(v_head_dim) elements.
void fold_states(const AttendCall &call, const ChunkStates &states, uint32_t first_token,
                 uint32_t token_count, uint32_t token, uint32_t first_chunk, uint32_t end_chunk,
                 float *values);

}  // namespace quire::cpu
