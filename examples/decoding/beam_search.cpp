// SPDX-License-Identifier: Apache-2.0

#include "beam_search.hpp"

#include "tokenizer.hpp"

#include <algorithm>
#include <cmath>

namespace decoding {
namespace {

struct Beam {
    uint64_t text = 0;
    std::vector<uint32_t> tokens;
    double log_probability = 0;
};

// One beam, one token longer.
struct Candidate {
    size_t beam = 0;
    uint32_t token = 0;
    double log_probability = 0;
};

double score_of(double log_probability, size_t length, double penalty) {
    return log_probability / std::pow(static_cast<double>(length), penalty);
}

// The likeliest first; equal ones in the order of beams and tokens.
bool is_better(const Candidate &a, const Candidate &b) {
    if (a.log_probability != b.log_probability) {
        return a.log_probability > b.log_probability;
    }
    return a.beam != b.beam ? a.beam < b.beam : a.token < b.token;
}

class Search {
 public:
    Search(Texts &texts, const BeamOptions &options) : texts_(texts), options_(options) {}

    // Every text that ends uses up a candidate, so twice the width always fills the beams.
    std::vector<Candidate> candidates(std::span<const float> logits) const {
        const size_t vocab_size = texts_.vocab_size();
        std::vector<Candidate> all;
        for (size_t b = 0; b < beams.size(); ++b) {
            const auto row = log_probabilities(logits.subspan(b * vocab_size, vocab_size));
            for (uint32_t token = 0; token < row.size(); ++token) {
                all.push_back({b, token, beams[b].log_probability + row[token]});
            }
        }
        const size_t count = std::min(all.size(), 2 * options_.width);
        std::ranges::partial_sort(all, all.begin() + static_cast<std::ptrdiff_t>(count), is_better);
        all.resize(count);
        return all;
    }

    // Finishes the texts that end, and continues with the best of the others.
    void go_on(std::span<const Candidate> best) {
        std::vector<Beam> next;
        std::vector<size_t> parents;
        for (const Candidate &candidate : best) {
            Beam beam = beams[candidate.beam];
            beam.tokens.push_back(candidate.token);
            beam.log_probability = candidate.log_probability;
            if (engine::ends_text(candidate.token)) {
                finish(beam);
            } else if (next.size() < options_.width) {
                parents.push_back(candidate.beam);
                next.push_back(beam);
            }
        }
        share_out(parents, next);
        beams = next;
    }

    void finish(const Beam &beam) {
        const double score =
            score_of(beam.log_probability, beam.tokens.size(), options_.length_penalty);
        finished.push_back({beam.tokens, beam.log_probability, score});
        std::ranges::stable_sort(
            finished, [](const Hypothesis &a, const Hypothesis &b) { return a.score > b.score; });
        finished.resize(std::min(finished.size(), options_.width));
    }

    // True if the beams are at the limit, or none can become better than the finished ones: a log
    // probability only falls, and a longer text divides it by more, at most by the limit's divisor.
    bool is_over() const {
        if (beams.empty() || beams.front().tokens.size() == options_.limit) {
            return true;
        }
        if (finished.size() < options_.width) {
            return false;
        }
        const size_t length =
            options_.length_penalty > 0 ? options_.limit : beams.front().tokens.size() + 1;
        const double most =
            score_of(beams.front().log_probability, length, options_.length_penalty);
        return most <= finished.back().score;
    }

    std::vector<Beam> beams;
    std::vector<Hypothesis> finished;

 private:
    // The first child of a beam continues its text, every other child a fork of it; a beam without
    // children is ended.
    void share_out(std::span<const size_t> parents, std::vector<Beam> &next) {
        std::vector<bool> taken(beams.size(), false);
        for (size_t i = 0; i < next.size(); ++i) {
            if (taken[parents[i]]) {
                next[i].text = texts_.fork(beams[parents[i]].text);
            }
            taken[parents[i]] = true;
        }
        for (size_t b = 0; b < beams.size(); ++b) {
            if (!taken[b]) {
                texts_.end(beams[b].text);
            }
        }
    }

    Texts &texts_;
    BeamOptions options_;
};

}  // namespace

std::vector<double> log_probabilities(std::span<const float> logits) {
    const double top = static_cast<double>(*std::ranges::max_element(logits));
    double sum = 0;
    for (const float logit : logits) {
        sum += std::exp(static_cast<double>(logit) - top);
    }
    const double normalizer = top + std::log(sum);
    std::vector<double> out;
    for (const float logit : logits) {
        out.push_back(static_cast<double>(logit) - normalizer);
    }
    return out;
}

std::vector<Hypothesis> beam_search(Texts &texts, std::span<const uint32_t> prompt,
                                    const BeamOptions &options,
                                    const std::function<void(std::span<const uint64_t>)> &watch) {
    Search search(texts, options);
    search.beams.push_back({texts.begin(), {}, 0});
    std::vector<uint64_t> alive = {search.beams.front().text};
    std::vector<std::vector<uint32_t>> tokens = {{prompt.begin(), prompt.end()}};
    while (!search.is_over()) {
        const auto best = search.candidates(texts.feed(alive, tokens));
        search.go_on(best);
        alive.clear();
        tokens.clear();
        for (const Beam &beam : search.beams) {
            alive.push_back(beam.text);
            tokens.push_back({beam.tokens.back()});
        }
        watch(alive);
    }
    for (const Beam &beam : search.beams) {
        search.finish(beam);
        texts.end(beam.text);
    }
    return search.finished;
}

}  // namespace decoding
