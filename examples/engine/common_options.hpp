// SPDX-License-Identifier: Apache-2.0
//
// common_options: what the command lines of the examples have in common.
//
// Threads: one.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace engine {

// For options that hold fractions: CLI::Range lets "nan" pass.
inline CLI::Validator number_range(double low, double high) {
    return CLI::Validator(
        [low, high](std::string &text) -> std::string {
            double value = 0;
            if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) {
                return {};
            }
            return text + " is not a number from " + CLI::detail::to_string(low) + " to " +
                   CLI::detail::to_string(high);
        },
        "NUMBER");
}

// --weights, which is returned, and --tokenizer: both or neither.
inline CLI::Option *add_weights_options(CLI::App &app, std::string &weights,
                                        std::string &tokenizer) {
    auto *first = app.add_option("--weights", weights,
                                 "llama2.c checkpoint, such as those of karpathy/tinyllamas on "
                                 "Hugging Face; without it a model made from --seed");
    auto *second =
        app.add_option("--tokenizer", tokenizer, "llama2.c tokenizer that belongs to the weights");
    first->needs(second);
    second->needs(first);
    return first;
}

}  // namespace engine
