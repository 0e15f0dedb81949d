// SPDX-License-Identifier: Apache-2.0
//
// hip: the machine as libamdhip64.so.6 presents it. Warps have 64 lanes, or the number in the
// environment variable FAKEGPU_WARP_WIDTH.

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "machine.hpp"

namespace fakegpu {

namespace {

constexpr int kWaitValueGte = 0;
constexpr size_t kMostShared = 64 << 10;  // the LDS of a compute unit
constexpr int kContextIsDestroyed = 709;  // HIP's error for an unknown stream

// The device is current in every thread from the start, and its context is never released.
Context *device_context() {
    static Context *context = [] {
        Context *made = nullptr;
        context_retain(0, &made);
        return made;
    }();
    return context;
}

std::atomic<int> device_of_streams{0};
std::atomic<int> runtime_version{60'400'000};

// The error of the last failed call in this thread, until it is read.
thread_local int last_error = 0;

int noted(int result) {
    if (result != kSuccess && result != kNotReady) last_error = result;
    return result;
}

// The machine is device 0; other devices exist only as numbers.
std::atomic<int> devices_beside{0};
thread_local int current_device = 0;

template <typename Call>
int on_device(const char *name, Call call) {
    if (current_device != 0) return noted(kInvalidDevice);
    if (context_current() == nullptr) context_set_current(device_context());
    return noted(counted(name, [&] {
        int result = call();
        return result == kInvalidHandle ? kContextIsDestroyed : result;
    }));
}

uint64_t address_of(const void *pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

}  // namespace fakegpu

using namespace fakegpu;

extern "C" {

FAKEGPU_EXPORT int hipInit(unsigned) {
    const char *width = std::getenv("FAKEGPU_WARP_WIDTH");
    set_warp_width(width != nullptr && std::atoi(width) == 32 ? 32 : 64);
    set_shared_limits(kMostShared, kMostShared);
    return noted(counted("hipInit", [] { return kSuccess; }));
}
FAKEGPU_EXPORT int hipRuntimeGetVersion(int *version) {
    return noted(counted("hipRuntimeGetVersion", [=] {
        *version = runtime_version.load();
        return kSuccess;
    }));
}
FAKEGPU_EXPORT void fakegpu_say_version(int version) { runtime_version.store(version); }
FAKEGPU_EXPORT int hipGetDeviceCount(int *count) {
    return noted(counted("hipGetDeviceCount", [=] {
        *count = device_count() + devices_beside.load();
        return kSuccess;
    }));
}
FAKEGPU_EXPORT void fakegpu_put_devices_beside(int count) { devices_beside.store(count); }
FAKEGPU_EXPORT int hipDeviceGetName(char *name, int length, int) {
    return noted(counted("hipDeviceGetName", [=] {
        std::snprintf(name, static_cast<size_t>(length), "emulator, warps of %u",
                      device_warp_width());
        return kSuccess;
    }));
}
FAKEGPU_EXPORT int hipGetDevice(int *device) {
    *device = current_device;
    return kSuccess;
}
FAKEGPU_EXPORT int hipSetDevice(int device) {
    if (device < 0 || device >= device_count() + devices_beside.load()) {
        return noted(kInvalidDevice);
    }
    current_device = device;
    context_set_current(device_context());
    return kSuccess;
}
FAKEGPU_EXPORT int hipMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    return on_device("hipMemGetInfo", [=] { return memory_info(free_bytes, total_bytes); });
}
FAKEGPU_EXPORT int hipMalloc(uint64_t *address, size_t size_bytes) {
    return on_device("hipMalloc", [=] { return memory_allocate(address, size_bytes, false); });
}
FAKEGPU_EXPORT int hipFree(void *address) {
    return noted(freed(begin_call("hipFree"), memory_free(address_of(address), false)));
}
FAKEGPU_EXPORT int hipHostMalloc(uint64_t *pointer, size_t size_bytes, unsigned) {
    return on_device("hipHostMalloc", [=] { return memory_allocate(pointer, size_bytes, true); });
}
FAKEGPU_EXPORT int hipHostFree(void *pointer) {
    return noted(freed(begin_call("hipHostFree"), memory_free(address_of(pointer), true)));
}
FAKEGPU_EXPORT int hipHostGetDevicePointer(void **address, void *pointer, unsigned) {
    return on_device("hipHostGetDevicePointer", [=] {
        *address = pointer;
        return kSuccess;
    });
}
FAKEGPU_EXPORT int hipDeviceGetStreamPriorityRange(int *least, int *greatest) {
    return on_device("hipDeviceGetStreamPriorityRange", [=] {
        *least = kLeastPriority;
        *greatest = kGreatestPriority;
        return kSuccess;
    });
}
FAKEGPU_EXPORT int hipStreamCreateWithPriority(Stream **out, unsigned flags, int priority) {
    constexpr unsigned kNonBlocking = 1;
    return on_device("hipStreamCreateWithPriority",
                     [=] { return stream_create(flags != kNonBlocking, priority, out); });
}
FAKEGPU_EXPORT int hipStreamGetDevice(Stream *stream, int *device) {
    return on_device("hipStreamGetDevice", [=] {
        Context *context = nullptr;
        *device = device_of_streams.load();
        return stream_context(stream, &context);
    });
}
FAKEGPU_EXPORT void fakegpu_put_streams_on(int device) { device_of_streams.store(device); }
FAKEGPU_EXPORT int hipStreamWaitEvent(Stream *stream, Event *event, unsigned) {
    return on_device("hipStreamWaitEvent", [=] { return stream_wait_event(stream, event); });
}
FAKEGPU_EXPORT int hipStreamBeginCapture(Stream *stream, int mode) {
    return on_device("hipStreamBeginCapture", [=] { return stream_begin_capture(stream, mode); });
}
FAKEGPU_EXPORT int hipStreamEndCapture(Stream *stream, Graph **out) {
    return on_device("hipStreamEndCapture", [=] { return stream_end_capture(stream, out); });
}
FAKEGPU_EXPORT int hipStreamIsCapturing(Stream *stream, int *status) {
    return on_device("hipStreamIsCapturing", [=] { return stream_is_capturing(stream, status); });
}
FAKEGPU_EXPORT int hipGraphInstantiateWithFlags(Graph **out, Graph *graph, unsigned long long) {
    return on_device("hipGraphInstantiateWithFlags", [=] { return graph_instantiate(graph, out); });
}
FAKEGPU_EXPORT int hipGraphLaunch(Graph *graph, Stream *stream) {
    return on_device("hipGraphLaunch", [=] { return graph_launch(graph, stream); });
}
FAKEGPU_EXPORT int hipGraphExecDestroy(Graph *graph) { return graph_destroy_launchable(graph); }
FAKEGPU_EXPORT int hipGraphDestroy(Graph *graph) { return graph_destroy(graph); }
FAKEGPU_EXPORT int hipEventCreateWithFlags(Event **out, unsigned flags) {
    constexpr unsigned kDisableTiming = 2;
    return on_device("hipEventCreateWithFlags",
                     [=] { return event_create((flags & kDisableTiming) == 0, out); });
}
FAKEGPU_EXPORT int hipEventElapsedTime(float *milliseconds, Event *begin, Event *end) {
    return noted(
        counted("hipEventElapsedTime", [=] { return event_elapsed(milliseconds, begin, end); }));
}
FAKEGPU_EXPORT int hipEventDestroy(Event *event) { return event_destroy(event); }
FAKEGPU_EXPORT int hipEventRecord(Event *event, Stream *stream) {
    return on_device("hipEventRecord", [=] { return event_record(event, stream); });
}
FAKEGPU_EXPORT int hipEventQuery(Event *event) {
    return on_device("hipEventQuery", [=] { return event_query(event); });
}
FAKEGPU_EXPORT int hipThreadExchangeStreamCaptureMode(int *mode) {
    exchange_capture_mode(mode);
    return kSuccess;
}
FAKEGPU_EXPORT int hipPeekAtLastError() { return last_error; }
FAKEGPU_EXPORT int hipGetLastError() {
    int last = last_error;
    last_error = kSuccess;
    return last;
}
FAKEGPU_EXPORT int hipStreamDestroy(Stream *stream) {
    begin_call("hipStreamDestroy");
    return stream_destroy(stream);
}
FAKEGPU_EXPORT int hipStreamQuery(Stream *stream) {
    return on_device("hipStreamQuery", [=] { return stream_query(stream); });
}
FAKEGPU_EXPORT int hipStreamSynchronize(Stream *stream) {
    return on_device("hipStreamSynchronize", [=] { return stream_synchronise(stream); });
}
FAKEGPU_EXPORT int hipStreamWaitValue64(Stream *stream, void *address, uint64_t value,
                                        unsigned flags, uint64_t mask) {
    return on_device("hipStreamWaitValue64", [=] {
        if (flags != kWaitValueGte || mask != UINT64_MAX) return int{kInvalidValue};
        return stream_wait_value(stream, address_of(address), value);
    });
}
FAKEGPU_EXPORT int hipMemsetD8Async(void *address, unsigned char byte, size_t size_bytes,
                                    Stream *stream) {
    return on_device("hipMemsetD8Async",
                     [=] { return stream_fill(stream, address_of(address), byte, size_bytes); });
}
FAKEGPU_EXPORT int hipMemcpyAsync(void *dst, const void *src, size_t size_bytes, int,
                                  Stream *stream) {
    return on_device("hipMemcpyAsync", [=] {
        return stream_copy(stream, address_of(dst), address_of(src), size_bytes);
    });
}
// As in versions before ROCm 7.13, which take no attributes.
FAKEGPU_EXPORT int hipMemcpyBatchAsync(void **dsts, void **srcs, size_t *sizes_bytes, size_t count,
                                       void *, size_t *, size_t attribute_count, size_t *,
                                       Stream *stream) {
    constexpr int kNotSupported = 801;
    return on_device("hipMemcpyBatchAsync", [=] {
        if (attribute_count != 0) return kNotSupported;
        return stream_copy_many(stream, {reinterpret_cast<uint64_t *>(dsts),
                                         reinterpret_cast<uint64_t *>(srcs), sizes_bytes, count});
    });
}
FAKEGPU_EXPORT int hipModuleLoadData(Module **out, const void *image) {
    return on_device("hipModuleLoadData", [=] { return module_load(image, out); });
}
FAKEGPU_EXPORT int hipModuleUnload(Module *module) {
    begin_call("hipModuleUnload");
    return module_unload(module);
}
FAKEGPU_EXPORT int hipModuleGetFunction(const Kernel **out, Module *module, const char *name) {
    return on_device("hipModuleGetFunction", [=] { return module_function(module, name, out); });
}
FAKEGPU_EXPORT int hipModuleLaunchKernel(const Kernel *kernel, unsigned groups_x, unsigned groups_y,
                                         unsigned groups_z, unsigned threads, unsigned, unsigned,
                                         unsigned asked_bytes, Stream *stream, void **arguments,
                                         void **) {
    return on_device("hipModuleLaunchKernel", [=] {
        if (groups_z != 1) return int{kInvalidValue};
        return stream_launch(stream, kernel, groups_x, groups_y, threads, asked_bytes, arguments);
    });
}
FAKEGPU_EXPORT const char *hipGetErrorString(int result) { return result_name(result); }

}  // extern "C"
