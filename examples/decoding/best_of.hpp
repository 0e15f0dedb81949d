// SPDX-License-Identifier: Apache-2.0
//
// best_of: several samples of one prompt, of which the likeliest is kept.
//
// The prompt is computed once; every sample is a fork of it.
//
// Score  the mean log probability of a sample's tokens under the model at temperature 1.
//
// Threads: one.

#pragma once

#include "decoder.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace decoding {

struct BestOfOptions {
    uint32_t count = 4;
    float temperature = 1.0F;
    uint64_t seed = 1;
    size_t limit = 0;  // tokens of a sample
};

struct Sample {
    std::vector<uint32_t> tokens;  // including the one that ends it, if any
    double score = 0;
};

// All samples, in the order in which they were drawn.
//
// watch  called once per step with the texts of all samples that still grow.
std::vector<Sample> draw_samples(Decoder &decoder, std::span<const uint32_t> prompt,
                                 const BestOfOptions &options,
                                 const std::function<void(std::span<const uint64_t>)> &watch);

}  // namespace decoding
