// SPDX-License-Identifier: Apache-2.0
//
// speculation: a small model drafts, and the main model judges all drafts in one step (Leviathan et
// al. 2022, arXiv 2211.17192, greedy). The text is the main model's own, whatever the drafts.
//
// A draft is a chain of the drafting model's choices, or a tree: beside each choice its runner-up,
// from which the chain does not continue. The judging step computes all of them under the tree's
// mask; the accepted path is kept, and the other drafts are discarded.
//
// Threads: one.

#pragma once

#include "decoder.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace decoding {

struct SpeculationOptions {
    size_t depth = 4;  // drafts in a chain
    bool tree = false;
    size_t limit = 0;  // tokens of the text
};

struct Speculation {
    std::vector<uint32_t> tokens;  // after the prompt
    size_t judging_steps = 0;      // of the main model
    size_t drafted = 0;            // tokens offered to it
    size_t accepted = 0;           // of these
    size_t off_chain = 0;          // accepted paths that ended in a runner-up
    size_t moved = 0;              // accepted paths that did not lie in place
};

// model, drafter  have one vocabulary. The model's decoder takes trees of 2 * depth drafts.
Speculation speculate(Decoder &model, Decoder &drafter, std::span<const uint32_t> prompt,
                      const SpeculationOptions &options);

}  // namespace decoding
