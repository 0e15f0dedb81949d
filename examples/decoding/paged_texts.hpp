// SPDX-License-Identifier: Apache-2.0
//
// paged_texts: texts in Quire's cache; a fork shares every block until one of the two writes into
// it.
//
// Threads: one.

#pragma once

#include "beam_search.hpp"
#include "decoder.hpp"

namespace decoding {

class PagedTexts : public Texts {
 public:
    explicit PagedTexts(Decoder &decoder) : decoder_(decoder) {}

    uint64_t begin() override { return decoder_.begin(); }
    uint64_t fork(uint64_t text) override { return decoder_.fork(text); }
    void end(uint64_t text) override { decoder_.end(text); }
    std::span<const float> feed(std::span<const uint64_t> texts,
                                std::span<const std::vector<uint32_t>> tokens) override {
        std::vector<Turn> turns;
        for (size_t i = 0; i < texts.size(); ++i) {
            turns.push_back({.seq = texts[i], .tokens = tokens[i], .parents = {}});
        }
        return decoder_.step(turns);
    }
    size_t vocab_size() const override { return decoder_.vocab_size(); }

 private:
    Decoder &decoder_;
};

}  // namespace decoding
