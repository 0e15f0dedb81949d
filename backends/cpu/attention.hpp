// SPDX-License-Identifier: Apache-2.0
//
// attention: what is refused before attention and merges run, and the sharing out of their work.
//
// Two times of checking. A call checks what it can see at once: pointers, strides, the pool, the
// plan. Tables, lengths and masks are device memory that earlier commands still write, so they are
// checked when their turn comes (rows); an index outside the pool is then a fault of the queue.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

quire_status attention(quire_be_queue *queue, quire_be_plan *plan, const quire_be_attention *args,
                       quire_error *error);
quire_status merge(quire_be_queue *queue, const quire_be_merge *args, quire_error *error);

}  // namespace quire::cpu
