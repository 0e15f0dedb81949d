// SPDX-License-Identifier: Apache-2.0
//
// number: the element types as the tests understand them, and values that are chosen by chance.
//
// Why not the backend's own conversion: a mistake shared by both sides would not be seen. This one
// goes through double and the C library, one value at a time.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

namespace quire::conformance {

uint32_t size_of(uint32_t dtype);
const char *name_of(uint32_t dtype);

// Rounds to nearest even, too large to infinity, NaN to a NaN.
uint32_t encode(double value, uint32_t dtype);
double decode(uint32_t bits, uint32_t dtype);

// One element in memory, at any alignment.
void store(double value, uint32_t dtype, void *to);
double load(const void *from, uint32_t dtype);

// Half a unit in the last place of a value near 1: the relative error of storing.
double rounding_of(uint32_t dtype);
// Half the distance between the smallest numbers: the absolute error of storing near zero.
double smallest_of(uint32_t dtype);

// A number in [0, 2^64) that depends on all arguments.
uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0, uint64_t e = 0);
// A number in [-1, 1) that depends on all arguments.
double chance(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0, uint64_t e = 0);

// Numbers in order of a seed.
class Dice {
 public:
    explicit Dice(uint64_t seed) : seed_(seed) {}
    // [low, high], both included.
    uint32_t roll(uint32_t low, uint32_t high) {
        return low + static_cast<uint32_t>(mix(seed_, ++count_) % (uint64_t{high} - low + 1));
    }
    template <typename T, uint32_t N>
    T pick(const T (&choices)[N]) {
        return choices[roll(0, N - 1)];
    }

 private:
    uint64_t seed_;
    uint64_t count_ = 0;
};

}  // namespace quire::conformance
