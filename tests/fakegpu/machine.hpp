// SPDX-License-Identifier: Apache-2.0
//
// machine: one make-believe GPU, as both vendors' drivers show it: contexts, streams, modules.
//
// Streams are asynchronous: a call returns before anything has run. Results have the numbers that
// CUDA and HIP share (0 success, 2 out of memory, 600 not ready, 700 illegal address, 719 launch
// failure). As on a real device, an error of a running kernel is sticky: it is what every later
// call of the context returns, until the context is gone.
//
// What a real driver may do, this one always does:
//   - freeing memory waits for all that runs, and so does a copy between memories of the host
//   - streams share four hardware queues, those of the greatest priority a fifth: one that waits
//     holds up what was enqueued later on others
//   - while a thread captures a stream in the global mode, calls that may wait break the capture,
//     from every thread that has not asked for the relaxed mode
//   - whoever asks how far a captured stream is breaks the capture; what is enqueued there then is
//     refused
//   - while a stream is captured that the legacy stream waits for, the legacy one cannot be used:
//     whatever is enqueued or asked there is refused and breaks that capture, but for whether the
//     stream is captured, which is only refused
//   - a stream that was destroyed is known no more, and calls that name it are refused
//
// Tests steer it through what is exported at the end of this file, found by dlsym.
//
// Threads: any; a call that has to do with a context finds its own thread's current one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fakegpu {

enum Result : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialised = 3,
    kInvalidDevice = 101,
    kInvalidContext = 201,
    kInvalidHandle = 400,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kCaptureUnsupported = 900,
    kCaptureBroken = 901,
    kCaptureImplicit = 906,
};

struct Stream;
struct Event;
struct Graph;
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

// What runs when the stream is there, or with its graph.
int stream_enqueue(Stream *stream, std::function<int()> work);
bool has_sticky_error();
// Of what fakegpu_live() counts.
void count_live(int change);

// The primary context: one, counted.
int context_retain(int device, Context **out);
int context_release(int device);
Context *context_current();
void context_set_current(Context *context);

int memory_allocate(uint64_t *address, size_t size_bytes, bool is_host);
int memory_free(uint64_t address, bool is_host);
int memory_info(size_t *free_bytes, size_t *total_bytes);

// The greatest is the smallest number, as both vendors have it.
constexpr int kLeastPriority = 0, kGreatestPriority = -5;
// The legacy stream waits for a blocking one, and such a one for it: where captures are concerned,
// for nothing is ordered so here.
int stream_create(bool is_blocking, int priority, Stream **out);
// 0 and 1 are the legacy stream, 2 is the calling thread's own; these are never destroyed.
int stream_destroy(Stream *stream);
int stream_context(Stream *stream, Context **out);
int stream_wait_event(Stream *stream, Event *event);
// What is enqueued until the end runs not now, but at each launch of the graph.
int stream_begin_capture(Stream *stream, int mode);
int stream_end_capture(Stream *stream, Graph **out);
int stream_is_capturing(Stream *stream, int *status);  // 0 no, 1 yes, 2 it is broken
// A graph and what is launched of it are two things; a call is refused the one that it is not for.
int graph_instantiate(const Graph *graph, Graph **out);
int graph_launch(Graph *graph, Stream *stream);
int graph_destroy(Graph *graph);
int graph_destroy_launchable(Graph *graph);
int event_create(bool has_time, Event **out);
int event_destroy(Event *event);
int event_record(Event *event, Stream *stream);
int event_query(Event *event);
// Of two with a time, that were recorded and have passed.
int event_elapsed(float *milliseconds, Event *begin, Event *end);
int stream_query(Stream *stream);
int stream_synchronise(Stream *stream);
// Until the word is at least `value`, as the CUDA driver compares: cyclically, as int64 of the
// difference.
int stream_wait_value(Stream *stream, uint64_t address, uint64_t value);
int stream_fill(Stream *stream, uint64_t address, unsigned char byte, size_t size_bytes);
// Between two memories of the host it waits until the copy has run.
int stream_copy(Stream *stream, uint64_t dst, uint64_t src, size_t size_bytes);
// All of them, the last one first, for drivers promise no order; none of no bytes, not on the
// legacy stream, and not while the stream is captured.
struct Copies {
    const uint64_t *dsts, *srcs;
    const size_t *sizes_bytes;
    size_t count;
};
int stream_copy_many(Stream *stream, const Copies &copies);
// asked_bytes: of shared memory, beside what the kernel declares.
int stream_launch(Stream *stream, const Kernel *kernel, uint32_t groups_x, uint32_t groups_y,
                  uint32_t threads, size_t asked_bytes, void **arguments);
// What a vendor's code may declare, and the most that a launch may ask for.
void set_shared_limits(size_t declared_bytes, size_t asked_bytes);
// Of this kernel a launch may ask for so much.
int allow_shared(const Kernel *kernel, size_t asked_bytes);

int module_load(const void *image, Module **out);
int module_unload(Module *module);
int module_function(Module *module, const char *name, const Kernel **out);

// The thread's; 0 global, 1 its own thread's, 2 relaxed. `mode` gets what was.
void exchange_capture_mode(int *mode);

const char *result_name(int result);

}  // namespace fakegpu

#define FAKEGPU_EXPORT __attribute__((visibility("default")))

extern "C" {
// The n-th call from now on of this function, 1 the next, returns `result`; NULL: of any.
FAKEGPU_EXPORT void fakegpu_fail(const char *name, uint64_t nth, int result);
// How often it was called; NULL: all functions together.
FAKEGPU_EXPORT uint64_t fakegpu_calls(const char *name);
// How often a kernel of this name was launched.
FAKEGPU_EXPORT uint64_t fakegpu_launches(const char *kernel);
// What the last kernel that went wrong did; "" where none did.
FAKEGPU_EXPORT const char *fakegpu_last_fault(void);
// From now on every call of a context returns `result`, and nothing runs; 0: no longer.
FAKEGPU_EXPORT void fakegpu_break(int result);
// As if another thread captured a stream in the global mode from now on.
FAKEGPU_EXPORT void fakegpu_begin_capture(void);
// 0: no call has broken the capture.
FAKEGPU_EXPORT int fakegpu_end_capture(void);
// A call of the calling thread's own that may wait.
FAKEGPU_EXPORT void fakegpu_call_unsafely(void);
// HIP alone: its runtime says from now on that it is of this version.
FAKEGPU_EXPORT void fakegpu_say_version(int version);
// HIP alone, whose contexts are devices: every stream is said to be of this one from now on.
FAKEGPU_EXPORT void fakegpu_put_streams_on(int device);
// HIP alone: so many devices more than the one that computes. Who has made one of them the current
// one is refused the other's memory, streams and launches.
FAKEGPU_EXPORT void fakegpu_put_devices_beside(int count);
// How many contexts, streams, modules and allocations there are.
FAKEGPU_EXPORT uint64_t fakegpu_live(void);
}
