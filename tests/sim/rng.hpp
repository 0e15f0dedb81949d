// SPDX-License-Identifier: Apache-2.0
//
// rng: the only source of chance, and the only hash.
//
// Why our own: a seed must give the same run with every compiler and standard library.
//
// A tape is another source of draws: bytes that a fuzzer chose. What a script's operations mean
// never comes from it, so that a script that was drawn from a tape replays like any other.
//
// Threads: none; each run has its own. A thread has at most one tape.
#pragma once
#include <algorithm>
#include <cstddef>
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

struct Tape {
    const uint8_t *bytes;
    size_t left;

    // The next draw of [0, bound), from as few bytes as it needs. REQUIRES: some are left.
    uint32_t below(uint64_t bound) {
        uint64_t value = 0;
        const size_t wanted = bound <= 1u << 8 ? 1 : bound <= 1u << 16 ? 2 : 4;
        const size_t taken = std::min(wanted, left);
        for (size_t i = 0; i < taken; ++i) value = value << 8 | bytes[i];
        bytes += taken;
        left -= taken;
        return static_cast<uint32_t>(value % bound);
    }
};

// What choices are drawn from on this thread; null: from seeds.
inline thread_local Tape *choice_tape = nullptr;

class Rng {
 public:
    // tape: null, or draws come from there until it ends; then they go on from the seed.
    explicit Rng(uint64_t seed, Tape *tape = nullptr) : state_(scramble(seed)), tape_(tape) {}
    uint64_t next() { return scramble(state_++); }
    // A number of [0, bound); 0 when bound is 0.
    uint32_t below(uint64_t bound) {
        if (bound == 0) return 0;
        if (tape_ != nullptr && tape_->left != 0) return tape_->below(bound);
        return static_cast<uint32_t>((next() >> 32) * bound >> 32);
    }
    uint32_t range(uint32_t low, uint32_t high) { return low + below(high - low + 1); }
    bool percent(uint32_t chance) { return below(100) < chance; }

 private:
    uint64_t state_;
    Tape *tape_;
};

}  // namespace sim
