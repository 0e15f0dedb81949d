// SPDX-License-Identifier: Apache-2.0
//
// transfer: copies and fills.
//
// All memory of this backend is host memory, so the four kinds of copy are the same. The bytes of a
// call are cut into pieces for the device's threads, across its copies and within them, so one
// large block takes as long as a thousand small ones; a single piece stays on the queue's own
// thread.
//
// Threads: as in queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::cpu {

struct Queue;

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error);
quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error);

}  // namespace quire::cpu
