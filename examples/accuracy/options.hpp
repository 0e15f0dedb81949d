// SPDX-License-Identifier: Apache-2.0
//
// options: the command line of quire-accuracy.

#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace accuracy {

struct Options {
    std::string weights;  // empty: a seeded model
    std::string tokenizer;
    std::string backend = "cpu";
    uint32_t block_tokens = 16;
    uint32_t chunk_tokens = 64;
    uint32_t steps = 256;  // positions computed of each text
    uint64_t seed = 1;
    bool json = false;
};

// Reads the command line. Help goes to stdout, error messages to stderr.
//
// exit_code  of the program, if nothing is returned: 0 after --help, 2 after a mistake.
std::optional<Options> parse_options(int argc, char **argv, int &exit_code);

}  // namespace accuracy
