// SPDX-License-Identifier: Apache-2.0
//
// softmax: shared/kernels/softmax.h for CUDA and HIP.
//
// Threads: any; stateless.
#pragma once

#include "dialect.hpp"

namespace quire::gpu {

QUIRE_DEVICE inline float minus_infinity() { return float_of(0xFF800000u); }

#include "shared/kernels/softmax.h"

}  // namespace quire::gpu
