// SPDX-License-Identifier: Apache-2.0

#include "dense_texts.hpp"

namespace decoding {

uint64_t DenseTexts::begin() {
    texts_[next_] = {std::make_unique<engine::DenseRun>(model_), 0};
    return next_++;
}

uint64_t DenseTexts::fork(uint64_t text) {
    const Text &original = texts_.at(text);
    texts_[next_] = {std::make_unique<engine::DenseRun>(*original.run), original.length};
    return next_++;
}

std::span<const float> DenseTexts::feed(std::span<const uint64_t> texts,
                                        std::span<const std::vector<uint32_t>> tokens) {
    logits_.clear();
    for (size_t i = 0; i < texts.size(); ++i) {
        Text &text = texts_.at(texts[i]);
        for (const uint32_t token : tokens[i]) {
            text.run->feed(token, text.length++);
        }
        const std::span<const float> logits = text.run->logits();
        logits_.insert(logits_.end(), logits.begin(), logits.end());
    }
    return logits_;
}

}  // namespace decoding
