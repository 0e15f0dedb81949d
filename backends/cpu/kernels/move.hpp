// SPDX-License-Identifier: Apache-2.0
//
// move: a token's K and V of all layers from one slot of a pool to another, with the scales that
// are its own.
//
// Threads: moves of one pool run one after another.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

// REQUIRES: the pool was checked, and both slots are in it.
void move_token(const quire_be_pool &pool, const quire_be_move &move);

}  // namespace quire::cpu
