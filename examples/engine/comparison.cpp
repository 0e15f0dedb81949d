// SPDX-License-Identifier: Apache-2.0

#include "comparison.hpp"

#include <algorithm>

namespace engine {

Comparison::Comparison(std::vector<std::vector<Generated>> dense, bool ties_allowed)
    : dense_(std::move(dense)), ties_allowed_(ties_allowed) {
    for (const auto &samples : dense_) {
        text_count_ += samples.size();
    }
}

uint32_t Comparison::settle(uint32_t request, uint32_t sample, size_t index, Choice paged) {
    if (mismatched(request, sample)) {
        return paged.token;  // it differed before and is no longer compared
    }
    const Choice dense = dense_[request][sample][index];
    ++compared_tokens_;
    tie_count_ += dense.tie ? 1 : 0;
    if (paged.token != dense.token && !(dense.tie && ties_allowed_)) {
        mismatches_.push_back({request, sample, index, paged.token, dense.token});
        return paged.token;
    }
    return dense.token;
}

bool Comparison::mismatched(uint32_t request, uint32_t sample) const {
    return std::ranges::any_of(mismatches_, [&](const Mismatch &mismatch) {
        return mismatch.request == request && mismatch.sample == sample;
    });
}

std::vector<std::string> Comparison::mismatches() const {
    std::vector<std::string> lines;
    for (const Mismatch &m : mismatches_) {
        lines.push_back("request " + std::to_string(m.request) + ", sample " +
                        std::to_string(m.sample) + ": token " + std::to_string(m.index) +
                        " of the text is " + std::to_string(m.paged) + ", the dense run has " +
                        std::to_string(m.dense));
    }
    return lines;
}

}  // namespace engine
