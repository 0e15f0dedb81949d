// SPDX-License-Identifier: Apache-2.0
//
// format: the number formats, as the kernels name them (kernels/calls.hpp).
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "kernels/calls.hpp"
#include "quire/base.h"

namespace quire::gpu {

// REQUIRES: the type is one of those of shared/element_type.hpp.
constexpr Format format_of(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F16:
            return kF16;
        case QUIRE_DTYPE_BF16:
            return kBf16;
        case QUIRE_DTYPE_I8:
            return kI8;
        case QUIRE_DTYPE_I4:
            return kI4;
        case QUIRE_DTYPE_F8_E4M3FN:
            return kE4m3;
        case QUIRE_DTYPE_F8_E5M2:
            return kE5m2;
        default:
            return kF32;
    }
}

}  // namespace quire::gpu
