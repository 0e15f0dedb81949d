// SPDX-License-Identifier: Apache-2.0
//
// engine: an engine's own streams and events.
//
// The vendor decides which kinds are known (Driver::stream_kind, event_kind). Streams 0, 1 and 2,
// which stand for the legacy stream and for each thread's own, are passed on unchanged; a queue on
// a per-thread stream belongs to that thread alone.
//
// Threads: any.
#pragma once

#include "driver.hpp"

namespace quire::gpu {

struct Device;

// Refuses fields of `native` that no kind of ours uses.
quire_status check_rest(const quire_native &native, quire_error *error);

// The stream that `native` names. REQUIRES: the device's context is current, the mutex is held.
quire_status find_native_stream(Device *device, const quire_native &native, Stream *out,
                                quire_error *error);

// True for streams 0 and 1, which stand for the same stream.
inline bool is_legacy(Stream stream) { return reinterpret_cast<uintptr_t>(stream) <= 1; }

// The calling thread's number if the stream is per-thread, else 0.
uint64_t owner_of(Stream stream);

// Sets *is_captured if work enqueued on the engine's stream goes to a graph. QUIRE_E_BUSY if
// nothing can be enqueued there. REQUIRES: as above.
quire_status check_capture(Device *device, Stream stream, bool *is_captured, quire_error *error);

}  // namespace quire::gpu
