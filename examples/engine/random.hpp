// SPDX-License-Identifier: Apache-2.0
//
// random: numbers that depend on a counter, not on how often a number was drawn before.
//
// Why: a sampled token must be the same in the paged and in the dense run, in whatever order and
// however often the scheduler computes it. Threads: pure functions.

#pragma once

#include <cstdint>

namespace engine {

// The output function of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64-bit numbers.
constexpr uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15U;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31);
}

// A number for (key, counter); chain calls for more than one counter.
constexpr uint64_t mix(uint64_t key, uint64_t counter) { return mix(mix(key) ^ counter); }

// In the open interval (0, 1): 53 bits and a half step, so that its logarithm is always finite.
constexpr double unit_interval(uint64_t bits) {
    return (static_cast<double>(bits >> 11) + 0.5) * 0x1.0p-53;
}

}  // namespace engine
