// SPDX-License-Identifier: Apache-2.0
//
// attention: attention calls and merges.
//
// A call becomes a check of its rows and then rounds of two kernels. One computes, for each query
// and each chunk of 512 places of its row, the softmax over the chunk and the weighted values; the
// other folds a query's chunks in order. Chunks lie at fixed places, so the bits of a row do not
// depend on the rest of the batch; a long row uses as many workgroups as it has chunks, which is
// known as split-KV. A round takes as many tokens as have room for their chunks in the queue's
// scratch memory.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::vulkan {

struct Plan;
struct Queue;

quire_status enqueue_attention(Queue &queue, const Plan &plan, const quire_be_attention &args,
                               quire_error *error);
quire_status enqueue_merge(Queue &queue, const quire_be_merge &args, quire_error *error);

}  // namespace quire::vulkan
