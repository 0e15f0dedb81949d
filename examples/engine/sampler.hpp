// SPDX-License-Identifier: Apache-2.0
//
// sampler: which token follows, given its logits.
//
// Why Gumbel-max and not an inverse distribution: token = argmax(logit / temperature + noise) draws
// from the same softmax (Gumbel 1954). It also gives "the best two are a hair apart" one meaning
// for greedy and for sampled text, which a comparison of two runs needs.
//
// Threads: pure.

#pragma once

#include <cstdint>
#include <span>

namespace engine {

// Names one draw. Two runs that agree on these agree on the noise.
struct DrawKey {
    uint64_t seed = 0;
    uint32_t request = 0;
    uint32_t sample = 0;
    uint32_t position = 0;  // of the token being chosen, in its sequence
};

struct Choice {
    uint32_t token = 0;
    bool tie = false;  // the runner-up is within kTieRelative of the best
};

constexpr double kTieRelative = 1e-5;

// Chooses the next token; temperature 0 is greedy and ignores the key. The first of equals wins.
Choice choose(std::span<const float> logits, float temperature, const DrawKey &key);

}  // namespace engine
