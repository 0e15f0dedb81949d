// SPDX-License-Identifier: Apache-2.0
//
// fma_rate: how fast a number of threads multiply and add f32 numbers that are in registers.
#pragma once

#include <cstdint>

namespace quire::bench {

// 1e9 operations per second, a multiply and an add being two; the best of several tries.
double fma_gflops(uint32_t threads);

}  // namespace quire::bench
