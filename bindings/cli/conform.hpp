// SPDX-License-Identifier: Apache-2.0
//
// conform: the conformance suite on a backend. The suite is a program of its own, which is there
// where GoogleTest was; this finds the backend as the library would, and the program beside the
// command, and becomes it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire::cli {

struct ConformOptions {
    std::string backend = "cpu";      // a name, or the path of a plugin
    std::vector<std::string> passed;  // on to the suite, which checks them
};

void add_conform_options(CLI::App *app, ConformOptions *options);

// Returns only by throwing.
[[noreturn]] void conform(const ConformOptions &options);

}  // namespace quire::cli
