// SPDX-License-Identifier: Apache-2.0
//
// attention: validates attention and merge calls, and distributes their work among the threads.
//
// Checks happen at two times. A call checks at once what it can see: pointers, strides, the pool,
// the plan. Tables, lengths and masks are in device memory that earlier commands may still write,
// so they are checked when the command runs (rows); an index outside the pool is then a fault of
// the queue.
//
// Threads: as in queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

struct Plan;
struct Queue;

quire_status enqueue_attention(Queue &queue, Plan &plan, const quire_be_attention &args,
                               quire_error *error);
quire_status enqueue_merge(Queue &queue, const quire_be_merge &args, quire_error *error);

}  // namespace quire::cpu
