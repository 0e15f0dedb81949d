// SPDX-License-Identifier: Apache-2.0
//
// options: the command line of quire-hybrid.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "world.hpp"

namespace hybrid {

struct Options {
    std::vector<uint64_t> seeds;
    double seconds = 0;  // no seed begins later; 0: no limit
    bool show_counts = false;
    bool keep_going = false;
    std::string path;
    Play play;
};

std::string help();

// False: print help. Throws std::string.
bool parse_options(int argc, char **argv, Options *options);

}  // namespace hybrid
