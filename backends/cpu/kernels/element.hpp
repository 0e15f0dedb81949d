// SPDX-License-Identifier: Apache-2.0
//
// element: the number formats of a pool, and rows of them to and from f32.
//
// Every kernel computes in f32, which holds each f16 and bf16 exactly: a format is two functions.
// Formats: IEEE 754 binary16 and binary32; bfloat16 is the upper half of binary32.
// Rounding is to nearest even; too large becomes infinity; a NaN stays a NaN.
//
// Threads: any; the tables are constant.
#pragma once

#include <cstdint>

namespace quire::cpu {

struct Element {
    uint32_t dtype;  // QUIRE_DTYPE_*
    uint32_t size_bytes;
    const char *name;
    void (*load)(const void *from, float *to, uint32_t count);
    void (*store)(const float *from, void *to, uint32_t count);
};

// NULL when `dtype` is not known here.
const Element *find_element(uint32_t dtype);

// The names of all, for messages: "f32, f16, bf16".
extern const char kElementNames[];

}  // namespace quire::cpu
