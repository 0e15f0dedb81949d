// SPDX-License-Identifier: Apache-2.0
//
// move: copies a token's K and V in all layers from one slot of a pool to another, with its own
// scales.
//
// Threads: moves of one pool run one after another.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

// REQUIRES: the pool was checked, and both slots are in it.
void move_token(const quire_be_pool &pool, const quire_be_move &move);

}  // namespace quire::cpu
