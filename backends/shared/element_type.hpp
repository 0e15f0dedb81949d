// SPDX-License-Identifier: Apache-2.0
//
// element_type: the number formats of q, K and V, as far as a function needs them to check a call.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>

#include "quire/base.h"

namespace quire {

struct ElementType {
    uint32_t dtype;  // QUIRE_DTYPE_*
    uint32_t bits;
    uint32_t size_bytes;  // of what holds an element, and so its alignment; 4 bits: a byte of two
    const char *name;
    float largest_code;  // the code of a row's largest value; 0: holds values, not codes

    bool holds_codes() const { return largest_code != 0.0f; }
    // Bytes of `count` elements; `count` must be even for 4 bits.
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

// REQUIRES: `dtype` is in the table.
constexpr ElementType type_of(uint32_t dtype) {
    const ElementType *type = kElementTypes;
    while (type->dtype != dtype) ++type;
    return *type;
}

// Finds a type that K or V may have in a pool; NULL if it is not known.
const ElementType *find_type(uint32_t dtype);
// Finds a type that q, out or the input of kv_write may have; NULL if not known, or of codes.
const ElementType *find_value_type(uint32_t dtype);

// Names of the known types, for messages.
extern const char kElementNames[];      // those that hold values
extern const char kPoolElementNames[];  // all

}  // namespace quire
