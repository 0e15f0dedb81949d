// SPDX-License-Identifier: Apache-2.0
//
// forced_text: what a model predicts at each position of a given text (teacher forcing).
//
// Why not let each format generate its own text: after the first token that differs, two texts
// cannot be compared. Under teacher forcing every format sees the same beginnings. And over a
// greedy text, the first position where a format's choice differs is where its own greedy text
// would have left the given one, because up to there the two are the same.
//
// Invariant: all K and V that a position sees, including its own, were read back from the cache's
// blocks in their format.
//
// Threads: one.

#pragma once

#include "decoder.hpp"
#include "sampler.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace accuracy {

// Generates a text after a first token, until it ends or `steps` positions have been computed: at
// most steps + 1 tokens. temperature 0: greedy.
std::vector<uint32_t> told_text(decoding::Decoder &decoder, uint32_t first_token, size_t steps,
                                float temperature, engine::DrawKey key);

// The logits after each token of a text except the last, where nothing is predicted.
class ForcedText {
 public:
    // Feeds the tokens in steps of chunk_tokens, then ends the sequence.
    //
    // decoder  of a cache without prefixes (QUIRE_CACHE_NO_PREFIX): a found token has no logits.
    // tokens   at least two; kept by reference.
    // Errors   throws Failure when the pool is short of blocks.
    ForcedText(decoding::Decoder &decoder, std::span<const uint32_t> tokens, size_t chunk_tokens);

    // The number of places in the text where a token is predicted: its length - 1.
    size_t place_count() const { return tokens_.size() - 1; }
    // [vocab_size]; place 0 predicts the text's second token.
    std::span<const float> logits(size_t place) const;
    // The likeliest token at a place; of equal ones the first.
    uint32_t choice(size_t place) const;
    // The sum of -ln p(token) over all places, in double.
    double surprise() const;

 private:
    std::span<const uint32_t> tokens_;
    size_t vocab_size_;
    std::vector<float> logits_;  // [place_count][vocab_size]
};

}  // namespace accuracy
