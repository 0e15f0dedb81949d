// SPDX-License-Identifier: Apache-2.0
//
// transfer: copies and fills, by the device's own commands.
//
// Vulkan copies any bytes from any place, and fills words. The up to three bytes before and behind
// a fill's words come from a table that holds four of each value.
//
// Threads: as queue.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::vulkan {

quire_status copy(quire_be_queue *queue, const quire_be_copy *copies, uint32_t count,
                  quire_error *error);
quire_status fill(quire_be_queue *queue, const quire_be_range *ranges, uint32_t count,
                  uint32_t byte, quire_error *error);

}  // namespace quire::vulkan
