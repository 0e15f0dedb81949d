// SPDX-License-Identifier: Apache-2.0
//
// rope: rotary embedding (Su et al., RoFormer, arXiv 2104.09864, section 3.2.2).
//
// Pair i of a head is rotated by the angle position * frequencies[i]:
//     a' = a cos - b sin      b' = b cos + a sin
// Angle, cosine and sine are computed in double: at position 100,000 an angle in f32 would be wrong
// by 0.004.
//
// Threads: any; a Turn belongs to one.
#pragma once

#include <cstdint>

#include "kernels/attend_call.hpp"

namespace quire::cpu {

struct Rope {
    const float *frequencies;  // [rotated_dim / 2]; NULL = no rope
    float magnitude;           // of cosine and sine
    uint32_t rotated_dim;
    uint32_t pairing;  // QUIRE_ROPE_*
};

// The rotation for one position, the same for every head.
struct Turn {
    float cosine[kMaxLatentKDim / 2];
    float sine[kMaxLatentKDim / 2];
};

void make_turn(const Rope &rope, int64_t position, Turn *turn);

// Rotates the rotated_dim elements at `elements`.
void apply_turn(const Rope &rope, const Turn &turn, float *elements);

}  // namespace quire::cpu
