// SPDX-License-Identifier: Apache-2.0
//
// format: the number formats of K and V, as the kernels name them.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire::cpu {

enum class Format : uint32_t { f32, f16, bf16, i8, i4, e4m3, e5m2 };

// REQUIRES: the type is one of those in element.hpp.
constexpr Format format_of(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F16:
            return Format::f16;
        case QUIRE_DTYPE_BF16:
            return Format::bf16;
        case QUIRE_DTYPE_I8:
            return Format::i8;
        case QUIRE_DTYPE_I4:
            return Format::i4;
        case QUIRE_DTYPE_F8_E4M3FN:
            return Format::e4m3;
        case QUIRE_DTYPE_F8_E5M2:
            return Format::e5m2;
        default:
            return Format::f32;
    }
}

// Bytes of `count` elements; `count` must be even for i4. Always inline: units compiled for more
// than the baseline use it, and the linker must not keep their copy.
[[gnu::always_inline]] constexpr uint32_t bytes_of(Format format, uint32_t count) {
    switch (format) {
        case Format::f32:
            return count * 4;
        case Format::f16:
        case Format::bf16:
            return count * 2;
        case Format::i4:
            return count / 2;
        default:
            return count;
    }
}

}  // namespace quire::cpu
