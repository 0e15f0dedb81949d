// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include "common_options.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

namespace decoding {
namespace {

constexpr const char *kDescription =
    "Decoding methods that fork, judge and discard texts, on Quire's paged KV cache.\n"
    "The text goes to stdout, its cost to stderr.";

constexpr const char *kExample =
    "Example: the four likeliest beginnings of a story, and what sharing saves\n"
    "  ./dev decode beam --weights stories260K.bin --tokenizer tok512.bin --width 4 \\\n"
    "                    --prompt \"Once upon a time, there was a little girl\" --block-tokens 4";

void add_common_options(CLI::App &app, Options &options) {
    engine::add_weights_options(app, options.weights, options.tokenizer);
    app.add_option("--prompt", options.prompt, "the beginning of the text; default empty");
    app.add_option("--steps", options.steps,
                   "positions computed for a text, prompt included; default 64, at most the "
                   "model's longest sequence")
        ->check(CLI::Range(1U, 1U << 30));
    app.add_option("--seed", options.seed, "seed of the model and of sampling, default 1");
    app.add_option("--device", options.decoder.backend, "backend, default cpu");
    app.add_option("--pool-blocks", options.decoder.pool_blocks,
                   "blocks in the pool, including the null block; default 256")
        ->check(CLI::Range(2U, 0x7FFFFFFFU));
    app.add_option("--block-tokens", options.decoder.block_tokens,
                   "tokens in a block, a power of two; default 16")
        ->check(CLI::Range(1U, 256U));
    app.add_flag("--json", options.json, "the texts and their cost as JSON, on stdout");
}

CLI::App *add_beam(CLI::App &app, Options &options) {
    auto *beam = app.add_subcommand("beam", "the likeliest texts, grown side by side");
    add_common_options(*beam, options);
    beam->add_option("--width", options.beam.width, "beams, default 4")->check(CLI::Range(1, 64));
    beam->add_option("--length-penalty", options.beam.length_penalty,
                     "a text's log probability is divided by length to this power; default 1")
        ->check(engine::number_range(0, 10));
    beam->add_flag("--check", options.check,
                   "compare with beams that have contiguous K and V; exit status 1 if they differ");
    return beam;
}

CLI::App *add_speculate(CLI::App &app, Options &options) {
    auto *speculate =
        app.add_subcommand("speculate", "greedy text, drafted by a perturbed copy of the model");
    add_common_options(*speculate, options);
    speculate->add_option("--depth", options.speculation.depth, "drafts in a chain, default 4")
        ->check(CLI::Range(1, 32));
    speculate->add_flag("--tree", options.speculation.tree,
                        "offer the runner-up of each draft too");
    speculate
        ->add_option("--noise", options.noise,
                     "largest relative error of the copy's weights; default 0.05")
        ->check(engine::number_range(0, 10));
    speculate->add_flag("--check", options.check,
                        "compare with plain greedy decoding; exit status 1 if they differ");
    return speculate;
}

CLI::App *add_best_of(CLI::App &app, Options &options) {
    auto *best_of = app.add_subcommand("best-of", "the likeliest of several samples");
    add_common_options(*best_of, options);
    best_of->add_option("--count", options.best_of.count, "samples, default 4")
        ->check(CLI::Range(1, 256));
    best_of->add_option("--temperature", options.best_of.temperature, "default 1; 0 is greedy")
        ->check(engine::number_range(0, 100));
    return best_of;
}

}  // namespace

std::optional<Options> parse_options(int argc, char **argv, int &exit_code) {
    Options options;
    CLI::App app(kDescription, "quire-decode");
    app.footer(kExample);
    app.require_subcommand(1);
    add_beam(app, options);
    const CLI::App *speculate = add_speculate(app, options);
    const CLI::App *best_of = add_best_of(app, options);
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &help) {
        exit_code = app.exit(help);
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        std::cerr << "quire-decode: " << error.what() << "\nTry --help.\n";
        exit_code = 2;
        return std::nullopt;
    }
    if (speculate->parsed()) {
        options.method = Method::speculate;
        options.decoder.max_tree =
            static_cast<uint32_t>(options.speculation.depth * (options.speculation.tree ? 2 : 1));
    } else if (best_of->parsed()) {
        options.method = Method::best_of;
        options.decoder.max_texts = options.best_of.count;
        options.best_of.seed = options.seed;
    } else {
        options.decoder.max_texts = static_cast<uint32_t>(options.beam.width);
    }
    return options;
}

}  // namespace decoding
