// SPDX-License-Identifier: Apache-2.0
//
// trace_make: makes traces like the published ones from a seed, so that a replay can be tried, and
// repeated elsewhere, without any real user's data.
//
// The same seed gives the same bytes on every machine: it uses integers only and its own generator.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

struct TraceOptions {
    std::string kind = "mooncake";  // or azure
    uint64_t requests = 1000;
    uint64_t seed = 1;
    std::string output;  // empty: standard output
};

void make_trace(const TraceOptions &options);

}  // namespace quire::cli
