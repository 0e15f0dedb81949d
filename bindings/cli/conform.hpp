// SPDX-License-Identifier: Apache-2.0
//
// conform: runs the conformance suite on a backend. The suite is a separate program, which exists
// only where GoogleTest was found. This code finds the backend as the library would, finds the
// program in the installed tree, and replaces the process with it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace quire::cli {

struct ConformOptions {
    std::string backend = "cpu";      // a name, or the path of a plugin
    std::vector<std::string> passed;  // passed on to the suite, which checks them
};

void add_conform_options(CLI::App *app, ConformOptions *options);

// Never returns normally: it becomes the suite, or throws.
[[noreturn]] void conform(const ConformOptions &options);

// `quire conform-store`: the conformance suite of stores.
struct StoreConformOptions {
    std::string store;
    std::vector<std::string> options;  // NAME=VALUE
    std::string only;
};
void add_conform_store_options(CLI::App *app, StoreConformOptions *options);
void conform_store(const StoreConformOptions &options);

}  // namespace quire::cli
