// SPDX-License-Identifier: Apache-2.0
//
// options: what a user asked a benchmark to measure.
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
    std::string device = "cpu";  // backend and device, as cpu or vulkan:1
    bool is_fast_16bit = false;

    bool wants(const std::string &name) const;  // a case
    uint32_t device_flags() const;              // QUIRE_DEVICE_*
};

// What one program offers; `dtypes` empty: it has no such option. What it starts with is the
// default: all cases, the dtypes and thread counts given.
struct Offer {
    const char *command;
    const char *description;
    const char *example;
    std::vector<std::string> cases;
    std::vector<std::string> dtypes;
    bool has_device = false;
    bool has_fast_16bit = false;
};

// Nothing when the program is to end at once with `*exit_status`: help was printed, or what is
// wrong was.
std::optional<Options> parse_options(int argc, char **argv, const Offer &offer, int *exit_status);

}  // namespace quire::bench
