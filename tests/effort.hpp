// SPDX-License-Identifier: Apache-2.0
//
// effort: how many random cases a run of the tests takes, and which ones.
//
//   QUIRE_TEST_EFFORT   all (also if unset), usual or few
//   QUIRE_TEST_SEED     a number that moves the choice; ./dev test takes it from the commit
//
// A test with random cases has a fixed list of them, numbered from its first seed. `all` runs the
// list. The other efforts run a window of it: the test sets its length, the seed sets its start,
// and it wraps around at the end, so that runs of successive commits cover the list, and the same
// seed runs the same cases again.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

namespace quire::tests {

struct Counts {
    uint64_t all, usual, few;
};

inline std::string_view effort() {
    const char *value = std::getenv("QUIRE_TEST_EFFORT");
    return value == nullptr || *value == '\0' ? "all" : value;
}

// An unknown word runs everything: a typo may cost time, not cases.
inline uint64_t chosen(const Counts &counts) {
    if (effort() == "few") return counts.few;
    return effort() == "usual" ? counts.usual : counts.all;
}

inline uint64_t run_seed() {
    const char *value = std::getenv("QUIRE_TEST_SEED");
    return value == nullptr ? 0 : std::strtoull(value, nullptr, 10);
}

// `count` of the numbers [first, first + all): a window whose start `seed` sets.
inline std::vector<uint64_t> window(uint64_t first, uint64_t all, uint64_t count, uint64_t seed) {
    count = std::min(count, all);
    uint64_t begin = count == all ? 0 : seed % all;
    std::vector<uint64_t> numbers;
    for (uint64_t i = 0; i < count; ++i) numbers.push_back(first + (begin + i) % all);
    return numbers;
}

// The seeds to run.
inline std::vector<uint64_t> seeds(uint64_t first, const Counts &counts) {
    return window(first, counts.all, chosen(counts), run_seed());
}

}  // namespace quire::tests
