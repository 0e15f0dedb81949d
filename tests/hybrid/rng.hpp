// SPDX-License-Identifier: Apache-2.0
//
// rng: the only source of chance, and the only hash.
//
// A seed decides every draw, so the order of draws is part of a seed's schedule: a new draw before
// an old one gives every seed another schedule.
//
// Threads: none; each World has its own.
#pragma once
#include <cstdint>

namespace hybrid {

// Two rounds of splitmix64's finaliser: https://prng.di.unimi.it/splitmix64.c
inline uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t x = a * 0x9E3779B97F4A7C15ull ^ (b + 0x632BE59BD9B4E019ull + (a << 6) + (a >> 3));
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 29;
    x *= 0x94D049BB133111EBull;
    return x ^ (x >> 32);
}

class Rng {
 public:
    explicit Rng(uint64_t seed) : state_(seed * 7919 + 13) {}
    uint64_t next() {
        state_ += 0x9E3779B97F4A7C15ull;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }
    // A number of [0, bound); 0, without a draw, if bound is 0.
    uint32_t below(uint64_t bound) {
        return bound == 0 ? 0 : static_cast<uint32_t>(next() % bound);
    }
    uint32_t range(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool chance(double p) {
        return static_cast<double>(next() >> 11) * (1.0 / 9007199254740992.0) < p;
    }

 private:
    uint64_t state_;
};

}  // namespace hybrid
