// SPDX-License-Identifier: Apache-2.0

#include "forced_text.hpp"

#include "tokenizer.hpp"

#include <algorithm>
#include <cmath>

namespace accuracy {

std::vector<uint32_t> told_text(decoding::Decoder &decoder, uint32_t first_token, size_t steps,
                                float temperature, engine::DrawKey key) {
    std::vector<uint32_t> tokens = {first_token};
    const quire_seq seq = decoder.begin();
    while (tokens.size() <= steps) {
        const std::vector<decoding::Turn> turn = {
            {.seq = seq, .tokens = {tokens.back()}, .parents = {}}};
        key.position = static_cast<uint32_t>(tokens.size());
        tokens.push_back(engine::choose(decoder.step(turn), temperature, key).token);
        if (engine::ends_text(tokens.back())) {
            break;
        }
    }
    decoder.end(seq);
    return tokens;
}

ForcedText::ForcedText(decoding::Decoder &decoder, std::span<const uint32_t> tokens,
                       size_t chunk_tokens)
    : tokens_(tokens), vocab_size_(decoder.vocab_size()) {
    const quire_seq seq = decoder.begin();
    for (size_t first = 0; first < place_count(); first += chunk_tokens) {
        const auto chunk = tokens.subspan(first, std::min(chunk_tokens, place_count() - first));
        const std::vector<decoding::Turn> turn = {
            {.seq = seq, .tokens = {chunk.begin(), chunk.end()}, .parents = {}, .wants_all = true}};
        const std::span<const float> said = decoder.step(turn);
        logits_.insert(logits_.end(), said.begin(), said.end());
    }
    decoder.end(seq);
}

std::span<const float> ForcedText::logits(size_t place) const {
    return std::span(logits_).subspan(place * vocab_size_, vocab_size_);
}

uint32_t ForcedText::choice(size_t place) const {
    return engine::choose(logits(place), 0.0F, {}).token;
}

double ForcedText::surprise() const {
    double sum = 0.0;
    for (size_t place = 0; place < place_count(); ++place) {
        const std::span<const float> said = logits(place);
        const double most = *std::ranges::max_element(said);
        double mass = 0.0;
        for (const float logit : said) {
            mass += std::exp(logit - most);
        }
        sum += most + std::log(mass) - said[tokens_[place + 1]];
    }
    return sum;
}

}  // namespace accuracy
