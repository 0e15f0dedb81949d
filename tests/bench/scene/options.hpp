// SPDX-License-Identifier: Apache-2.0
//
// options: what the user asked a benchmark to measure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace quire::bench {

struct Options {
    std::vector<std::string> cases;
    std::vector<std::string> dtypes;
    std::vector<uint32_t> threads;
    double seconds = 2;
    uint32_t scale = 1;
    bool json = false;
    std::string device = "cpu";  // backend and device, like cpu or vulkan:1
    bool is_fast_16bit = false;

    bool wants(const std::string &name) const;  // a case
    uint32_t device_flags() const;              // QUIRE_DEVICE_*
};

// The choices of one program; `dtypes` empty: it has no such option. The defaults are all cases and
// the dtypes and thread counts given here.
struct Offer {
    const char *command;
    const char *description;
    const char *example;
    std::vector<std::string> cases;
    std::vector<std::string> dtypes;
    bool has_device = false;
    bool has_fast_16bit = false;
};

// Empty if the program must end at once with `*exit_status`: help or an error was printed.
std::optional<Options> parse_options(int argc, char **argv, const Offer &offer, int *exit_status);

}  // namespace quire::bench
