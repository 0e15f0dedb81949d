// SPDX-License-Identifier: Apache-2.0
//
// pool_write: validates and enqueues KV writes into a pool and token moves within it.
//
// Slots of a write are in device memory and are checked when the command runs; those of a move are
// the caller's list and are checked at the call.
//
// Threads: as in queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);
quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error);

}  // namespace quire::cpu
