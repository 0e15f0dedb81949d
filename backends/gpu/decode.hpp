// SPDX-License-Identifier: Apache-2.0
//
// decode: attention calls of plans that the kernels of kernels/decode.cu serve.
//
// Two small kernels check the rows and write a work list, of which a third takes the items: the
// host knows neither how many there are nor how long rows are, and starts enough blocks to fill a
// device. The list is as long as its items need, however long tables are; states of chunks have
// room for 64 MiB, and calls that need more take several rounds (kernels/work.hpp).
//
// All layers of a step share a list: a call with the last one's rows, as its rows_id says, launches
// the third kernel alone. In a capture the list must have been made in it too; and once a queue was
// captured, every other call makes its own, because a graph may have been launched meanwhile.
//
// Threads: as queue.
#pragma once

#include <cstdint>

#include "kernels/calls.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

class Enqueue;
struct Queue;

// True if kernels/decode.cu has a kernel for rows of this format and head dim.
bool has_decode_instance(uint32_t format, uint32_t dim);

// REQUIRES: `enqueue` has begun, and chunk_count is set. plan: its serial number.
quire_status launch_decode(Enqueue &enqueue, Queue &queue, uint64_t plan, uint64_t rows_id,
                           AttendCall *call, quire_error *error);

}  // namespace quire::gpu
