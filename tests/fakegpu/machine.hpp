// SPDX-License-Identifier: Apache-2.0
//
// machine: one make-believe GPU, as both vendors' drivers show it: contexts, streams, modules.
//
// Streams are asynchronous: each has a thread, and a call returns before anything has run. Results
// have the numbers that CUDA and HIP share (0 success, 2 out of memory, 600 not ready, 700 illegal
// address, 719 launch failure). As on a real device, an error of a running kernel is sticky: it is
// what every later call of the context returns, until the context is gone.
//
// What a real driver may do, this one always does: freeing memory waits for everything that runs.
//
// Tests steer it through what is exported at the end of this file, found by dlsym.
//
// Threads: any; a call that has to do with a context finds its own thread's current one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fakegpu {

enum Result : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialised = 3,
    kInvalidDevice = 101,
    kInvalidContext = 201,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
};

struct Stream;
struct Module;
struct Context;
struct Kernel;

// What every call begins with: counts it, and fails it where a test wants that, or where there is a
// sticky error.
int begin_call(const char *name);

// A call that does nothing where it is failed.
template <typename Call>
int counted(const char *name, Call call) {
    if (int result = begin_call(name)) return result;
    return call();
}
// A call that gives something back does so whatever it returns: an error may be an earlier one's.
inline int freed(int of_call, int of_free) { return of_call != 0 ? of_call : of_free; }

int device_count();
uint32_t device_warp_width();
void set_warp_width(uint32_t width);

// The primary context: one, counted.
int context_retain(int device, Context **out);
int context_release(int device);
Context *context_current();
void context_set_current(Context *context);

int memory_allocate(uint64_t *address, size_t size_bytes, bool is_host);
int memory_free(uint64_t address, bool is_host);
int memory_info(size_t *free_bytes, size_t *total_bytes);

int stream_create(Stream **out);
int stream_destroy(Stream *stream);
int stream_query(Stream *stream);
int stream_synchronise(Stream *stream);
// Until the word is at least `value`, as the CUDA driver compares: cyclically, as int64 of the
// difference.
int stream_wait_value(Stream *stream, uint64_t address, uint64_t value);
int stream_fill(Stream *stream, uint64_t address, unsigned char byte, size_t size_bytes);
int stream_copy(Stream *stream, uint64_t dst, uint64_t src, size_t size_bytes);
int stream_launch(Stream *stream, const Kernel *kernel, uint32_t groups_x, uint32_t groups_y,
                  uint32_t threads, void **arguments);

int module_load(const void *image, Module **out);
int module_unload(Module *module);
int module_function(Module *module, const char *name, const Kernel **out);

const char *result_name(int result);

}  // namespace fakegpu

#define FAKEGPU_EXPORT __attribute__((visibility("default")))

extern "C" {
// The n-th call from now on of this function, 1 the next, returns `result`; NULL: of any.
FAKEGPU_EXPORT void fakegpu_fail(const char *name, uint64_t nth, int result);
// How often it was called; NULL: all functions together.
FAKEGPU_EXPORT uint64_t fakegpu_calls(const char *name);
// What the last kernel that went wrong did; "" where none did.
FAKEGPU_EXPORT const char *fakegpu_last_fault(void);
// How many contexts, streams, modules and allocations there are.
FAKEGPU_EXPORT uint64_t fakegpu_live(void);
}
