// SPDX-License-Identifier: Apache-2.0

#include "options.hpp"

#include "common_options.hpp"

#include <CLI/CLI.hpp>
#include <iostream>

namespace accuracy {
namespace {

constexpr const char *kDescription =
    "Measures what each format of K and V costs a model: its perplexity against f32's over a\n"
    "greedy text and two sampled ones, and the first token at which the greedy text differs.";

constexpr const char *kExample =
    "Example: on a trained model, for a program to read\n"
    "  ./dev accuracy --weights stories260K.bin --tokenizer tok512.bin --json > accuracy.json";

}  // namespace

std::optional<Options> parse_options(int argc, char **argv, int &exit_code) {
    Options options;
    CLI::App app(kDescription, "quire-accuracy");
    app.footer(kExample);
    engine::add_weights_options(app, options.weights, options.tokenizer);
    app.add_option("--seed", options.seed,
                   "seed of sampling and of the model made from a seed; default 1");
    app.add_option("--steps", options.steps,
                   "positions computed of each text; default 256, at most the model's longest "
                   "sequence")
        ->check(CLI::Range(2U, 1U << 30));
    app.add_option("--chunk", options.chunk_tokens,
                   "tokens of a text per step when it is not fed one by one; default 64")
        ->check(CLI::Range(1U, 1U << 20));
    app.add_option("--block-tokens", options.block_tokens,
                   "tokens in a block, a power of two; default 16")
        ->check(CLI::Range(1U, 256U));
    app.add_option("--device", options.backend, "backend, default cpu");
    app.add_flag("--json", options.json, "the table as JSON, with the texts");
    try {
        app.parse(argc, argv);
    } catch (const CLI::CallForHelp &help) {
        exit_code = app.exit(help);
        return std::nullopt;
    } catch (const CLI::ParseError &error) {
        std::cerr << "quire-accuracy: " << error.what() << "\nTry --help.\n";
        exit_code = 2;
        return std::nullopt;
    }
    return options;
}

}  // namespace accuracy
