// SPDX-License-Identifier: Apache-2.0
//
// loader: loads libamdhip64 at first use and fills the driver table of backends/gpu.
//
// A library that the process has already loaded is used; otherwise versions 7, 6 and 5 are tried in
// that order. Only functions whose arguments are the same in all of them are used, so none that
// fills hipDeviceProp_t, which grew. Types and numbers are those of hip_runtime_api.h, which is not
// needed to build this.
//
// HIP has no contexts of its own, only a current device per thread: entering selects our device,
// leaving selects the previous one.
//
// Environment (ignored in a privileged process)
//   QUIRE_HIP_LIBRARY   a file to open instead of those
//
// Threads: any. The driver is opened once and never closed.

#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "gpu/context.hpp"
#include "gpu/driver.hpp"
#include "gpu/kernels/calls.hpp"
#include "shared/checks.hpp"

const char quire::kBackendName[] = "hip";

namespace quire::gpu {

namespace {

// From hip_runtime_api.h.
constexpr Result kOutOfMemory = 2;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidDevice = 101;  // ROCm 5's result if there is no device
constexpr Result kInvalidHandle = 400;
constexpr Result kNotReady = 600;
constexpr Result kContextIsDestroyed = 709;  // returned only for a stream that does not exist
constexpr Result kCaptureImplicit = 906;     // hipErrorStreamCaptureImplicit
// After these errors the process cannot use the device any more.
constexpr Result kFatal[] = {
    4,                        // hipErrorDeinitialized
    46,                       // as CUDA's
    201,                      // hipErrorInvalidContext
    214,                      // hipErrorECCNotCorrectable
    220,                      // as CUDA's
    700,                      // hipErrorIllegalAddress
    702,                      // hipErrorLaunchTimeOut
    710,                      // hipErrorAssert
    714, 715, 716, 717, 718,  // as CUDA's
    719,                      // hipErrorLaunchFailure
    999                       // hipErrorUnknown
};
constexpr unsigned kStreamNonBlocking = 1;  // hipStreamNonBlocking
// hipHostMallocPortable | Mapped | Coherent: host and device see each other's words at once.
constexpr unsigned kHostFlags = 1 | 2 | 0x40000000;
constexpr unsigned kDisableTiming = 2;          // hipEventDisableTiming
constexpr int kCopyDefault = 4;                 // hipMemcpyDefault
constexpr int kCaptureRelaxed = 2;              // hipStreamCaptureModeRelaxed
constexpr int kLegacyStreamSince = 60'300'000;  // hipRuntimeGetVersion() of ROCm 6.3
constexpr int kNotCaptured = 0;                 // hipStreamCaptureStatusNone
constexpr int kCaptureActive = 1;               // hipStreamCaptureStatusActive

struct Hip {
    int (*hipInit)(unsigned);
    int (*hipGetDeviceCount)(int *);
    int (*hipDeviceGetName)(char *, int, int);
    int (*hipGetDevice)(int *);
    int (*hipSetDevice)(int);
    int (*hipMemGetInfo)(size_t *, size_t *);
    int (*hipMalloc)(void **, size_t);
    int (*hipFree)(void *);
    int (*hipHostMalloc)(void **, size_t, unsigned);
    int (*hipHostFree)(void *);
    int (*hipHostGetDevicePointer)(void **, void *, unsigned);
    int (*hipDeviceGetStreamPriorityRange)(int *, int *);
    int (*hipStreamCreateWithPriority)(void **, unsigned, int);
    int (*hipThreadExchangeStreamCaptureMode)(int *);  // NULL: an old version that captures little
    int (*hipPeekAtLastError)();
    int (*hipGetLastError)();
    int (*hipStreamDestroy)(void *);
    int (*hipRuntimeGetVersion)(int *);  // NULL: an old version; so for the next two
    int (*hipStreamGetDevice)(void *, int *);
    int (*hipStreamIsCapturing)(void *, int *);
    int (*hipStreamWaitEvent)(void *, void *, unsigned);
    int (*hipEventCreateWithFlags)(void **, unsigned);
    int (*hipEventDestroy)(void *);
    int (*hipEventRecord)(void *, void *);
    int (*hipStreamQuery)(void *);
    int (*hipStreamSynchronize)(void *);
    int (*hipMemsetD8Async)(void *, unsigned char, size_t, void *);
    int (*hipMemcpyAsync)(void *, const void *, size_t, int, void *);
    int (*hipMemcpyBatchAsync)(void **, void **, size_t *, size_t, void *, size_t *, size_t,
                               size_t *, void *);  // NULL: older than ROCm 7.1
    int (*hipModuleLoadData)(void **, const void *);
    int (*hipModuleUnload)(void *);
    int (*hipModuleGetFunction)(void **, void *, const char *);
    int (*hipModuleLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, void *, void **, void **);
    const char *(*hipGetErrorString)(int);
};
Hip hip;

void *pointer_of(uint64_t address) { return reinterpret_cast<void *>(address); }

// A device's number plus one, so that it is never NULL; stands for its context and for what was
// current before.
void *handle_of(int index) { return pointer_of(static_cast<uint64_t>(index) + 1); }
int index_of(void *handle) { return static_cast<int>(reinterpret_cast<uint64_t>(handle) - 1); }

// While it lives, errors of our calls are not left for the engine's next hipGetLastError().
class OwnErrors {
 public:
    OwnErrors() : has_error_(hip.hipPeekAtLastError() != 0) {}
    OwnErrors(const OwnErrors &) = delete;
    OwnErrors &operator=(const OwnErrors &) = delete;
    ~OwnErrors() { restore(has_error_); }

    // The engine's own error stays, or at worst is overwritten.
    static void restore(bool has_error) {
        if (!has_error) hip.hipGetLastError();
    }

 private:
    bool has_error_;
};

Result device_count(int *count) {
    OwnErrors errors;
    Result result = hip.hipGetDeviceCount(count);
    if (result != kNoDevice) return result;
    *count = 0;
    return 0;
}

Result device_name(int index, char *name, int name_bytes) {
    OwnErrors errors;
    return hip.hipDeviceGetName(name, name_bytes, index);
}

Result device_lacks(int, char *, size_t) { return 0; }

Result retain(int index, void **context) {
    *context = handle_of(index);
    return 0;
}
void release(int) {}
void exchange_capture_mode(int *mode) {
    if (hip.hipThreadExchangeStreamCaptureMode != nullptr) {
        hip.hipThreadExchangeStreamCaptureMode(mode);
    }
}
Result choose(void *context, Before *before) {
    int current = 0;
    if (Result result = hip.hipGetDevice(&current)) return result;
    before->context = handle_of(current);
    return hip.hipSetDevice(index_of(context));
}
Result enter(void *context, Before *before) {
    before->has_error = hip.hipPeekAtLastError() != 0;
    if (Result result = choose(context, before)) {
        OwnErrors::restore(before->has_error);
        return result;
    }
    before->capture_mode = kCaptureRelaxed;
    exchange_capture_mode(&before->capture_mode);
    return 0;
}
void leave(const Before &before) {
    int mode = before.capture_mode;
    exchange_capture_mode(&mode);
    hip.hipSetDevice(index_of(before.context));
    OwnErrors::restore(before.has_error);
}

Result memory_alloc(uint64_t *address, size_t size_bytes) {
    void *made = nullptr;
    Result result = hip.hipMalloc(&made, size_bytes);
    *address = reinterpret_cast<uint64_t>(made);
    return result;
}
Result memory_free(uint64_t address) { return hip.hipFree(pointer_of(address)); }
Result host_alloc(void **pointer, uint64_t *address, size_t size_bytes) {
    if (Result result = hip.hipHostMalloc(pointer, size_bytes, kHostFlags)) return result;
    void *seen = nullptr;
    Result result = hip.hipHostGetDevicePointer(&seen, *pointer, 0);
    *address = reinterpret_cast<uint64_t>(seen);
    if (result != 0) hip.hipHostFree(*pointer);
    return result;
}

Result stream_create(bool is_urgent, Stream *out) {
    int least = 0, greatest = 0;
    if (Result result = hip.hipDeviceGetStreamPriorityRange(&least, &greatest)) return result;
    return hip.hipStreamCreateWithPriority(out, kStreamNonBlocking, is_urgent ? greatest : 0);
}
bool has_legacy_stream() {
    int version = 0;
    if (hip.hipRuntimeGetVersion == nullptr || hip.hipRuntimeGetVersion(&version) != 0)
        return false;
    return version >= kLegacyStreamSince;
}
Result stream_is_of(Stream stream, void *context, bool *is_of) {
    *is_of = true;
    if (hip.hipStreamGetDevice == nullptr) return 0;
    int found = 0;
    Result result = hip.hipStreamGetDevice(stream, &found);
    *is_of = handle_of(found) == context;
    return result;
}
Result stream_capture(Stream stream, Capture *capture) {
    int status = kNotCaptured;
    Result result = 0;
    if (hip.hipStreamIsCapturing != nullptr) result = hip.hipStreamIsCapturing(stream, &status);
    *capture = status == kNotCaptured     ? Capture::none
               : status == kCaptureActive ? Capture::active
                                          : Capture::broken;
    if (result != kCaptureImplicit) return result;
    *capture = Capture::elsewhere;
    return 0;
}
Result event_create(Event *out) { return hip.hipEventCreateWithFlags(out, kDisableTiming); }
Result event_record(Stream stream, Event event) { return hip.hipEventRecord(event, stream); }
Result stream_wait_event(Stream stream, Event event) {
    return hip.hipStreamWaitEvent(stream, event, 0);
}
Result fill(Stream stream, uint64_t address, unsigned char byte, size_t size_bytes) {
    return hip.hipMemsetD8Async(pointer_of(address), byte, size_bytes, stream);
}
Result copy(Stream stream, uint64_t dst, uint64_t src, size_t size_bytes) {
    return hip.hipMemcpyAsync(pointer_of(dst), pointer_of(src), size_bytes, kCopyDefault, stream);
}
// Without attributes, which ROCm before 7.13 refuses. Only attributes let a driver read sources out
// of stream order.
Result copy_many(Stream stream, const Copies &copies) {
    static_assert(sizeof(void *) == sizeof(uint64_t));
    auto pointers = [](const uint64_t *addresses) {
        return reinterpret_cast<void **>(const_cast<uint64_t *>(addresses));
    };
    size_t failed = 0;
    return hip.hipMemcpyBatchAsync(pointers(copies.dsts), pointers(copies.srcs),
                                   const_cast<size_t *>(copies.sizes_bytes), copies.count, nullptr,
                                   nullptr, 0, &failed, stream);
}
Result module_load(const void *image, Module *out) { return hip.hipModuleLoadData(out, image); }
Result module_function(Module module, const char *name, Function *out) {
    return hip.hipModuleGetFunction(out, module, name);
}
Result launch(Function function, uint32_t groups_x, uint32_t groups_y, uint32_t threads,
              uint32_t shared_bytes, Stream stream, void *arguments) {
    void *list[] = {arguments};
    return hip.hipModuleLaunchKernel(function, groups_x, groups_y, 1, threads, 1, 1, shared_bytes,
                                     stream, list, nullptr);
}

const char *describe(Result result) { return hip.hipGetErrorString(result); }
bool is_not_ready(Result result) { return result == kNotReady; }
bool is_out_of_memory(Result result) { return result == kOutOfMemory; }
bool is_no_stream(Result result) {
    return result == kInvalidHandle || result == kContextIsDestroyed;
}
bool is_fatal(Result result) {
    return std::find(std::begin(kFatal), std::end(kFatal), result) != std::end(kFatal);
}

Driver make_driver() {
    Driver driver{};
    driver.vendor = "HIP";
    driver.stream_kind = QUIRE_NATIVE_HIP_STREAM;
    driver.event_kind = QUIRE_NATIVE_HIP_EVENT;
    driver.teams_of_prefill = kTeamsOnAmd;
    driver.has_decode = false;
    driver.device_count = device_count;
    driver.device_name = device_name;
    driver.device_lacks = device_lacks;
    driver.retain = retain;
    driver.release = release;
    driver.enter = enter;
    driver.leave = leave;
    driver.memory_info = hip.hipMemGetInfo;
    driver.memory_alloc = memory_alloc;
    driver.memory_free = memory_free;
    driver.host_alloc = host_alloc;
    driver.host_free = hip.hipHostFree;
    driver.stream_create = stream_create;
    driver.stream_destroy = hip.hipStreamDestroy;
    driver.stream_query = hip.hipStreamQuery;
    driver.stream_wait = hip.hipStreamSynchronize;
    driver.has_legacy_stream = has_legacy_stream;
    driver.stream_is_of = stream_is_of;
    driver.stream_capture = stream_capture;
    driver.event_create = event_create;
    driver.event_destroy = hip.hipEventDestroy;
    driver.event_record = event_record;
    driver.stream_wait_event = stream_wait_event;
    driver.fill = fill;
    driver.copy = copy;
    driver.copy_many = hip.hipMemcpyBatchAsync != nullptr ? copy_many : nullptr;
    driver.module_load = module_load;
    driver.module_unload = hip.hipModuleUnload;
    driver.module_function = module_function;
    driver.launch = launch;
    driver.describe = describe;
    driver.is_not_ready = is_not_ready;
    driver.is_out_of_memory = is_out_of_memory;
    driver.is_no_stream = is_no_stream;
    driver.is_fatal = is_fatal;
    return driver;
}

template <typename F>
void find_optional(void *library, const char *name, F **function) {
    *function = reinterpret_cast<F *>(dlsym(library, name));
}

// NULL, or the name of the first function the library lacks.
const char *find_functions(void *library) {
    struct Wanted {
        const char *name;
        void **function;
    };
#define QUIRE_HIP(name)                             \
    {                                               \
        #name, reinterpret_cast<void **>(&hip.name) \
    }
    const Wanted wanted[] = {
        QUIRE_HIP(hipInit),
        QUIRE_HIP(hipGetDeviceCount),
        QUIRE_HIP(hipDeviceGetName),
        QUIRE_HIP(hipGetDevice),
        QUIRE_HIP(hipSetDevice),
        QUIRE_HIP(hipMemGetInfo),
        QUIRE_HIP(hipMalloc),
        QUIRE_HIP(hipFree),
        QUIRE_HIP(hipHostMalloc),
        QUIRE_HIP(hipHostFree),
        QUIRE_HIP(hipHostGetDevicePointer),
        QUIRE_HIP(hipDeviceGetStreamPriorityRange),
        QUIRE_HIP(hipStreamCreateWithPriority),
        QUIRE_HIP(hipPeekAtLastError),
        QUIRE_HIP(hipGetLastError),
        QUIRE_HIP(hipStreamDestroy),
        QUIRE_HIP(hipStreamWaitEvent),
        QUIRE_HIP(hipEventCreateWithFlags),
        QUIRE_HIP(hipEventDestroy),
        QUIRE_HIP(hipEventRecord),
        QUIRE_HIP(hipStreamQuery),
        QUIRE_HIP(hipStreamSynchronize),
        QUIRE_HIP(hipMemsetD8Async),
        QUIRE_HIP(hipMemcpyAsync),
        QUIRE_HIP(hipModuleLoadData),
        QUIRE_HIP(hipModuleUnload),
        QUIRE_HIP(hipModuleGetFunction),
        QUIRE_HIP(hipModuleLaunchKernel),
        QUIRE_HIP(hipGetErrorString),
    };
#undef QUIRE_HIP
    for (const Wanted &one : wanted) {
        *one.function = dlsym(library, one.name);
        if (*one.function == nullptr) return one.name;
    }
    find_optional(library, "hipThreadExchangeStreamCaptureMode",
                  &hip.hipThreadExchangeStreamCaptureMode);
    find_optional(library, "hipRuntimeGetVersion", &hip.hipRuntimeGetVersion);
    find_optional(library, "hipStreamGetDevice", &hip.hipStreamGetDevice);
    find_optional(library, "hipStreamIsCapturing", &hip.hipStreamIsCapturing);
    find_optional(library, "hipMemcpyBatchAsync", &hip.hipMemcpyBatchAsync);
    return nullptr;
}

void *open_library(const char *named) {
    if (named != nullptr) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    // Libraries the process has loaded come first: two copies would not know each other's pointers.
    // An engine's wheel may bring one whose name has no version number.
    const char *const names[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                 "libamdhip64.so"};
    for (int how : {RTLD_NOLOAD, 0}) {
        for (const char *name : names) {
            if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL | how)) return library;
        }
    }
    return nullptr;
}

}  // namespace

Found look_for_driver(Driver *driver) {
    Found found;
    const char *named = environment("QUIRE_HIP_LIBRARY");
    void *library = open_library(named);
    if (library == nullptr) {
        if (named != nullptr) found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "%s%.150s",
                      named != nullptr ? "QUIRE_HIP_LIBRARY: " : "", dlerror());
        return found;
    }
    if (const char *lacks = find_functions(library)) {
        found.status = QUIRE_E_INCOMPATIBLE;
        std::snprintf(found.message, sizeof found.message,
                      "libamdhip64 has no %s; install ROCm 5.2 to 7", lacks);
        return found;
    }
    OwnErrors errors;
    Result result = hip.hipInit(0);
    if (result != 0) {
        bool has_none = result == kNoDevice || result == kInvalidDevice;
        if (!has_none) found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "libamdhip64 %s: %s (%d)",
                      has_none ? "found no GPU" : "failed to initialize", describe(result), result);
        return found;
    }
    *driver = make_driver();
    found.has_driver = true;
    return found;
}

}  // namespace quire::gpu
