// SPDX-License-Identifier: Apache-2.0
//
// scale: rows of values to codes, as quire/cache.h says at QUIRE_SCALE_*.
//
// A code is value / scale, one f32 division, stored by the element: it rounds and saturates. Why a
// division and not a product with 1 / scale: it has one rounding, it cannot overflow where the
// scale is subnormal, and every device can give the same bits.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "kernels/element.hpp"

namespace quire::cpu {

// A row's own scale: its largest magnitude / kept.largest_code; NaN where it holds one, or an
// infinity; 0 where it is so small that f32 has no number for the scale.
float scale_of_row(const Element &kept, const float *values, uint32_t count);

// Stores values / scale. Spoils `values`.
void store_codes(const Element &kept, float *values, uint32_t count, float scale, void *to);

// As store_codes() with a scale of scale_of_row(): where that is 0 or NaN all codes are 0.
void store_scaled_row(const Element &kept, float *values, uint32_t count, float scale, void *to);

}  // namespace quire::cpu
