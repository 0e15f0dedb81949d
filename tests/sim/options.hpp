// SPDX-License-Identifier: Apache-2.0
//
// options: the command line of quire-sim.
//
// Threads: none; values.
#pragma once
#include <cstdint>
#include <string>

#include "features.hpp"
#include "open_defects.hpp"

namespace sim {

struct Options {
    uint64_t seeds = 100;
    uint64_t first = 1;  // of the seeds; by default QUIRE_TEST_SEED modulo 1,000,000, or 1
    uint32_t ops = 2000;
    uint32_t threads = 1;
    FeatureSet features = FeatureSet::all();
    std::string replay;
    std::string shrink;
    std::string directory = ".";
    std::string known = kKnown;
    std::string ignore = kIgnored;
    std::string library;
    bool json = false;
    bool quiet = false;
    bool keep_going = false;
    bool no_shrink = false;
    bool loose = false;
    bool trace = false;
    bool both = false;   // differential.hpp
    bool ranks = false;  // ranks.hpp
};

std::string help();
// False: the help was asked for. Throws std::string.
bool parse_options(int argc, char **argv, Options &o);

}  // namespace sim
