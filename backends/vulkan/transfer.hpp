// SPDX-License-Identifier: Apache-2.0
//
// transfer: copies and fills, by the device's own commands.
//
// Vulkan copies any bytes but fills only whole words. Up to three bytes before and after a fill's
// words are copied from a table that holds four of each byte value.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::vulkan {

struct Queue;

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error);
quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error);

}  // namespace quire::vulkan
