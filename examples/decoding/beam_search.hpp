// SPDX-License-Identifier: Apache-2.0
//
// beam_search: the `width` likeliest texts, grown side by side.
//
// Every beam is a text of its own. Where two beams continue the same text, it is forked: the common
// part is held once, and each writes only what is new. A beam that no candidate continues is ended.
//
// Score  a text's log probability / length^length_penalty; the length is in tokens and includes the
//        end (Wu et al. 2016, section 7, without its constant).
//
// Threads: one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace decoding {

// Texts that can be forked, by handles: what beam search needs from the code that computes them.
class Texts {
 public:
    virtual ~Texts() = default;
    virtual uint64_t begin() = 0;
    virtual uint64_t fork(uint64_t text) = 0;
    virtual void end(uint64_t text) = 0;
    // Feeds each text its tokens. Returns logits [texts][vocab_size], valid until the next call.
    virtual std::span<const float> feed(std::span<const uint64_t> texts,
                                        std::span<const std::vector<uint32_t>> tokens) = 0;
    virtual size_t vocab_size() const = 0;
};

struct BeamOptions {
    size_t width = 4;
    double length_penalty = 1.0;
    size_t limit = 0;  // tokens of a text
};

struct Hypothesis {
    std::vector<uint32_t> tokens;  // including the one that ends it, if any
    double log_probability = 0;
    double score = 0;
};

// The best texts after the prompt, at most `width`, best first.
//
// watch  called once per step with the live beams; all of their tokens except the newest are fed.
std::vector<Hypothesis> beam_search(Texts &texts, std::span<const uint32_t> prompt,
                                    const BeamOptions &options,
                                    const std::function<void(std::span<const uint64_t>)> &watch);

// log softmax of one row, in double.
std::vector<double> log_probabilities(std::span<const float> logits);

}  // namespace decoding
