// SPDX-License-Identifier: Apache-2.0
//
// ops: the arithmetic of a Llama layer except attention, shared by the paged and the dense run.
//
// Why shared: the two runs are compared token by token, so they may differ only in attention and
// the cache under it.
//
// Invariant: a row's result does not depend on which other rows are in the call. matmul adds the
// products of one (row, output) pair in one fixed order, whatever tile the pair falls into.
//
// Threads: pure functions; RopeTable is immutable after construction.
// Shapes: all matrices are dense and row-major; a weight is [outputs][inputs].

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace engine {

// out[r][o] = sum_i x[r][i] * weight[o][i].
//
// Shapes  x [row_count][inputs], weight [outputs][inputs], out [row_count][outputs]; row_count and
//         outputs follow from `inputs` and the lengths of the spans.
void matmul(std::span<float> out, std::span<const float> x, std::span<const float> weight,
            size_t inputs);

// out[r] = x[r] / rms(x[r]) * gain, with 1e-5 added under the root. `out` may be `x`.
void rmsnorm(std::span<float> out, std::span<const float> x, std::span<const float> gain);

// gate[i] = silu(gate[i]) * up[i].
void swiglu(std::span<float> gate, std::span<const float> up);

// x[i] += y[i].
void add(std::span<float> x, std::span<const float> y);

// Softmax in place, shifted by the maximum so that no exponential overflows.
void softmax(std::span<float> x);

// Rotary position embedding over adjacent pairs (x[2i], x[2i+1]), base 10000, as in Su et al. 2021
// (RoFormer, eq. 34) and llama2.c.
class RopeTable {
 public:
    RopeTable(size_t head_dim, size_t seq_len);

    // Rotates every head of one token's Q or K row (a whole number of heads) at `position`.
    void rotate(std::span<float> row, size_t position) const;

 private:
    size_t pair_count_;           // per head
    std::vector<float> cosines_;  // [seq_len][pair_count_]
    std::vector<float> sines_;
};

}  // namespace engine
