// SPDX-License-Identifier: Apache-2.0
//
// Beam search over a language small enough to try every text: what it must find, and which texts it
// forks and ends.

#include "beam_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "random.hpp"
#include "tokenizer.hpp"

namespace {

using namespace decoding;

constexpr size_t kVocab = 6;  // 1 and 2 end a text
constexpr size_t kLimit = 4;

// Logits that depend on all tokens of a text, without a model.
class ToyTexts : public Texts {
 public:
    explicit ToyTexts(uint64_t seed) : seed_(seed) {}

    uint64_t begin() override { return texts_[next_] = {}, next_++; }
    uint64_t fork(uint64_t text) override {
        ++forks;
        return texts_[next_] = texts_.at(text), next_++;
    }
    void end(uint64_t text) override { ASSERT_EQ(texts_.erase(text), 1u); }
    std::span<const float> feed(std::span<const uint64_t> texts,
                                std::span<const std::vector<uint32_t>> tokens) override {
        logits_.clear();
        for (size_t i = 0; i < texts.size(); ++i) {
            std::vector<uint32_t> &text = texts_.at(texts[i]);
            text.insert(text.end(), tokens[i].begin(), tokens[i].end());
            const std::vector<float> row = logits(seed_, text);
            logits_.insert(logits_.end(), row.begin(), row.end());
        }
        most_alive = std::max(most_alive, texts_.size());
        return logits_;
    }
    size_t vocab_size() const override { return kVocab; }

    static std::vector<float> logits(uint64_t seed, const std::vector<uint32_t> &text) {
        uint64_t key = seed;
        for (uint32_t token : text) key = engine::mix(key, token);
        std::vector<float> out;
        for (size_t token = 0; token < kVocab; ++token) {
            out.push_back(static_cast<float>(4 * engine::unit_interval(engine::mix(key, token))));
        }
        return out;
    }

    size_t forks = 0;
    size_t most_alive = 0;
    size_t alive() const { return texts_.size(); }

 private:
    uint64_t seed_;
    uint64_t next_ = 1;
    std::map<uint64_t, std::vector<uint32_t>> texts_;
    std::vector<float> logits_;
};

// Every text up to the limit, scored.
void enumerate(uint64_t seed, const std::vector<uint32_t> &prompt, std::vector<uint32_t> tokens,
               double log_probability, double penalty, std::vector<Hypothesis> *out) {
    if (!tokens.empty() && (engine::ends_text(tokens.back()) || tokens.size() == kLimit)) {
        double length = std::pow(static_cast<double>(tokens.size()), penalty);
        out->push_back({tokens, log_probability, log_probability / length});
        return;
    }
    std::vector<uint32_t> text = prompt;
    text.insert(text.end(), tokens.begin(), tokens.end());
    std::vector<double> row = log_probabilities(ToyTexts::logits(seed, text));
    for (uint32_t token = 0; token < kVocab; ++token) {
        std::vector<uint32_t> longer = tokens;
        longer.push_back(token);
        enumerate(seed, prompt, longer, log_probability + row[token], penalty, out);
    }
}

TEST(BeamSearch, wide_enough_it_finds_the_best_of_all_texts) {
    const std::vector<uint32_t> prompt = {3, 5};
    for (double penalty : {0.0, 0.7, 1.0, 2.0}) {
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            ToyTexts texts(seed);
            // 4 tokens continue each of 4^3 texts before the last token.
            auto found = beam_search(texts, prompt, {256, penalty, kLimit}, [](auto) {});
            std::vector<Hypothesis> all;
            enumerate(seed, prompt, {}, 0, penalty, &all);
            std::ranges::sort(all, [](auto &a, auto &b) { return a.score > b.score; });
            ASSERT_GE(found.size(), 4u);
            for (size_t i = 0; i < 4; ++i) {
                EXPECT_EQ(found[i].tokens, all[i].tokens) << "seed " << seed << ", rank " << i;
                EXPECT_NEAR(found[i].score, all[i].score, 1e-12);
            }
        }
    }
}

TEST(BeamSearch, one_beam_without_ends_is_greedy) {
    ToyTexts texts(9);
    std::vector<uint32_t> text = {4};
    std::vector<uint32_t> greedy;
    while (greedy.size() < kLimit) {
        std::vector<float> row = ToyTexts::logits(9, text);
        row[1] = row[2] = -1;
        auto best = static_cast<uint32_t>(std::ranges::max_element(row) - row.begin());
        greedy.push_back(best);
        text.push_back(best);
    }
    auto found = beam_search(texts, std::vector<uint32_t>{4}, {1, 0.0, kLimit}, [](auto) {});
    ASSERT_EQ(found.size(), 1u);
    bool ended = engine::ends_text(found[0].tokens.back());
    EXPECT_TRUE(ended || found[0].tokens == greedy);
}

TEST(BeamSearch, texts_are_forked_only_where_they_part_and_all_are_ended) {
    for (uint64_t seed = 1; seed <= 30; ++seed) {
        ToyTexts texts(seed);
        size_t steps = 0, most = 0;
        beam_search(texts, std::vector<uint32_t>{3}, {4, 1.0, kLimit},
                    [&](std::span<const uint64_t> alive) {
                        ++steps;
                        most = std::max(most, alive.size());
                        for (uint64_t one : alive) EXPECT_EQ(std::ranges::count(alive, one), 1);
                    });
        EXPECT_EQ(texts.alive(), 0u);
        EXPECT_LE(texts.most_alive, 4u);
        EXPECT_LE(most, 4u);
        EXPECT_GE(texts.forks, 3u);
        EXPECT_LE(texts.forks, 3 * steps);
    }
}

}  // namespace
