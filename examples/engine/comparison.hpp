// SPDX-License-Identifier: Apache-2.0
//
// comparison: compares every paged text with its dense one, token by token, while it is generated.
//
// A tie is a place where the dense run itself cannot tell its best two tokens apart (kTieRelative
// in sampler.hpp): another order of summation may choose the other one. There the paged text
// continues with the dense token, so that what follows is compared too.
//
// Threads: one.

#pragma once

#include "request.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace engine {

class Comparison {
 public:
    // dense         [request][sample].
    // ties_allowed  false: a different token is a mismatch wherever it is.
    Comparison(std::vector<std::vector<Generated>> dense, bool ties_allowed);

    // Compares the `index`-th choice of a text; returns the token that the text continues with.
    uint32_t settle(uint32_t request, uint32_t sample, size_t index, Choice paged);

    size_t text_count() const { return text_count_; }
    size_t equal_count() const { return text_count_ - mismatches_.size(); }
    size_t compared_tokens() const { return compared_tokens_; }
    size_t tie_count() const { return tie_count_; }

    // True if all texts are equal, and at most one token in a thousand is a tie.
    bool passed() const { return mismatches_.empty() && tie_count_ * 1000 <= compared_tokens_; }

    // One sentence per text that differs.
    std::vector<std::string> mismatches() const;

 private:
    struct Mismatch {
        uint32_t request, sample;
        size_t index;
        uint32_t paged, dense;
    };

    bool mismatched(uint32_t request, uint32_t sample) const;

    std::vector<std::vector<Generated>> dense_;
    bool ties_allowed_;
    size_t text_count_ = 0;
    size_t compared_tokens_ = 0;
    size_t tie_count_ = 0;
    std::vector<Mismatch> mismatches_;
};

}  // namespace engine
