// SPDX-License-Identifier: Apache-2.0

#include "kernels/rope.hpp"

#include <cmath>

#include "quire/attention.h"

namespace quire::cpu {

void make_turn(const Rope &rope, int64_t position, Turn *turn) {
    for (uint32_t i = 0; i < rope.rotated_dim / 2; ++i) {
        double angle = static_cast<double>(position) * static_cast<double>(rope.frequencies[i]);
        double magnitude = static_cast<double>(rope.magnitude);
        turn->cosine[i] = static_cast<float>(std::cos(angle) * magnitude);
        turn->sine[i] = static_cast<float>(std::sin(angle) * magnitude);
    }
}

void apply_turn(const Rope &rope, const Turn &turn, float *elements) {
    uint32_t pairs = rope.rotated_dim / 2;
    bool is_halves = rope.pairing == QUIRE_ROPE_HALVES;
    uint32_t step = is_halves ? 1 : 2;
    uint32_t distance = is_halves ? pairs : 1;
    for (uint32_t i = 0; i < pairs; ++i) {
        float *first = elements + i * step;
        float a = *first;
        float b = first[distance];
        *first = a * turn.cosine[i] - b * turn.sine[i];
        first[distance] = b * turn.cosine[i] + a * turn.sine[i];
    }
}

}  // namespace quire::cpu
