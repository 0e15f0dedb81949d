// SPDX-License-Identifier: Apache-2.0

#include "speculation.hpp"

#include "tokenizer.hpp"

#include <algorithm>

namespace decoding {
namespace {

// The token with the largest logit, other than `except`; of equal ones the first.
uint32_t best_token(std::span<const float> logits, uint32_t except = UINT32_MAX) {
    uint32_t best = except == 0 ? 1 : 0;
    for (uint32_t token = best + 1; token < logits.size(); ++token) {
        if (token != except && logits[token] > logits[best]) {
            best = token;
        }
    }
    return best;
}

// Drafts, each listed after the one it follows.
struct Drafts {
    std::vector<uint32_t> tokens;
    std::vector<uint32_t> parents;
    std::vector<uint32_t> chain;  // indices of the drafter's own choices

    void add(uint32_t token, uint32_t parent) {
        tokens.push_back(token);
        parents.push_back(parent);
    }
};

class Speculator {
 public:
    Speculator(Decoder &model, Decoder &drafter, std::span<const uint32_t> prompt,
               const SpeculationOptions &options)
        : model_(model),
          drafter_(drafter),
          options_(options),
          text_(prompt.begin(), prompt.end()),
          prompt_length_(prompt.size()),
          model_seq_(model.begin()),
          drafter_seq_(drafter.begin()) {}
    Speculator(const Speculator &) = delete;
    Speculator &operator=(const Speculator &) = delete;
    ~Speculator() {
        model_.end(model_seq_);
        drafter_.end(drafter_seq_);
    }

    bool is_over() const {
        const size_t generated = text_.size() - prompt_length_;
        return generated == options_.limit || (generated != 0 && engine::ends_text(text_.back()));
    }

    void round() {
        const Drafts drafts = draft();
        const std::vector<uint32_t> path = judge(drafts);
        model_.accept(model_seq_, path);
        // The drafter has fed its chain up to the last choice: drop what the model did not accept.
        size_t agreed = 0;
        while (agreed < path.size() && agreed < drafts.chain.size() &&
               path[agreed] == drafts.chain[agreed]) {
            ++agreed;
        }
        const size_t known = known_before_ + agreed;
        if (drafter_.length(drafter_seq_) > known) {
            drafter_.truncate(drafter_seq_, known);
        }
        result_.off_chain += agreed < path.size() ? 1 : 0;
        result_.moved += !path.empty() && path.back() + 1 != path.size() ? 1 : 0;
        result_.drafted += drafts.tokens.size();
        result_.accepted += path.size();
        ++result_.judging_steps;
    }

    Speculation result() const {
        Speculation out = result_;
        out.tokens.assign(text_.begin() + static_cast<std::ptrdiff_t>(prompt_length_), text_.end());
        return out;
    }

 private:
    // Lets the drafter catch up with the text and then continue by itself.
    Drafts draft() {
        known_before_ = text_.size();
        const size_t generated = text_.size() - prompt_length_;
        // One token comes from the model itself, and all drafts follow the text at once.
        const size_t wanted = options_.limit - generated - 1;
        const size_t room = (model_.longest_text() - text_.size()) / (options_.tree ? 2 : 1);
        const size_t depth = std::min({options_.depth, wanted, room});
        Drafts drafts;
        std::vector<uint32_t> feed(
            text_.begin() + static_cast<std::ptrdiff_t>(drafter_.length(drafter_seq_)),
            text_.end());
        uint32_t parent = QUIRE_MASK_ROOT;
        for (size_t i = 0; i < depth; ++i) {
            const Turn turn{.seq = drafter_seq_, .tokens = feed, .parents = {}};
            const std::span<const float> logits = drafter_.step(std::span(&turn, 1));
            const uint32_t choice = best_token(logits);
            const auto index = static_cast<uint32_t>(drafts.tokens.size());
            drafts.chain.push_back(index);
            drafts.add(choice, parent);
            if (options_.tree) {
                drafts.add(best_token(logits, choice), parent);
            }
            parent = index;
            feed = {choice};
        }
        return drafts;
    }

    // The path through the drafts that the model itself would have taken. The text grows by that
    // path and by the model's next token, which no draft had.
    std::vector<uint32_t> judge(const Drafts &drafts) {
        Turn turn{.seq = model_seq_, .tokens = {}, .parents = drafts.parents, .wants_all = true};
        turn.tokens.assign(text_.begin() + static_cast<std::ptrdiff_t>(model_.length(model_seq_)),
                           text_.end());
        turn.tokens.insert(turn.tokens.end(), drafts.tokens.begin(), drafts.tokens.end());
        const std::span<const float> logits = model_.step(std::span(&turn, 1));
        const size_t vocab_size = model_.vocab_size();
        const size_t rows = logits.size() / vocab_size;
        const size_t firm = rows - drafts.tokens.size();
        std::vector<uint32_t> path;
        uint32_t at = QUIRE_MASK_ROOT;
        while (true) {
            const size_t row = at == QUIRE_MASK_ROOT ? firm - 1 : firm + at;
            const uint32_t token = best_token(logits.subspan(row * vocab_size, vocab_size));
            text_.push_back(token);
            const uint32_t next = find(drafts, at, token);
            if (next == QUIRE_MASK_ROOT || is_over()) {
                return path;
            }
            path.push_back(next);
            at = next;
        }
    }

    // The draft that follows `parent` with this token, or QUIRE_MASK_ROOT.
    static uint32_t find(const Drafts &drafts, uint32_t parent, uint32_t token) {
        for (uint32_t i = 0; i < drafts.tokens.size(); ++i) {
            if (drafts.parents[i] == parent && drafts.tokens[i] == token) {
                return i;
            }
        }
        return QUIRE_MASK_ROOT;
    }

    Decoder &model_;
    Decoder &drafter_;
    SpeculationOptions options_;
    std::vector<uint32_t> text_;
    size_t prompt_length_;
    size_t known_before_ = 0;  // tokens of the text when the drafting began
    quire_seq model_seq_;
    quire_seq drafter_seq_;
    Speculation result_;
};

}  // namespace

Speculation speculate(Decoder &model, Decoder &drafter, std::span<const uint32_t> prompt,
                      const SpeculationOptions &options) {
    Speculator speculator(model, drafter, prompt, options);
    while (!speculator.is_over()) {
        speculator.round();
    }
    return speculator.result();
}

}  // namespace decoding
