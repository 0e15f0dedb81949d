// SPDX-License-Identifier: Apache-2.0
//
// pool_write: what is refused before tokens are written into a pool, or moved within it.
//
// Slots of a write are device memory, and are checked when their turn comes; those of a move are
// the caller's list, and are checked at once.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);
quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error);

}  // namespace quire::cpu
