// SPDX-License-Identifier: Apache-2.0
//
// engine: an engine's own streams and events.
//
// Which kinds are known is the vendor's (Driver::stream_kind, event_kind). Streams 0, 1 and 2,
// which stand for the legacy stream and for each thread's own, are passed on as they are; a queue
// on a thread's own is that thread's alone.
//
// Threads: any.
#pragma once

#include "driver.hpp"

namespace quire::gpu {

// The stream that `native` names. REQUIRES: the device's context is current, the mutex is held.
quire_status find_native_stream(quire_be_device *device, const quire_native &native, Stream *out,
                                quire_error *error);

// Streams 0 and 1, which stand for the same one.
inline bool is_legacy(Stream stream) { return reinterpret_cast<uintptr_t>(stream) <= 1; }

// Whose stream it is: the calling thread's number, where it stands for each thread's own, else 0.
uint64_t owner_of(Stream stream);

// Does what is enqueued on the engine's stream go to a graph? QUIRE_E_BUSY where nothing can be
// enqueued there. REQUIRES: as above.
quire_status check_capture(quire_be_device *device, Stream stream, bool *is_captured,
                           quire_error *error);

quire_status native_signal(quire_be_queue *queue, const quire_native *native, quire_error *error);
quire_status native_wait(quire_be_queue *queue, const quire_native *native, quire_error *error);

}  // namespace quire::gpu
