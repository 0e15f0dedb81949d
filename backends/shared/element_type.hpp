// SPDX-License-Identifier: Apache-2.0
//
// element_type: the number formats of q, K and V: what a slot must know of them to check a call.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire {

struct ElementType {
    uint32_t dtype;  // QUIRE_DTYPE_*
    uint32_t bits;
    uint32_t size_bytes;  // of what holds one, and so its alignment; of 4 bits, the byte of two
    const char *name;
    float largest_code;  // what the largest value of a row becomes; 0: holds values, not codes

    bool holds_codes() const { return largest_code != 0.0f; }
    // Of `count` elements; of 4 bits an even count.
    uint64_t row_bytes(uint64_t count) const { return count * bits / 8; }
};

inline constexpr ElementType kElementTypes[] = {
    {QUIRE_DTYPE_F32, 32, 4, "f32", 0.0f},
    {QUIRE_DTYPE_F16, 16, 2, "f16", 0.0f},
    {QUIRE_DTYPE_BF16, 16, 2, "bf16", 0.0f},
    {QUIRE_DTYPE_I8, 8, 1, "int8", 127.0f},
    {QUIRE_DTYPE_I4, 4, 1, "int4", 7.0f},
    {QUIRE_DTYPE_F8_E4M3FN, 8, 1, "fp8_e4m3", 448.0f},
    {QUIRE_DTYPE_F8_E5M2, 8, 1, "fp8_e5m2", 57344.0f},
};

// REQUIRES: `dtype` is one of them.
constexpr ElementType type_of(uint32_t dtype) {
    const ElementType *type = kElementTypes;
    while (type->dtype != dtype) ++type;
    return *type;
}

// Those that K and V may have in a pool; NULL: not known.
const ElementType *find_type(uint32_t dtype);
// Those of q, of out and of what kv_write is given; NULL: not known, or holds codes.
const ElementType *find_value_type(uint32_t dtype);

// The known ones' names, for messages.
extern const char kElementNames[];      // that hold values
extern const char kPoolElementNames[];  // all

}  // namespace quire
