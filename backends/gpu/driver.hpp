// SPDX-License-Identifier: Apache-2.0
//
// driver: what this backend asks of a vendor's driver, as one table.
//
// backends/cuda/loader.cpp and backends/hip/loader.cpp fill it; nothing else of ours knows a name
// or a number of either. Streams, modules and functions are the driver's own pointers.
//
// Threads: any. What a call does it does in the thread's current context: enter() first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/plugin/backend.h"

namespace quire::gpu {

using Stream = void *;
using Event = void *;
using Module = void *;
using Function = void *;
// 0 is success; the rest are the vendor's numbers.
using Result = int;

// Where what is enqueued on a stream goes.
enum class Capture {
    none,       // to the device
    active,     // to a graph
    broken,     // nowhere, or to the device: the capture failed, and the engine has not ended it
    elsewhere,  // nowhere: the stream is the legacy one, and one that it waits for is captured
};

// Copies as drivers take many of them: none reads or writes what another writes.
struct Copies {
    const uint64_t *dsts;
    const uint64_t *srcs;
    const size_t *sizes_bytes;
    size_t count;
};

// Of the calling thread, until leave().
struct Before {
    void *context = nullptr;
    int capture_mode = 0;
    bool has_error = false;
};

struct Driver {
    const char *vendor;    // in messages: "CUDA"
    uint32_t stream_kind;  // QUIRE_NATIVE_*, of an engine's own
    uint32_t event_kind;
    uint32_t teams_of_prefill;  // as its code has them (kernels/calls.hpp)

    Result (*device_count)(int *count);
    Result (*device_name)(int index, char *name, int name_bytes);
    // What the device lacks of what is needed here, in words; "": nothing.
    Result (*device_lacks)(int index, char *text, size_t text_bytes);

    // The device's primary context, which other users of the driver share: held until release().
    Result (*retain)(int index, void **context);
    void (*release)(int index);
    // Makes it the thread's current one, and lets the thread call what another that captures a
    // stream forbids; leave() brings back what was, the thread's last error too. Nested calls are
    // fine.
    Result (*enter)(void *context, Before *before);
    void (*leave)(const Before &before);

    Result (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    Result (*memory_alloc)(uint64_t *address, size_t size_bytes);
    // May wait for all that runs.
    Result (*memory_free)(uint64_t address);
    Result (*host_alloc)(void **pointer, uint64_t *address, size_t size_bytes);
    Result (*host_free)(void *pointer);

    // One that waits for no other; an urgent one goes before what is not, where a device can.
    Result (*stream_create)(bool is_urgent, Stream *out);
    Result (*stream_destroy)(Stream stream);
    Result (*stream_query)(Stream stream);  // is_not_ready() while it has work
    Result (*stream_wait)(Stream stream);   // by the host, until it is idle
    // The stream goes on when the word is at least `value`, compared as signed numbers.
    Result (*stream_wait_value)(Stream stream, uint64_t address, uint64_t value);
    // Does it know stream 1, the legacy one?
    bool (*has_legacy_stream)();
    // Is an engine's stream of this context? Yes, where the driver cannot say.
    Result (*stream_is_of)(Stream stream, void *context, bool *is_of);
    // Breaks no capture. `none`, where the driver captures nothing.
    Result (*stream_capture)(Stream stream, Capture *capture);
    // One of ours, which knows its time.
    Result (*event_create)(Event *out);
    Result (*event_destroy)(Event event);
    Result (*event_record)(Stream stream, Event event);
    // From one to the other; is_not_ready() before both have passed.
    Result (*event_elapsed)(Event begin, Event end, float *milliseconds);
    Result (*stream_wait_event)(Stream stream, Event event);
    Result (*fill)(Stream stream, uint64_t address, unsigned char byte, size_t size_bytes);
    Result (*copy)(Stream stream, uint64_t dst, uint64_t src, size_t size_bytes);
    // All of them by one call, in any order, each as copy() makes it and behind what the stream was
    // given before. Not for the legacy stream. Where it is refused, some may have been made. NULL:
    // the driver is too old.
    Result (*copy_many)(Stream stream, const Copies &copies);

    Result (*module_load)(const void *image, Module *out);
    Result (*module_unload)(Module module);
    Result (*module_function)(Module module, const char *name, Function *out);
    // Lets launches of it ask for so many bytes of shared memory. NULL: its code declares them.
    Result (*function_allow_shared)(Function function, uint32_t shared_bytes);
    Result (*launch)(Function function, uint32_t groups_x, uint32_t groups_y, uint32_t threads,
                     uint32_t shared_bytes, Stream stream, void *arguments);

    const char *(*describe)(Result result);
    bool (*is_not_ready)(Result result);
    bool (*is_out_of_memory)(Result result);
    // Of a call that was given a stream: there is none, or none any more.
    bool (*is_no_stream)(Result result);
    // After it nothing of the context works any more.
    bool (*is_fatal)(Result result);
};

// Finds the driver, once for the process. QUIRE_OK with *out NULL: there is none on this machine,
// or it starts for no device; *why_none says which.
quire_status find_driver(const Driver **out, const char **why_none, quire_error *error);

// What came of looking for it.
struct Found {
    quire_status status = QUIRE_OK;
    bool has_driver = false;
    char message[192] = {};  // where there is no driver: why
};

// Each vendor's loader defines it: opens the driver and fills the table.
Found look_for_driver(Driver *driver);
// Each vendor's compiler made it: the kernels, as module_load() takes them.
extern const uint64_t kCodeObject[];

}  // namespace quire::gpu
