// SPDX-License-Identifier: Apache-2.0
//
// attend_call: one attention call as the kernels see it.
//
// Threads: any; constant while a kernel runs.
#pragma once

#include <cstdint>

#include "kernels/element.hpp"
#include "kernels/matrix.hpp"
#include "kernels/tile.hpp"
#include "quire/plugin/backend.h"
#include "shared/instances.hpp"

namespace quire::cpu {

// The parts of a call that its plan fixes.
struct AttendPlan {
    const TileKernels *tile;
    const MatrixKernels *k_matrix;  // NULL: use the tile kernels
    const MatrixKernels *v_matrix;
    uint32_t q_terms;  // per query, for k_matrix
    const Element *q;
    float scale;
    float soft_cap;             // 0 = none
    const float *alibi_slopes;  // [q_heads]; NULL = none
    uint32_t q_heads;
    uint32_t flags;       // QUIRE_ATTENTION_*
    uint32_t group_kind;  // QUIRE_GROUP_*
    uint32_t window;      // tokens in a window or a chunk; 0 = none
    uint32_t sink_tokens;
};

struct AttendCall {
    quire_be_attention args;
    quire_be_pool pool;
    const AttendPlan *plan;
};

// Elements of a row of q, K, V or out in f32, with the zeros that follow it.
constexpr uint32_t padded(uint32_t dim) { return (dim + 15) / 16 * 16; }

// A validated device address, as an array.
template <typename T>
T *array_at(uint64_t address) {
    return reinterpret_cast<T *>(address);
}

}  // namespace quire::cpu
