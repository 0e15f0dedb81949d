// SPDX-License-Identifier: Apache-2.0
//
// pool_write: KV writes, and moves of tokens within a pool.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::vulkan {

struct Plan;
struct Queue;

// plan: NULL, or has a rope or not.
quire_status enqueue_kv_write(Queue &queue, const quire_be_kv_write &args, const Plan *plan,
                              quire_error *error);
quire_status enqueue_moves(Queue &queue, const quire_be_pool &pool, const quire_be_move *moves,
                           uint32_t count, quire_error *error);

}  // namespace quire::vulkan
