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

struct Plan;
struct Queue;

// plan: NULL, or has a rope or not.
quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, Plan *plan,
                              quire_error *error);
quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error);

}  // namespace quire::cpu
