// SPDX-License-Identifier: Apache-2.0
//
// scale: conversion of rows of values to codes, as quire/cache.h defines it at QUIRE_SCALE_*.
//
// A code is value / scale, one f32 division, stored by the element, which rounds and saturates. Why
// a division and not a product with 1 / scale: it rounds once, it cannot overflow for a subnormal
// scale, and every device can give the same bits.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "kernels/element.hpp"

namespace quire::cpu {

// A row's own scale: its largest magnitude / kept.largest_code; NaN if the row holds a NaN or an
// infinity; 0 if the scale is too small for f32.
float scale_of_row(const Element &kept, const float *values, uint32_t count);

// Stores values / scale. Overwrites `values`.
void store_codes(const Element &kept, float *values, uint32_t count, float scale, void *to);

// As store_codes(), with a scale from scale_of_row(): if it is 0 or NaN, all codes are 0.
void store_scaled_row(const Element &kept, float *values, uint32_t count, float scale, void *to);

}  // namespace quire::cpu
