// SPDX-License-Identifier: Apache-2.0
//
// pool_write: KV writes, and moves of tokens within a pool.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::gpu {

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);
quire_status move_tokens(quire_be_queue *queue, const quire_be_pool *pool,
                         const quire_be_move *moves, uint32_t count, quire_error *error);

}  // namespace quire::gpu
