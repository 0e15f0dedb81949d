// SPDX-License-Identifier: Apache-2.0
//
// case: one call whose time is measured at several sizes.
#pragma once

#include <time.h>

#include <cstdint>
#include <string>
#include <vector>

namespace quire::bench {

struct Case {
    std::string name;
    std::string function;    // whose comment states the bound
    std::string grows_with;  // what `size` counts
    double stated;           // the exponent of the bound in the header; n log n counts as 1
    uint32_t smallest;       // sizes are this, and two, four and eight times as much
    // Builds what is needed, warms it up, and returns the seconds of the call on it.
    double (*measure)(uint32_t size);
};

inline constexpr uint32_t kSizes = 4;

// Sequences: created, forked, shortened, ended. Steps: their items and their outcomes. Prefixes:
// found, evicted and forgotten.
std::vector<Case> sequence_cases();
std::vector<Case> step_cases();
std::vector<Case> prefix_cases();

inline double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Processor seconds of this thread in body(), without the time when others had the processor.
template <typename Body>
double seconds_of(Body body) {
    double begin = thread_seconds();
    body();
    return thread_seconds() - begin;
}

}  // namespace quire::bench
