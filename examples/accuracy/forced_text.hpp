// SPDX-License-Identifier: Apache-2.0
//
// forced_text: what a model says at each position of a text that is given: teacher forcing.
//
// Why not texts that each format tells itself: behind the first token that differs two texts have
// nothing to compare. Under teacher forcing every format is asked about the same beginnings; and
// over a greedy text, the first position where its choice differs is where its own greedy text
// would have left the given one, for up to there the two are the same.
//
// Invariant: all K and V that a position sees, its own among them, were read back from the cache's
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

// A text that the model tells behind a first token, until it ends or has been computed for `steps`
// positions: at most steps + 1 tokens. temperature 0: greedy.
std::vector<uint32_t> told_text(decoding::Decoder &decoder, uint32_t first_token, size_t steps,
                                float temperature, engine::DrawKey key);

// The logits behind each token of a text but the last, of which nothing is asked.
class ForcedText {
 public:
    // Feeds the tokens in steps of chunk_tokens; the text is ended behind them.
    //
    // decoder  of a cache without prefixes (QUIRE_CACHE_NO_PREFIX), for what is found is not said.
    // tokens   at least two; kept by reference.
    // Errors   throws Failure when the pool is short of blocks.
    ForcedText(decoding::Decoder &decoder, std::span<const uint32_t> tokens, size_t chunk_tokens);

    // Places in the text where a token is predicted: its length - 1.
    size_t place_count() const { return tokens_.size() - 1; }
    // [vocab_size]; place 0 predicts the text's second token.
    std::span<const float> logits(size_t place) const;
    // The likeliest token at a place; the first of equals.
    uint32_t choice(size_t place) const;
    // The sum of -ln p(token) over all places, in double.
    double surprise() const;

 private:
    std::span<const uint32_t> tokens_;
    size_t vocab_size_;
    std::vector<float> logits_;  // [place_count][vocab_size]
};

}  // namespace accuracy
