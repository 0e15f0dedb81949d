// SPDX-License-Identifier: Apache-2.0
//
// quire-decode: beam search, speculative decoding and best-of-n over Quire. Start here, then read
// the method's own file, then decoder (the calls that a method takes).
//
// Exit status: 0 all went well, 1 a failure or a text that differs from what --check compares with,
// 2 a mistake in the command line.

#include "dense_texts.hpp"
#include "failure.hpp"
#include "library.hpp"
#include "memory_use.hpp"
#include "options.hpp"
#include "paged_texts.hpp"
#include "request.hpp"
#include "tokenizer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>

namespace decoding {
namespace {

struct Scene {
    engine::Model model;
    engine::Tokenizer tokenizer;
    std::vector<uint32_t> prompt;
    size_t limit;  // tokens after the prompt
};

engine::Model make_model(const Options &options) {
    return options.weights.empty()
               ? engine::Model::seeded(engine::Model::demo_config(), options.seed)
               : engine::Model::load(options.weights);
}

// "steps" counts computed positions, as in llama2.c: a prompt of n tokens leaves steps - (n - 1).
Scene make_scene(const Options &options) {
    engine::Model model = make_model(options);
    const size_t vocab_size = model.config().vocab_size;
    auto tokenizer = options.tokenizer.empty()
                         ? engine::Tokenizer::syllables(vocab_size)
                         : engine::Tokenizer::load(options.tokenizer, vocab_size);
    std::vector<uint32_t> prompt = tokenizer.encode(options.prompt);
    const size_t steps = std::min<size_t>(options.steps, model.config().seq_len);
    if (prompt.size() > steps) {
        throw engine::Failure("--prompt: " + std::to_string(prompt.size()) +
                              " tokens do not fit into " + std::to_string(steps) +
                              " steps. Give a shorter prompt or more --steps.");
    }
    const size_t limit = steps - (prompt.size() - 1);
    return {std::move(model), std::move(tokenizer), std::move(prompt), limit};
}

// The text as llama2.c prints it; a token that ends it prints nothing.
std::string text_of(const Scene &scene, std::span<const uint32_t> tokens) {
    std::string text;
    uint32_t previous = scene.prompt.back();
    for (const uint32_t token : tokens) {
        if (engine::ends_text(token)) {
            break;
        }
        text += scene.tokenizer.decode(previous, token);
        previous = token;
    }
    return text;
}

void print_text(const Scene &scene, std::span<const uint32_t> tokens) {
    std::cout << text_of(scene, tokens) << '\n';
}

// A text may end within a character, but JSON needs whole ones.
void print_json(const nlohmann::json &out) {
    std::cout << out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
}

// Prints one line about what the run took, for people.
void row(const char *name, const std::string &value) {
    std::fprintf(stderr, "  %-20s%s\n", name, value.c_str());
}

[[gnu::format(printf, 1, 2)]] std::string format(const char *pattern, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, pattern);
    std::vsnprintf(text, sizeof text, pattern, arguments);
    va_end(arguments);
    return text;
}

// The most that the texts of a run held, and what their common prompt took at that moment.
struct Peak {
    MemoryUse all;
    MemoryUse prompt;

    void watch(const Decoder &decoder, size_t prompt_blocks, std::span<const uint64_t> texts) {
        const MemoryUse now = memory_use(decoder, texts);
        if (now.copies < all.copies) {
            return;
        }
        all = now;
        prompt = memory_use(decoder, texts, prompt_blocks);
    }
    void print(size_t texts) const {
        row("prompt's blocks", format("%zu held for %zu texts, %zu as copies: %.0f %% saved",
                                      prompt.held, texts, prompt.copies, saved_percent(prompt)));
        row("all blocks, at most", format("%zu held, %zu as copies: %.0f %% saved", all.held,
                                          all.copies, saved_percent(all)));
    }
    nlohmann::json json() const {
        return {{"prompt_blocks_held", prompt.held},
                {"prompt_blocks_copies", prompt.copies},
                {"prompt_saved_percent", saved_percent(prompt)},
                {"blocks_held", all.held},
                {"blocks_copies", all.copies}};
    }
};

// True if the texts are the same. Scores are sums of many rounded numbers and may differ a little.
bool same_texts(const std::vector<Hypothesis> &a, const std::vector<Hypothesis> &b) {
    return std::ranges::equal(a, b, [](const Hypothesis &x, const Hypothesis &y) {
        return x.tokens == y.tokens && std::abs(x.score - y.score) < 1e-4;
    });
}

int run_beam(const Options &options, const Scene &scene, Decoder &decoder) {
    BeamOptions beam = options.beam;
    beam.limit = scene.limit;
    PagedTexts texts(decoder);
    Peak peak;
    const size_t prompt_blocks = scene.prompt.size() / decoder.block_tokens();
    const auto found = beam_search(texts, scene.prompt, beam, [&](std::span<const uint64_t> alive) {
        if (alive.size() == beam.width) {
            peak.watch(decoder, prompt_blocks, alive);
        }
    });
    bool equal = true;
    if (options.check) {
        DenseTexts dense(scene.model);
        equal = same_texts(found, beam_search(dense, scene.prompt, beam, [](auto) {}));
    }
    if (options.json) {
        nlohmann::json out = peak.json();
        for (const Hypothesis &one : found) {
            out["scores"].push_back(one.score);
            out["texts"].push_back(text_of(scene, one.tokens));
        }
        out["steps"] = decoder.steps();
        out["equal"] = options.check ? nlohmann::json(equal) : nlohmann::json();
        print_json(out);
        return equal ? 0 : 1;
    }
    for (const Hypothesis &one : found) {
        std::fprintf(stderr, "  score %.4f, log probability %.3f, %zu tokens\n", one.score,
                     one.log_probability, one.tokens.size());
        print_text(scene, one.tokens);
        std::cout.flush();
    }
    peak.print(beam.width);
    if (options.check) {
        row("contiguous beams", equal ? "equal" : "DIFFERENT");
    }
    return equal ? 0 : 1;
}

int run_speculate(const Options &options, const Scene &scene, Decoder &decoder) {
    const engine::Model copy = engine::Model::perturbed(scene.model, options.noise, options.seed);
    DecoderOptions draft_options = options.decoder;
    draft_options.max_tree = 0;
    Decoder drafter(engine::load_library(), copy, draft_options);
    SpeculationOptions speculation = options.speculation;
    speculation.limit = scene.limit;
    const Speculation made = speculate(decoder, drafter, scene.prompt, speculation);
    drafter.check();
    bool equal = true;
    if (options.check) {
        engine::DenseRun dense(scene.model);
        engine::Request request;
        request.prompt = scene.prompt;
        request.generate_limit = scene.limit;
        const auto plain = dense.generate(request, options.seed);
        equal = std::ranges::equal(made.tokens, plain.front(), {}, {}, &engine::Choice::token);
    }
    const double a_step = static_cast<double>(made.tokens.size()) /
                          static_cast<double>(std::max<size_t>(made.judging_steps, 1));
    if (options.json) {
        print_json({
            {"text", text_of(scene, made.tokens)},
            {"tokens", made.tokens.size()},
            {"judging_steps", made.judging_steps},
            {"tokens_a_step", a_step},
            {"drafted", made.drafted},
            {"accepted", made.accepted},
            {"off_chain", made.off_chain},
            {"moved", made.moved},
            {"equal", options.check ? nlohmann::json(equal) : nlohmann::json()},
        });
        return equal ? 0 : 1;
    }
    print_text(scene, made.tokens);
    row("tokens", format("%zu in %zu steps of the model: %.2f per step", made.tokens.size(),
                         made.judging_steps, a_step));
    row("drafts", format("%zu of %zu accepted", made.accepted, made.drafted));
    row("runners-up", format("%zu accepted paths ended in one", made.off_chain));
    row("moved", format("%zu accepted paths were not in place in the cache", made.moved));
    if (options.check) {
        row("plain greedy text", equal ? "equal" : "DIFFERENT");
    }
    return equal ? 0 : 1;
}

int run_best_of(const Options &options, const Scene &scene, Decoder &decoder) {
    BestOfOptions best_of = options.best_of;
    best_of.limit = scene.limit;
    Peak peak;
    const size_t prompt_blocks = scene.prompt.size() / decoder.block_tokens();
    const auto samples =
        draw_samples(decoder, scene.prompt, best_of, [&](std::span<const uint64_t> alive) {
            if (alive.size() == best_of.count) {
                peak.watch(decoder, prompt_blocks, alive);
            }
        });
    const auto best = std::ranges::max_element(samples, {}, &Sample::score);
    if (options.json) {
        nlohmann::json out = peak.json();
        for (const Sample &sample : samples) {
            out["scores"].push_back(sample.score);
            out["texts"].push_back(text_of(scene, sample.tokens));
        }
        out["best"] = best - samples.begin();
        print_json(out);
        return 0;
    }
    print_text(scene, best->tokens);
    for (const Sample &sample : samples) {
        std::fprintf(stderr, "%s score %.4f, %zu tokens\n", &sample == &*best ? "*" : " ",
                     sample.score, sample.tokens.size());
    }
    peak.print(best_of.count);
    return 0;
}

int run(const Options &options) {
    const Scene scene = make_scene(options);
    Decoder decoder(engine::load_library(), scene.model, options.decoder);
    int status = 0;
    switch (options.method) {
        case Method::beam:
            status = run_beam(options, scene, decoder);
            break;
        case Method::speculate:
            status = run_speculate(options, scene, decoder);
            break;
        case Method::best_of:
            status = run_best_of(options, scene, decoder);
            break;
    }
    decoder.check();
    return status;
}

}  // namespace
}  // namespace decoding

int main(int argc, char **argv) {
    int exit_code = 0;
    const auto options = decoding::parse_options(argc, argv, exit_code);
    if (!options) {
        return exit_code;
    }
    try {
        return decoding::run(*options);
    } catch (const std::exception &failure) {
        std::fprintf(stderr, "quire-decode: %s\n", failure.what());
        return 1;
    }
}
