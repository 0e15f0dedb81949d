// SPDX-License-Identifier: Apache-2.0
//
// number: the element types as the tests define them, and random values.
//
// Why not the backend's own conversion: a mistake shared by both sides would go unnoticed. This one
// goes through double and the C library, one value at a time.
//
// Threads: any; keeps no state.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire::conformance {

// Types that hold values: for q, out, written K and V, and pools.
constexpr uint32_t kValueTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};
// Types of pools whose elements are codes, to be multiplied by a scale.
constexpr uint32_t kCodeTypes[] = {QUIRE_DTYPE_I8, QUIRE_DTYPE_I4, QUIRE_DTYPE_F8_E4M3FN,
                                   QUIRE_DTYPE_F8_E5M2};

bool holds_codes(uint32_t dtype);
// The largest code, as a number.
double largest_code_of(uint32_t dtype);

// Bytes of one element. REQUIRES: not int4.
uint32_t size_of(uint32_t dtype);
// Bytes of `count` adjacent elements.
int64_t row_bytes(uint32_t count, uint32_t dtype);
const char *name_of(uint32_t dtype);

// Rounds to nearest even. A NaN becomes a NaN, or 0 in an integer type. Too large a number becomes
// infinity in a type of values, and the largest number in a type of codes.
uint32_t encode(double value, uint32_t dtype);
double decode(uint32_t bits, uint32_t dtype);

// One element in memory, at any alignment. REQUIRES: not int4.
void store(double value, uint32_t dtype, void *to);
double load(const void *from, uint32_t dtype);
// Element `index` of a row, of any type.
void store_in_row(double value, uint32_t dtype, unsigned char *row, uint32_t index);
uint32_t bits_in_row(const unsigned char *row, uint32_t dtype, uint32_t index);
double load_in_row(const unsigned char *row, uint32_t dtype, uint32_t index);

// Half a unit in the last place of a value near 1: the relative error of storing.
double rounding_of(uint32_t dtype);
// Half the distance between the smallest numbers: the absolute error of storing near zero.
double smallest_of(uint32_t dtype);

// A number in [0, 2^64) that depends on all arguments.
uint64_t mix(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0, uint64_t e = 0);
// A number in [-1, 1) that depends on all arguments.
double chance(uint64_t a, uint64_t b = 0, uint64_t c = 0, uint64_t d = 0, uint64_t e = 0);

// The seed's sequence of numbers.
class Dice {
 public:
    explicit Dice(uint64_t seed) : seed_(seed) {}
    // In [low, high], both inclusive.
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
