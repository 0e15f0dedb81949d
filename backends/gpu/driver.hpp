// SPDX-License-Identifier: Apache-2.0
//
// driver: the functions this backend needs from a vendor's driver, as one table.
//
// backends/cuda/loader.cpp and backends/hip/loader.cpp fill it; no other code of ours uses the
// names or numbers of either driver. Streams, modules and functions are the driver's own pointers.
//
// Threads: any. A call acts on the thread's current context: enter() first.
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

// Where work enqueued on a stream goes.
enum class Capture {
    none,       // to the device
    active,     // to a graph
    broken,     // nowhere, or to the device: the capture failed and the engine has not ended it
    elsewhere,  // nowhere: this is the legacy stream, and a stream it waits for is captured
};

// Arguments of a batched copy: no copy reads or writes what another one writes.
struct Copies {
    const uint64_t *dsts;
    const uint64_t *srcs;
    const size_t *sizes_bytes;
    size_t count;
};

// The calling thread's state before enter(); leave() restores it.
struct Before {
    void *context = nullptr;
    int capture_mode = 0;
    bool has_error = false;
};

struct Driver {
    const char *vendor;    // in messages: "CUDA"
    uint32_t stream_kind;  // QUIRE_NATIVE_*, of an engine's streams
    uint32_t event_kind;
    uint32_t teams_of_prefill;  // what its code was compiled for (kernels/calls.hpp)
    bool has_decode;            // its code has the kernels of kernels/decode.cu

    Result (*device_count)(int *count);
    Result (*device_name)(int index, char *name, int name_bytes);
    // Describes which required feature the device lacks; "" if none.
    Result (*device_lacks)(int index, char *text, size_t text_bytes);

    // The device's primary context, shared with other users of the driver; held until release().
    Result (*retain)(int index, void **context);
    void (*release)(int index);
    // Makes the context current and lets this thread make calls that another thread's stream
    // capture would forbid. leave() restores the previous state, including the thread's last error.
    // Calls may nest.
    Result (*enter)(void *context, Before *before);
    void (*leave)(const Before &before);

    Result (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    Result (*memory_alloc)(uint64_t *address, size_t size_bytes);
    // May wait for everything that runs.
    Result (*memory_free)(uint64_t address);
    Result (*host_alloc)(void **pointer, uint64_t *address, size_t size_bytes);
    Result (*host_free)(void *pointer);

    // The stream waits for no other stream; an urgent one runs ahead of others where the device
    // supports it.
    Result (*stream_create)(bool is_urgent, Stream *out);
    Result (*stream_destroy)(Stream stream);
    Result (*stream_query)(Stream stream);  // is_not_ready() while it has work
    Result (*stream_wait)(Stream stream);   // by the host, until it is idle
    // True if the driver knows stream 1, the legacy stream.
    bool (*has_legacy_stream)();
    // True if an engine's stream belongs to this context, or if the driver cannot tell.
    Result (*stream_is_of)(Stream stream, void *context, bool *is_of);
    // Breaks no capture. `none` if the driver cannot capture.
    Result (*stream_capture)(Stream stream, Capture *capture);
    // A number that no other capture has. REQUIRES: the stream is captured. NULL: the driver cannot
    // tell captures apart.
    Result (*capture_id)(Stream stream, uint64_t *id);
    // An event without a time.
    Result (*event_create)(Event *out);
    Result (*event_destroy)(Event event);
    // Both take an engine's event or one of ours, as below. A stream waits for the last record.
    Result (*event_record)(Stream stream, Event event);
    Result (*stream_wait_event)(Stream stream, Event event);
    Result (*fill)(Stream stream, uint64_t address, unsigned char byte, size_t size_bytes);
    Result (*copy)(Stream stream, uint64_t dst, uint64_t src, size_t size_bytes);
    // Makes all copies in one call, in any order, each after everything the stream was given
    // before, as copy() does. Not for the legacy stream. On an error some copies may have been
    // made. NULL: the driver is too old.
    Result (*copy_many)(Stream stream, const Copies &copies);

    Result (*module_load)(const void *image, Module *out);
    Result (*module_unload)(Module module);
    Result (*module_function)(Module module, const char *name, Function *out);
    // Brings its code to the device now: a driver that does so at the first launch may have to wait
    // then, in the middle of an engine's capture. NULL: the driver cannot be asked.
    Result (*function_load)(Function function);
    // Lets launches request this many bytes of shared memory. NULL: the code declares its own.
    Result (*function_allow_shared)(Function function, uint32_t shared_bytes);
    Result (*launch)(Function function, uint32_t groups_x, uint32_t groups_y, uint32_t threads,
                     uint32_t shared_bytes, Stream stream, void *arguments);

    const char *(*describe)(Result result);
    bool (*is_not_ready)(Result result);
    bool (*is_out_of_memory)(Result result);
    // For a call that was given a stream: the stream does not exist, or no longer exists.
    bool (*is_no_stream)(Result result);
    // Afterwards nothing in the context works.
    bool (*is_fatal)(Result result);
};

// Finds the driver, once per process. QUIRE_OK with *out NULL: this machine has no driver, or the
// driver initializes for no device; *why_none says which.
quire_status find_driver(const Driver **out, const char **why_none, quire_error *error);

// The result of that search.
struct Found {
    quire_status status = QUIRE_OK;
    bool has_driver = false;
    char message[192] = {};  // if has_driver is false: why
};

// Defined by each vendor's loader: opens the driver and fills the table.
Found look_for_driver(Driver *driver);
// Compiled by each vendor's compiler: the kernels, in the form that module_load() takes.
extern const uint64_t kCodeObject[];

}  // namespace quire::gpu
