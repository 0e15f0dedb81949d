// SPDX-License-Identifier: Apache-2.0
//
// request: what a user asks from the engine: a prompt, how much text, how many samples of it.

#pragma once

#include "sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine {

struct Request {
    uint32_t id = 0;
    std::vector<uint32_t> prompt;  // BOS first
    size_t generate_limit = 0;     // tokens per sample; fewer when a text ends by itself
    uint32_t sample_count = 1;
    float temperature = 0.0F;
    size_t arrival_step = 0;  // the engine iteration from which it may be served
};

// One generated text: each choice in order, including the token that ended it.
using Generated = std::vector<Choice>;

}  // namespace engine
