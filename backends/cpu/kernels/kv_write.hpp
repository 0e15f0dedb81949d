// SPDX-License-Identifier: Apache-2.0
//
// kv_write: puts the K and V of new tokens into their slots, converted to the pool's formats.
//
// Threads: calls on different slots may run side by side.
#pragma once

#include "kernels/element.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

// REQUIRES: every slot is negative or inside the pool; strides are resolved.
void write_kv(const quire_be_kv_write &args, const quire_be_pool &pool, const Element &given,
              const Element &k, const Element &v);

}  // namespace quire::cpu
