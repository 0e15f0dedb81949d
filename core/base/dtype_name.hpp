// SPDX-License-Identifier: Apache-2.0
//
// dtype_name: the name of an element type for messages, as backends and bindings write it.
#pragma once

#include <cstdint>

namespace quire {

// NULL for a type that does not exist.
const char *dtype_name(uint32_t dtype);

}  // namespace quire
