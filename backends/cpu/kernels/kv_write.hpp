// SPDX-License-Identifier: Apache-2.0
//
// kv_write: writes the K and V of new tokens into their slots, rotated by their positions and
// converted to the pool's formats.
//
// K with a rope is rotated in f32 and rounded once, when it is stored. Values that are not rotated
// and already have the pool's format are copied bit for bit. A row of codes is rotated, then scaled
// (scale.hpp). Magnitudes (amax.hpp) are taken after the rotation and before any rounding or
// scaling. They leave out the null block, where engines pad with anything.
//
// Threads: calls on different slots and queries may run side by side.
#pragma once

#include "kernels/element.hpp"
#include "kernels/rope.hpp"
#include "quire/plugin/backend.h"

namespace quire::cpu {

struct KvWriteCall {
    quire_be_kv_write args;
    quire_be_pool pool;
    const Element *given;
    const Element *k;
    const Element *v;
    // From the plan; NULL without a rope.
    const Rope *rope;
    const Element *q;
    uint64_t q_heads;
};

// REQUIRES: every slot is negative or inside the pool; strides are resolved.
void write_kv(const KvWriteCall &call);

}  // namespace quire::cpu
