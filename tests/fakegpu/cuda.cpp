// SPDX-License-Identifier: Apache-2.0
//
// cuda: the machine as libcuda.so.1 presents it. As with the real one, functions are obtained
// through cuGetProcAddress, and their numbers and types are those of cuda.h. Its version is 13000,
// or the number in the variable FAKEGPU_CUDA_VERSION.

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "machine.hpp"

namespace fakegpu {

namespace {

thread_local std::vector<Context *> pushed;

// Shared memory that code may declare on any GPU, and that compute capability
// 8.6 lets a block request.
constexpr size_t kDeclaredShared = 48 << 10, kMostShared = 99 << 10;
constexpr int kMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

// A CUdevice is not an index.
constexpr int kFirstDevice = 16;

int init(unsigned) {
    set_shared_limits(kDeclaredShared, kMostShared);
    return counted("cuInit", [] { return kSuccess; });
}
int driver_get_version(int *version) {
    const char *said = std::getenv("FAKEGPU_CUDA_VERSION");
    *version = said != nullptr ? std::atoi(said) : 13000;
    return kSuccess;
}
int device_get_count(int *count) {
    return counted("cuDeviceGetCount", [=] {
        *count = device_count();
        return kSuccess;
    });
}
int device_get(int *device, int ordinal) {
    return counted("cuDeviceGet", [=] {
        *device = kFirstDevice + ordinal;
        return ordinal < device_count() ? kSuccess : kInvalidDevice;
    });
}
int device_get_name(char *name, int length, int device) {
    return counted("cuDeviceGetName", [=] {
        if (device != kFirstDevice) return int{kInvalidDevice};
        std::snprintf(name, static_cast<size_t>(length), "emulator, warps of %u",
                      device_warp_width());
        return int{kSuccess};
    });
}
int device_get_attribute(int *value, int attribute, int device) {
    constexpr int kMajor = 75, kMinor = 76;
    return counted("cuDeviceGetAttribute", [=] {
        if (device != kFirstDevice) return int{kInvalidDevice};
        if (attribute != kMajor && attribute != kMinor) return int{kInvalidValue};
        *value = attribute == kMajor ? 9 : 0;
        return int{kSuccess};
    });
}
int primary_retain(Context **out, int device) {
    return counted("cuDevicePrimaryCtxRetain",
                   [=] { return context_retain(device - kFirstDevice, out); });
}
int primary_release(int device) {
    begin_call("cuDevicePrimaryCtxRelease");
    return context_release(device - kFirstDevice);
}
int push_current(Context *context) {
    if (int result = begin_call("cuCtxPushCurrent")) return result;
    pushed.push_back(context_current());
    context_set_current(context);
    return kSuccess;
}
int pop_current(Context **out) {
    begin_call("cuCtxPopCurrent");
    if (pushed.empty()) return kInvalidContext;
    *out = context_current();
    context_set_current(pushed.back());
    pushed.pop_back();
    return kSuccess;
}
int set_current(Context *context) {
    context_set_current(context);
    return kSuccess;
}
int get_current(Context **out) {
    *out = context_current();
    return kSuccess;
}
int mem_alloc(uint64_t *address, size_t size_bytes) {
    return counted("cuMemAlloc", [=] { return memory_allocate(address, size_bytes, false); });
}
int mem_free(uint64_t address) {
    return freed(begin_call("cuMemFree"), memory_free(address, false));
}
int host_alloc(uint64_t *pointer, size_t size_bytes, unsigned) {
    return counted("cuMemHostAlloc", [=] { return memory_allocate(pointer, size_bytes, true); });
}
int host_free(uint64_t pointer) {
    return freed(begin_call("cuMemFreeHost"), memory_free(pointer, true));
}
int host_device_pointer(uint64_t *address, uint64_t pointer, unsigned) {
    return counted("cuMemHostGetDevicePointer", [=] {
        *address = pointer;
        return kSuccess;
    });
}
int mem_get_info(size_t *free_bytes, size_t *total_bytes) {
    return counted("cuMemGetInfo", [=] { return memory_info(free_bytes, total_bytes); });
}
int get_priority_range(int *least, int *greatest) {
    return counted("cuCtxGetStreamPriorityRange", [=] {
        *least = kLeastPriority;
        *greatest = kGreatestPriority;
        return kSuccess;
    });
}
int create_stream(Stream **out, unsigned flags, int priority) {
    constexpr unsigned kNonBlocking = 1;
    return counted("cuStreamCreateWithPriority",
                   [=] { return stream_create(flags != kNonBlocking, priority, out); });
}
int get_stream_context(Stream *stream, Context **out) {
    return counted("cuStreamGetCtx", [=] { return stream_context(stream, out); });
}
int wait_event(Stream *stream, Event *event, unsigned) {
    return counted("cuStreamWaitEvent", [=] { return stream_wait_event(stream, event); });
}
int begin_capture(Stream *stream, int mode) {
    return counted("cuStreamBeginCapture", [=] { return stream_begin_capture(stream, mode); });
}
int end_capture(Stream *stream, Graph **out) {
    return counted("cuStreamEndCapture", [=] { return stream_end_capture(stream, out); });
}
int is_capturing(Stream *stream, int *status) {
    return counted("cuStreamIsCapturing", [=] { return stream_is_capturing(stream, status); });
}
int capture_info(Stream *stream, int *status, uint64_t *id, void **, const void ***, size_t *) {
    return counted("cuStreamGetCaptureInfo", [=] {
        if (int result = stream_is_capturing(stream, status)) return result;
        *id = stream_capture_id(stream);
        return 0;
    });
}
int instantiate_graph(Graph **out, Graph *graph, uint64_t) {
    return counted("cuGraphInstantiateWithFlags", [=] { return graph_instantiate(graph, out); });
}
int launch_graph(Graph *graph, Stream *stream) {
    return counted("cuGraphLaunch", [=] { return graph_launch(graph, stream); });
}
int create_event(Event **out, unsigned flags) {
    constexpr unsigned kDisableTiming = 2;
    return counted("cuEventCreate",
                   [=] { return event_create((flags & kDisableTiming) == 0, out); });
}
int elapsed_time(float *milliseconds, Event *begin, Event *end) {
    return counted("cuEventElapsedTime", [=] { return event_elapsed(milliseconds, begin, end); });
}
int destroy_event(Event *event) {
    begin_call("cuEventDestroy");
    return event_destroy(event);
}
int record_event(Event *event, Stream *stream) {
    return counted("cuEventRecord", [=] { return event_record(event, stream); });
}
int query_event(Event *event) {
    return counted("cuEventQuery", [=] { return event_query(event); });
}
int exchange_mode(int *mode) {
    exchange_capture_mode(mode);
    return kSuccess;
}
int destroy_stream(Stream *stream) {
    begin_call("cuStreamDestroy");
    return stream_destroy(stream);
}
int query_stream(Stream *stream) {
    return counted("cuStreamQuery", [=] { return stream_query(stream); });
}
int synchronise_stream(Stream *stream) {
    return counted("cuStreamSynchronize", [=] { return stream_synchronise(stream); });
}
int wait_value(Stream *stream, uint64_t address, uint64_t value, unsigned) {
    return counted("cuStreamWaitValue64",
                   [=] { return stream_wait_value(stream, address, value); });
}
int memset_async(uint64_t address, unsigned char byte, size_t size_bytes, Stream *stream) {
    return counted("cuMemsetD8Async",
                   [=] { return stream_fill(stream, address, byte, size_bytes); });
}
int memcpy_async(uint64_t dst, uint64_t src, size_t size_bytes, Stream *stream) {
    return counted("cuMemcpyAsync", [=] { return stream_copy(stream, dst, src, size_bytes); });
}
// CUmemcpyAttributes: the order in which sources are read, and two hints of two words each.
struct CopyAttributes {
    int order;
    int hints[4];
    unsigned flags;
};
int memcpy_batch(const uint64_t *dsts, const uint64_t *srcs, const size_t *sizes_bytes,
                 size_t count, const CopyAttributes *attributes, const size_t *firsts,
                 size_t attribute_count, size_t *failed, Stream *stream) {
    constexpr int kOrderStream = 1;
    return counted("cuMemcpyBatchAsync", [=] {
        if (attribute_count != 1 || firsts[0] != 0 || attributes[0].order != kOrderStream ||
            failed == nullptr) {
            return int{kInvalidValue};
        }
        return stream_copy_many(stream, {dsts, srcs, sizes_bytes, count});
    });
}
int load_module(Module **out, const void *image) {
    return counted("cuModuleLoadData", [=] { return module_load(image, out); });
}
int unload_module(Module *module) {
    begin_call("cuModuleUnload");
    return module_unload(module);
}
int get_function(const Kernel **out, Module *module, const char *name) {
    return counted("cuModuleGetFunction", [=] { return module_function(module, name, out); });
}
int load_function(const Kernel *) {
    return counted("cuFuncLoad", [] { return kSuccess; });
}
int set_function_attribute(const Kernel *kernel, int attribute, int value) {
    return counted("cuFuncSetAttribute", [=] {
        if (attribute != kMaxDynamicShared || value < 0) return int{kInvalidValue};
        return allow_shared(kernel, static_cast<size_t>(value));
    });
}
int launch_kernel(const Kernel *kernel, unsigned groups_x, unsigned groups_y, unsigned groups_z,
                  unsigned threads, unsigned, unsigned, unsigned asked_bytes, Stream *stream,
                  void **arguments, void **) {
    return counted("cuLaunchKernel", [=] {
        if (groups_z != 1) return int{kInvalidValue};
        return stream_launch(stream, kernel, groups_x, groups_y, threads, asked_bytes, arguments);
    });
}
int get_error_string(int result, const char **text) {
    *text = result_name(result);
    return kSuccess;
}

struct Entry {
    const char *name;
    void *function;
    int since = 2000;  // the interface version, as passed to cuGetProcAddress
    int until = INT_MAX;
};
template <typename Function>
void *plain(Function *function) {
    return reinterpret_cast<void *>(function);
}

const Entry kEntries[] = {
    {"cuInit", plain(init)},
    {"cuDriverGetVersion", plain(driver_get_version)},
    {"cuDeviceGetCount", plain(device_get_count)},
    {"cuDeviceGet", plain(device_get)},
    {"cuDeviceGetName", plain(device_get_name)},
    {"cuDeviceGetAttribute", plain(device_get_attribute)},
    {"cuDevicePrimaryCtxRetain", plain(primary_retain)},
    {"cuDevicePrimaryCtxRelease", plain(primary_release)},
    {"cuCtxPushCurrent", plain(push_current)},
    {"cuCtxPopCurrent", plain(pop_current)},
    {"cuCtxSetCurrent", plain(set_current)},
    {"cuCtxGetCurrent", plain(get_current)},
    {"cuMemAlloc", plain(mem_alloc)},
    {"cuMemFree", plain(mem_free)},
    {"cuMemHostAlloc", plain(host_alloc)},
    {"cuMemFreeHost", plain(host_free)},
    {"cuMemHostGetDevicePointer", plain(host_device_pointer)},
    {"cuMemGetInfo", plain(mem_get_info)},
    {"cuCtxGetStreamPriorityRange", plain(get_priority_range)},
    {"cuStreamCreateWithPriority", plain(create_stream)},
    {"cuThreadExchangeStreamCaptureMode", plain(exchange_mode)},
    {"cuStreamDestroy", plain(destroy_stream)},
    {"cuStreamGetCtx", plain(get_stream_context)},
    {"cuStreamWaitEvent", plain(wait_event)},
    {"cuStreamBeginCapture", plain(begin_capture)},
    {"cuStreamEndCapture", plain(end_capture)},
    {"cuStreamIsCapturing", plain(is_capturing)},
    {"cuStreamGetCaptureInfo", plain(capture_info)},
    {"cuGraphInstantiateWithFlags", plain(instantiate_graph)},
    {"cuGraphLaunch", plain(launch_graph)},
    {"cuGraphExecDestroy", plain(graph_destroy_launchable)},
    {"cuGraphDestroy", plain(graph_destroy)},
    {"cuEventCreate", plain(create_event)},
    {"cuEventDestroy", plain(destroy_event)},
    {"cuEventRecord", plain(record_event)},
    {"cuEventQuery", plain(query_event)},
    {"cuEventElapsedTime", plain(elapsed_time)},
    {"cuStreamQuery", plain(query_stream)},
    {"cuStreamSynchronize", plain(synchronise_stream)},
    {"cuStreamWaitValue64", plain(wait_value)},
    {"cuMemsetD8Async", plain(memset_async)},
    {"cuMemcpyAsync", plain(memcpy_async)},
    // The version of this function in CUDA 13 has other arguments and is not here.
    {"cuMemcpyBatchAsync", plain(memcpy_batch), 12080, 12999},
    {"cuModuleLoadData", plain(load_module)},
    {"cuModuleUnload", plain(unload_module)},
    {"cuModuleGetFunction", plain(get_function)},
    {"cuFuncLoad", plain(load_function), 12040},
    {"cuFuncSetAttribute", plain(set_function_attribute)},
    {"cuLaunchKernel", plain(launch_kernel)},
    {"cuGetErrorString", plain(get_error_string)},
};

}  // namespace

}  // namespace fakegpu

// The second version, of CUDA 12: the last argument tells why a name has no function.
extern "C" FAKEGPU_EXPORT int cuGetProcAddress_v2(const char *name, void **function, int version,
                                                  uint64_t, int *found) {
    for (const fakegpu::Entry &entry : fakegpu::kEntries) {
        if (std::strcmp(entry.name, name) != 0) continue;
        if (version < entry.since || version > entry.until) continue;
        *function = entry.function;
        if (found != nullptr) *found = 0;
        return fakegpu::kSuccess;
    }
    *function = nullptr;
    if (found != nullptr) *found = 1;
    return fakegpu::kNotFound;
}
