// SPDX-License-Identifier: Apache-2.0
//
// dense_texts: texts with contiguous K and V each; a fork copies all of it. Paged texts must equal
// these; their saving is measured against them.
//
// Threads: one.

#pragma once

#include "beam_search.hpp"
#include "dense_run.hpp"

#include <map>
#include <memory>
#include <vector>

namespace decoding {

class DenseTexts : public Texts {
 public:
    explicit DenseTexts(const engine::Model &model) : model_(model) {}

    uint64_t begin() override;
    uint64_t fork(uint64_t text) override;
    void end(uint64_t text) override { texts_.erase(text); }
    std::span<const float> feed(std::span<const uint64_t> texts,
                                std::span<const std::vector<uint32_t>> tokens) override;
    size_t vocab_size() const override { return model_.config().vocab_size; }

 private:
    struct Text {
        std::unique_ptr<engine::DenseRun> run;
        size_t length = 0;
    };

    const engine::Model &model_;
    std::map<uint64_t, Text> texts_;
    uint64_t next_ = 1;
    std::vector<float> logits_;
};

}  // namespace decoding
