// SPDX-License-Identifier: Apache-2.0
//
// transfer: copies and fills.
//
// Small copies are batched into one launch of a kernel that reads and writes pinned memory in
// place; large ones, from Device::dma_bytes on, are batched into one driver call. Fills are batched
// into one launch, except that a single fill uses the driver.
//
// Threads: any.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::gpu {

struct Queue;

quire_status enqueue_copies(Queue &queue, const quire_be_copy *copies, uint32_t count,
                            quire_error *error);
quire_status enqueue_fill(Queue &queue, const quire_be_range *ranges, uint32_t count, uint32_t byte,
                          quire_error *error);

}  // namespace quire::gpu
