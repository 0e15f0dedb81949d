// SPDX-License-Identifier: Apache-2.0
//
// rng: the only source of chance, and the only hash.
//
// Why our own: a seed must give the same run with every compiler and standard library.
//
// Threads: none; each run has its own.
#pragma once
#include <cstdint>

namespace sim {

// splitmix64's finaliser: https://prng.di.unimi.it/splitmix64.c
inline uint64_t scramble(uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

inline uint64_t mix(uint64_t a, uint64_t b) { return scramble(a * 0x9E3779B97F4A7C15ull ^ b); }

class Rng {
 public:
    explicit Rng(uint64_t seed) : state_(scramble(seed)) {}
    uint64_t next() { return scramble(state_++); }
    // A number of [0, bound); 0 when bound is 0.
    uint32_t below(uint64_t bound) {
        return bound == 0 ? 0 : static_cast<uint32_t>((next() >> 32) * bound >> 32);
    }
    uint32_t range(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool percent(uint32_t chance) { return below(100) < chance; }

 private:
    uint64_t state_;
};

}  // namespace sim
