// SPDX-License-Identifier: Apache-2.0
//
// element: the number formats of a pool, and rows of them to and from f32.
//
// Every kernel computes in f32, which holds each format exactly: a format is two functions.
// Formats: IEEE 754 binary16 and binary32; bfloat16 is the upper half of binary32; OCP OFP8
// (revision 1.0, 2023) E4M3 and E5M2; integers in two's complement, two of 4 bits in a byte, the
// first in its low half. Rounding is to nearest even; a NaN stays a NaN, in an integer it is 0. Too
// large becomes infinity in f16 and bf16, and the largest number in the others, infinity itself
// too.
//
// Of the formats whose rows are codes a value is code * scale (scale.hpp).
//
// Threads: any; the tables are constant.
#pragma once

#include <cstdint>

namespace quire::cpu {

struct Element {
    uint32_t dtype;  // QUIRE_DTYPE_*
    uint32_t bits;
    uint32_t size_bytes;  // of what holds one, and so its alignment; of 4 bits, the byte of two
    const char *name;
    float largest_code;  // what the largest value of a row becomes; 0: holds values, not codes
    void (*load)(const void *from, float *to, uint32_t count);
    void (*store)(const float *from, void *to, uint32_t count);

    bool holds_codes() const { return largest_code != 0.0f; }
    // Of `count` elements; of 4 bits an even count.
    uint64_t row_bytes(uint64_t count) const { return count * bits / 8; }
};

// NULL when `dtype` is not known here as a type of K and V.
const Element *find_element(uint32_t dtype);
// As find_element() for a type of q, out and what is written: one that holds values.
const Element *find_value(uint32_t dtype);

// The names of all, for messages: "f32, f16, bf16", and of the types of K and V.
extern const char kElementNames[];
extern const char kPoolElementNames[];

}  // namespace quire::cpu
