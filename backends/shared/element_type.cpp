// SPDX-License-Identifier: Apache-2.0

#include "shared/element_type.hpp"

namespace quire {

const char kElementNames[] = "f32, f16, bf16";
const char kPoolElementNames[] = "f32, f16, bf16, int8, int4, fp8_e4m3, fp8_e5m2";

const ElementType *find_type(uint32_t dtype) {
    for (const ElementType &type : kElementTypes) {
        if (type.dtype == dtype) return &type;
    }
    return nullptr;
}

const ElementType *find_value_type(uint32_t dtype) {
    const ElementType *type = find_type(dtype);
    return type != nullptr && !type->holds_codes() ? type : nullptr;
}

}  // namespace quire
