// SPDX-License-Identifier: Apache-2.0
//
// functions: what the table's functions do with devices, queues and fences; shared/functions.hpp
// says what has been checked before.
//
// Threads: any.
#pragma once

#include "quire/plugin/backend.h"
#include "shared/deadline.hpp"

namespace quire::gpu {

struct Device;
struct Queue;
struct Fence;

quire_status count_devices(uint32_t *device_count, quire_error *error);
quire_status open_device(const quire_be_device_desc &desc, quire_be_device **out,
                         quire_error *error);
void close_device(Device &device);
quire_status describe_device(Device &device, quire_be_device_props *props, quire_error *error);
quire_status quiesce_device(Device &device, const Deadline &deadline, quire_error *error);

quire_status make_fence(Device &device, uint64_t value, quire_be_fence **out, quire_error *error);
void release_fence(Fence &fence);
uint64_t read_fence(Fence &fence);
// Both return the value: before it was raised; after the wait, which a deadline may end.
uint64_t raise_fence(Fence &fence, uint64_t to);
uint64_t await_fence(Fence &fence, uint64_t awaited, const Deadline &deadline);

quire_status bind_queue(Device &device, const quire_native *native, quire_be_queue **out,
                        quire_error *error);
void release_queue(Queue &queue);
quire_status enqueue_signal(Queue &queue, Fence &fence, uint64_t value, quire_error *error);
quire_status enqueue_wait(Queue &queue, Fence &fence, uint64_t value, quire_error *error);

// For an engine's own events.
quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error);
quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error);

}  // namespace quire::gpu
