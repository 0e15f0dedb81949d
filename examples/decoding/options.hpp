// SPDX-License-Identifier: Apache-2.0
//
// options: the command line of quire-decode.

#pragma once

#include "beam_search.hpp"
#include "best_of.hpp"
#include "decoder.hpp"
#include "speculation.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace decoding {

enum class Method { beam, speculate, best_of };

struct Options {
    Method method = Method::beam;
    std::string weights;  // empty: a seeded model
    std::string tokenizer;
    std::string prompt;
    uint32_t steps = 64;  // positions computed, including the prompt's
    uint64_t seed = 1;
    bool check = false;
    bool json = false;
    float noise = 0.05F;  // of the drafting model
    DecoderOptions decoder;
    BeamOptions beam;
    SpeculationOptions speculation;
    BestOfOptions best_of;
};

// Reads the command line. Help goes to stdout, error messages to stderr.
//
// exit_code  of the program, if nothing is returned: 0 after --help, 2 after a mistake.
std::optional<Options> parse_options(int argc, char **argv, int &exit_code);

}  // namespace decoding
