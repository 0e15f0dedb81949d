// SPDX-License-Identifier: Apache-2.0

#include "best_of.hpp"

#include "beam_search.hpp"
#include "sampler.hpp"
#include "tokenizer.hpp"

#include <algorithm>

namespace decoding {
namespace {

struct Growing {
    uint32_t index = 0;  // among the samples
    quire_seq seq = 0;
};

}  // namespace

std::vector<Sample> draw_samples(Decoder &decoder, std::span<const uint32_t> prompt,
                                 const BestOfOptions &options,
                                 const std::function<void(std::span<const uint64_t>)> &watch) {
    std::vector<Sample> samples(options.count);
    std::vector<Growing> growing;
    std::vector<Turn> turns = {
        {.seq = decoder.begin(), .tokens = {prompt.begin(), prompt.end()}, .parents = {}}};
    std::span<const float> logits = decoder.step(turns);
    for (uint32_t i = 0; i < options.count; ++i) {
        growing.push_back({i, i == 0 ? turns[0].seq : decoder.fork(turns[0].seq)});
    }
    bool first = true;  // all draw from the logits after the prompt
    while (!growing.empty()) {
        std::vector<Growing> next;
        for (size_t row = 0; row < growing.size(); ++row) {
            const auto own =
                logits.subspan(first ? 0 : row * decoder.vocab_size(), decoder.vocab_size());
            Sample &sample = samples[growing[row].index];
            const engine::DrawKey key{options.seed, 0, growing[row].index,
                                      static_cast<uint32_t>(prompt.size() + sample.tokens.size())};
            const uint32_t token = engine::choose(own, options.temperature, key).token;
            sample.tokens.push_back(token);
            sample.score += log_probabilities(own)[token];
            if (engine::ends_text(token) || sample.tokens.size() == options.limit) {
                decoder.end(growing[row].seq);
            } else {
                next.push_back(growing[row]);
            }
        }
        first = false;
        growing = next;
        std::vector<uint64_t> alive;
        turns.clear();
        for (const Growing &one : growing) {
            alive.push_back(one.seq);
            turns.push_back(
                {.seq = one.seq, .tokens = {samples[one.index].tokens.back()}, .parents = {}});
        }
        if (!growing.empty()) {
            logits = decoder.step(turns);
        }
        watch(alive);
    }
    for (Sample &sample : samples) {
        sample.score /= static_cast<double>(std::max<size_t>(sample.tokens.size(), 1));
    }
    return samples;
}

}  // namespace decoding
