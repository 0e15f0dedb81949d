// SPDX-License-Identifier: Apache-2.0
//
// kv_write: puts the K and V of new tokens into their slots, turned by their positions and
// converted to the pool's formats.
//
// A K that is turned is turned in f32 and rounded once, when it is stored. What is not turned and
// of the pool's own format is copied bit for bit. A row of codes is turned, then scaled
// (scale.hpp). Magnitudes (amax.hpp) are of the turned values, before any of that, and not of the
// null block: engines pad there, with anything.
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
    // Of the plan; NULL without a rope.
    const Rope *rope;
    const Element *q;
    uint64_t q_heads;
};

// REQUIRES: every slot is negative or inside the pool; strides are resolved.
void write_kv(const KvWriteCall &call);

}  // namespace quire::cpu
