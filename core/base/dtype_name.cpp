// SPDX-License-Identifier: Apache-2.0

#include "core/base/dtype_name.hpp"

#include "quire/base.h"

namespace quire {

const char *dtype_name(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F32:
            return "f32";
        case QUIRE_DTYPE_F16:
            return "f16";
        case QUIRE_DTYPE_BF16:
            return "bf16";
        case QUIRE_DTYPE_I8:
            return "int8";
        case QUIRE_DTYPE_I4:
            return "int4";
        case QUIRE_DTYPE_F8_E4M3FN:
            return "fp8_e4m3";
        case QUIRE_DTYPE_F8_E5M2:
            return "fp8_e5m2";
        default:
            return nullptr;
    }
}

}  // namespace quire
