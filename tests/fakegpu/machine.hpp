// SPDX-License-Identifier: Apache-2.0
//
// machine: one imitated GPU, as both vendors' drivers present it: contexts, streams, modules.
//
// Streams are asynchronous: a call returns before anything has run. Results have the numbers that
// CUDA and HIP share (0 success, 2 out of memory, 600 not ready, 700 illegal address, 719 launch
// failure). As on a real device, an error of a running kernel is sticky: every later call of the
// context returns it until the context is gone.
//
// The machine always does what a real driver may do:
//   - freeing memory waits for all running work, and so does a copy between host memories
//   - streams share four hardware queues, and those of the greatest priority a fifth: a stream that
//     waits holds up what was enqueued later on others
//   - while a thread captures a stream in the global mode, calls that may wait break the capture,
//     from every thread that has not asked for the relaxed mode
//   - a call that asks how far a captured stream is breaks the capture; whatever is enqueued there
//     afterwards is refused
//   - while a stream that the legacy stream waits for is captured, the legacy stream is unusable:
//     every call on it is refused and breaks that capture, except the query whether the legacy
//     stream is captured, which is only refused
//   - a destroyed stream is unknown, and calls that name it are refused
//
// Tests control it through the exports at the end of this file, found by dlsym.
//
// Threads: any; a call that needs a context uses its own thread's current one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "counters.hpp"

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
    kLaunchFailure = 719,
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

// Begins every call: counts it, and fails it if a test wants that or if there is a sticky error.
int begin_call(const char *name);

// The result that a test planted for this call; 0 if it planted none.
int planted_result(const char *name);
// Returns once no test holds calls of this function.
void wait_if_held(const char *name);
// True if a test wants this function or kernel to do nothing, and to succeed.
bool is_left_out(const char *name);
// Takes as long as a test wants before a lane runs its next work.
void dawdle();
// A call that does nothing if it is failed.
template <typename Call>
int counted(const char *name, Call call) {
    wait_if_held(name);
    if (int result = begin_call(name)) return result;
    return is_left_out(name) ? int{kSuccess} : int{call()};
}
// A call that frees something does so whatever it returns: the error may be an earlier one's.
inline int freed(int of_call, int of_free) { return of_call != 0 ? of_call : of_free; }

// Where launches count what they do; NULL: no test asked.
Counters *counting();
// How often each kernel was launched, by its name.
std::map<std::string, uint64_t> launch_counts();

int device_count();
uint32_t device_warp_width();
void set_warp_width(uint32_t width);

// Enqueues work that runs when the stream gets there, or with the graph.
int stream_enqueue(Stream *stream, std::function<int()> work);
bool has_sticky_error();
// Changes the number that fakegpu_live() returns.
void count_live(int change);

// The primary context: there is one, and it is reference counted.
int context_retain(int device, Context **out);
int context_release(int device);
Context *context_current();
void context_set_current(Context *context);

int memory_allocate(uint64_t *address, size_t size_bytes, bool is_host);
int memory_free(uint64_t address, bool is_host);
int memory_info(size_t *free_bytes, size_t *total_bytes);

// The greatest priority is the smallest number, as with both vendors.
constexpr int kLeastPriority = 0, kGreatestPriority = -5;
// The legacy stream and a blocking stream wait for each other. Here this matters only to captures;
// it orders no work.
int stream_create(bool is_blocking, int priority, Stream **out);
// Handles 0 and 1 are the legacy stream, 2 is the calling thread's own; none is ever destroyed.
int stream_destroy(Stream *stream);
int stream_context(Stream *stream, Context **out);
int stream_wait_event(Stream *stream, Event *event);
// Work enqueued until the end of the capture runs at each launch of the graph, not now.
int stream_begin_capture(Stream *stream, int mode);
int stream_end_capture(Stream *stream, Graph **out);
int stream_is_capturing(Stream *stream, int *status);  // 0 no, 1 yes, 2 broken
// Another number for each capture; 0 if there is none.
uint64_t stream_capture_id(Stream *stream);
// A graph and its launchable instance are two types; a call refuses the wrong one.
int graph_instantiate(const Graph *graph, Graph **out);
int graph_launch(Graph *graph, Stream *stream);
int graph_destroy(Graph *graph);
int graph_destroy_launchable(Graph *graph);
int event_create(bool has_time, Event **out);
int event_destroy(Event *event);
int event_record(Event *event, Stream *stream);
int event_query(Event *event);
// Fails unless both events have times, were recorded, and have passed.
int event_elapsed(float *milliseconds, Event *begin, Event *end);
int stream_query(Stream *stream);
int stream_synchronise(Stream *stream);
// Waits until the word is at least `value`, compared cyclically like the CUDA driver, as
// int64 of the difference.
int stream_wait_value(Stream *stream, uint64_t address, uint64_t value);
int stream_fill(Stream *stream, uint64_t address, unsigned char byte, size_t size_bytes);
// A copy between two host memories waits until it has run.
int stream_copy(Stream *stream, uint64_t dst, uint64_t src, size_t size_bytes);
// All copies, the last one first, since drivers promise no order. Refused if one has no bytes, on
// the legacy stream, and while the stream is captured.
struct Copies {
    const uint64_t *dsts, *srcs;
    const size_t *sizes_bytes;
    size_t count;
};
int stream_copy_many(Stream *stream, const Copies &copies);
// asked_bytes: shared memory beyond what the kernel declares.
int stream_launch(Stream *stream, const Kernel *kernel, uint32_t groups_x, uint32_t groups_y,
                  uint32_t threads, size_t asked_bytes, void **arguments);
// Shared memory that a vendor's code may declare, and the most that a launch may ask for.
void set_shared_limits(size_t declared_bytes, size_t asked_bytes);
// Lets launches of this kernel ask for up to `asked_bytes`.
int allow_shared(const Kernel *kernel, size_t asked_bytes);

int module_load(const void *image, Module **out);
int module_unload(Module *module);
int module_function(Module *module, const char *name, const Kernel **out);

// Swaps the thread's mode with `mode`: 0 global, 1 its own thread's, 2 relaxed.
void exchange_capture_mode(int *mode);

const char *result_name(int result);

}  // namespace fakegpu

#define FAKEGPU_EXPORT __attribute__((visibility("default")))

extern "C" {
// Makes the n-th call of this function from now on (1: the next) return
// `result`; NULL: any function.
FAKEGPU_EXPORT void fakegpu_fail(const char *name, uint64_t nth, int result);
// As fakegpu_fail, but also the `count` - 1 calls of the function after that one. A result that a
// driver gives once its context is broken (700, 719) breaks the device, as fakegpu_break() does.
FAKEGPU_EXPORT void fakegpu_fail_run(const char *name, uint64_t nth, uint64_t count, int result);
// How many calls were failed so.
FAKEGPU_EXPORT uint64_t fakegpu_failed(void);
// Makes the nth call of this function, or launch of a kernel of this name, from now on, and the
// `count` - 1 after it, do nothing and succeed: what a defect of a backend might be.
FAKEGPU_EXPORT void fakegpu_leave_out(const char *name, uint64_t nth, uint64_t count);
// How many calls and launches did nothing so.
FAKEGPU_EXPORT uint64_t fakegpu_left_out(void);
// From now on calls of this function wait, as a launch does while the queue of launches is full;
// NULL: no more.
FAKEGPU_EXPORT void fakegpu_hold(const char *name);
// How many calls wait so.
FAKEGPU_EXPORT uint64_t fakegpu_held(void);
// While it is set, calls are neither failed nor left out, and do not count for that.
FAKEGPU_EXPORT void fakegpu_pause(int paused);
// From now on lanes wait up to this long before each piece of work, with one in four; 0: never.
FAKEGPU_EXPORT void fakegpu_dawdle(uint64_t most_us);
// How often the function was called; NULL: all functions together.
FAKEGPU_EXPORT uint64_t fakegpu_calls(const char *name);
// How often a kernel of this name was launched.
FAKEGPU_EXPORT uint64_t fakegpu_launches(const char *kernel);
// From now on launches are counted, from zero (counters.hpp); 0: no more.
FAKEGPU_EXPORT void fakegpu_count(int is_on);
// Fills in up to `room` counts, and returns how many there are.
FAKEGPU_EXPORT uint64_t fakegpu_counted(fakegpu::SiteCount *counts, uint64_t room);
// Describes the fault of the last kernel that had one; "" if none had.
FAKEGPU_EXPORT const char *fakegpu_last_fault(void);
// From now on every call of a context returns `result`, and nothing runs; 0 ends this, once all
// that was enqueued is dropped.
FAKEGPU_EXPORT void fakegpu_break(int result);
// From now on as if another thread captured a stream in the global mode.
FAKEGPU_EXPORT void fakegpu_begin_capture(void);
// 0: no call has broken the capture.
FAKEGPU_EXPORT int fakegpu_end_capture(void);
// Makes a call of the calling thread's own that may wait.
FAKEGPU_EXPORT void fakegpu_call_unsafely(void);
// HIP only: sets the version that the runtime reports.
FAKEGPU_EXPORT void fakegpu_say_version(int version);
// HIP only, whose contexts are devices: sets the device that every stream reports.
FAKEGPU_EXPORT void fakegpu_put_streams_on(int device);
// HIP only: adds this many devices to the one that computes. A thread with one of them current is
// refused the other's memory, streams and launches.
FAKEGPU_EXPORT void fakegpu_put_devices_beside(int count);
// The number of contexts, streams, modules and allocations.
FAKEGPU_EXPORT uint64_t fakegpu_live(void);
}
