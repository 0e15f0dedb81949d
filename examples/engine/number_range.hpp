// SPDX-License-Identifier: Apache-2.0
//
// number_range: a check of options that hold fractions. CLI::Range lets "nan" pass.
//
// Threads: any.

#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace engine {

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

}  // namespace engine
