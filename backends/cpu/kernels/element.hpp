// SPDX-License-Identifier: Apache-2.0
//
// element: the number formats of a pool, and conversion of their rows to and from f32.
//
// Every kernel computes in f32, which holds each format exactly, so a format is two functions.
// Formats: IEEE 754 binary16 and binary32; bfloat16, the upper half of binary32; OCP OFP8 (revision
// 1.0, 2023) E4M3 and E5M2; two's complement integers, those of 4 bits two per byte, the first in
// its low half. Rounding is to nearest even. A NaN stays a NaN, but becomes 0 in an integer. Values
// too large become infinity in f16 and bf16, and the largest number in the others, as does infinity
// itself.
//
// In the formats whose rows are codes, a value is code * scale (scale.hpp).
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
// As find_element(), but only for a type that holds values, as q, out and kv_write's input must.
const Element *find_value(uint32_t dtype);

}  // namespace quire::cpu
