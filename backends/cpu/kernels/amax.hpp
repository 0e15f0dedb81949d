// SPDX-License-Identifier: Apache-2.0
//
// amax: the largest magnitude of rows of values, as quire_be_pool.amax keeps it.
//
// Magnitudes are compared by their bits, which are in the same order, with infinity above all
// numbers and NaN above infinity: one instruction, and nothing is lost.
//
// Threads: any; several may raise the same number at once.
#pragma once

#include <cstdint>

namespace quire::cpu {

// The bits of the largest |value|; 0 if there are no values.
uint32_t largest_magnitude(const float *values, uint32_t count);

// Raises the f32 at `to` to the largest |value|.
void raise_amax(uint32_t *to, const float *values, uint32_t count);

}  // namespace quire::cpu
