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

#include "shared/element_type.hpp"

namespace quire::cpu {

struct Element : ElementType {
    void (*load)(const void *from, float *to, uint32_t count);
    void (*store)(const float *from, void *to, uint32_t count);
};

const Element *find_element(uint32_t dtype);
// As find_element() for a type of q, out and what is written: one that holds values.
const Element *find_value(uint32_t dtype);

}  // namespace quire::cpu
