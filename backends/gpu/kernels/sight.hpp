// SPDX-License-Identifier: Apache-2.0
//
// sight: shared/kernels/sight.h for CUDA and HIP.
//
// Threads: any; stateless.
#pragma once

#include "calls.hpp"
#include "dialect.hpp"

namespace quire::gpu {

QUIRE_DEVICE inline int32_t load_int(uint64_t array, int64_t index) {
    return load<int32_t>(array + static_cast<uint64_t>(index) * 4);
}
QUIRE_DEVICE inline float load_float(uint64_t array, uint64_t index) {
    return load<float>(array + index * 4);
}

QUIRE_DEVICE inline bool has(const AttendCall &call, uint32_t option) {
    return (call.options & option) != 0;
}

#include "shared/kernels/sight.h"

}  // namespace quire::gpu
