// SPDX-License-Identifier: Apache-2.0
//
// loader: loads libcuda at first use and fills the driver table of backends/gpu.
//
// Functions are looked up through cuGetProcAddress, for CUDA 12's interface, and the few that came
// later for theirs. So a missing function is known by name, and a newer driver accepts the argument
// lists written here. Types and numbers are those of cuda.h, which is not needed to build this.
//
// Environment (ignored in a privileged process)
//   QUIRE_CUDA_LIBRARY   a file to open instead of libcuda.so.1
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

const char quire::kBackendName[] = "cuda";

namespace quire::gpu {

namespace {

// From cuda.h.
constexpr int kInterface = 12000;
// cuMemcpyBatchAsync exists from this version on; from 13000 on its arguments differ.
constexpr int kInterfaceOfBatches = 12080;
constexpr int kInterfaceOfLoading = 12040;
// A driver runs what a compiler of its own major version made, or of an older one.
constexpr int kOldestVersion = QUIRE_CUDA_MAJOR * 1000;
constexpr const char *kOldestDriver = QUIRE_CUDA_MAJOR == 12   ? "525 or newer"
                                      : QUIRE_CUDA_MAJOR == 13 ? "580 or newer"
                                                               : "of that version";
constexpr Result kOutOfMemory = 2;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidHandle = 400;
constexpr Result kNotReady = 600;
constexpr Result kCaptureImplicit = 906;  // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
// After these errors the context is unusable. Codes in between are left out: 704 (peer access
// already enabled) and similar ones only report a wrong request.
constexpr Result kFatal[] = {
    4,    // CUDA_ERROR_DEINITIALIZED
    46,   // DEVICE_UNAVAILABLE
    201,  // INVALID_CONTEXT: someone reset it
    214,  // ECC_UNCORRECTABLE
    220,  // NVLINK_UNCORRECTABLE
    226,  // CONTAINED: a hardware error, which the GPU kept to this process
    700,  // ILLEGAL_ADDRESS
    702,  // LAUNCH_TIMEOUT
    709,  // CONTEXT_IS_DESTROYED
    710,  // ASSERT
    714,  // HARDWARE_STACK_ERROR
    715,  // ILLEGAL_INSTRUCTION
    716,  // MISALIGNED_ADDRESS
    717,  // INVALID_ADDRESS_SPACE
    718,  // INVALID_PC
    719,  // LAUNCH_FAILED
    721,  // TENSOR_MEMORY_LEAK
    805,  // MPS_CONNECTION_FAILED
    806,  // MPS_RPC_FAILURE
    807,  // MPS_SERVER_NOT_READY
    808,  // MPS_MAX_CLIENTS_REACHED
    809,  // MPS_MAX_CONNECTIONS_REACHED
    810,  // MPS_CLIENT_TERMINATED
    999   // UNKNOWN
};
constexpr int kAttributeMajor = 75;              // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr unsigned kStreamNonBlocking = 1;       // CU_STREAM_NON_BLOCKING
constexpr unsigned kHostPortableMapped = 1 | 2;  // CU_MEMHOSTALLOC_PORTABLE | _DEVICEMAP
constexpr unsigned kDisableTiming = 2;           // CU_EVENT_DISABLE_TIMING
constexpr int kCaptureRelaxed = 2;               // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kNotCaptured = 0;                  // CU_STREAM_CAPTURE_STATUS_NONE
constexpr int kCaptureActive = 1;                // CU_STREAM_CAPTURE_STATUS_ACTIVE
constexpr int kOldestMajor = 8;                  // compute capability that kernels need
constexpr int kFunctionDynamicShared = 8;        // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kOrderStream = 1;                  // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM

// CUmemcpyAttributes_v1. The locations are for memory that has none of its own; ours has one.
struct CopyAttributes {
    int order;  // in which sources are read
    int source[2];
    int destination[2];
    unsigned flags;
};

struct Cuda {
    int (*cuDriverGetVersion)(int *);
    int (*cuInit)(unsigned);
    int (*cuDeviceGetCount)(int *);
    int (*cuDeviceGet)(int *, int);
    int (*cuDeviceGetName)(char *, int, int);
    int (*cuDeviceGetAttribute)(int *, int, int);
    int (*cuDevicePrimaryCtxRetain)(void **, int);
    int (*cuDevicePrimaryCtxRelease)(int);
    int (*cuCtxPushCurrent)(void *);
    int (*cuCtxPopCurrent)(void **);
    int (*cuMemGetInfo)(size_t *, size_t *);
    int (*cuMemAlloc)(uint64_t *, size_t);
    int (*cuMemFree)(uint64_t);
    int (*cuMemHostAlloc)(void **, size_t, unsigned);
    int (*cuMemFreeHost)(void *);
    int (*cuMemHostGetDevicePointer)(uint64_t *, void *, unsigned);
    int (*cuCtxGetStreamPriorityRange)(int *, int *);
    int (*cuStreamCreateWithPriority)(void **, unsigned, int);
    int (*cuThreadExchangeStreamCaptureMode)(int *);
    int (*cuStreamDestroy)(void *);
    int (*cuStreamGetCtx)(void *, void **);
    int (*cuStreamIsCapturing)(void *, int *);
    int (*cuStreamGetCaptureInfo)(void *, int *, uint64_t *, void **, const void ***, size_t *);
    int (*cuStreamWaitEvent)(void *, void *, unsigned);
    int (*cuEventCreate)(void **, unsigned);
    int (*cuEventDestroy)(void *);
    int (*cuEventRecord)(void *, void *);
    int (*cuStreamQuery)(void *);
    int (*cuStreamSynchronize)(void *);
    int (*cuMemsetD8Async)(uint64_t, unsigned char, size_t, void *);
    int (*cuMemcpyAsync)(uint64_t, uint64_t, size_t, void *);
    int (*cuMemcpyBatchAsync)(uint64_t *, uint64_t *, size_t *, size_t, CopyAttributes *, size_t *,
                              size_t, size_t *, void *);  // NULL: older than CUDA 12.8
    int (*cuModuleLoadData)(void **, const void *);
    int (*cuModuleUnload)(void *);
    int (*cuModuleGetFunction)(void **, void *, const char *);
    int (*cuFuncSetAttribute)(void *, int, int);
    int (*cuFuncLoad)(void *);  // NULL: older than CUDA 12.4
    int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, void *, void **, void **);
    int (*cuGetErrorString)(int, const char **);
};
Cuda cuda;

Result device_count(int *count) {
    Result result = cuda.cuDeviceGetCount(count);
    if (result != kNoDevice) return result;
    *count = 0;
    return 0;
}

Result device_name(int index, char *name, int name_bytes) {
    int device = 0;
    if (Result result = cuda.cuDeviceGet(&device, index)) return result;
    return cuda.cuDeviceGetName(name, name_bytes, device);
}

Result device_lacks(int index, char *text, size_t text_bytes) {
    int device = 0, major = 0;
    if (Result result = cuda.cuDeviceGet(&device, index)) return result;
    if (Result result = cuda.cuDeviceGetAttribute(&major, kAttributeMajor, device)) return result;
    if (major < kOldestMajor) {
        std::snprintf(text, text_bytes,
                      "its compute capability is %d.x; the kernels need 8.0 or newer", major);
    }
    return 0;
}

Result retain(int index, void **context) {
    int device = 0;
    if (Result result = cuda.cuDeviceGet(&device, index)) return result;
    return cuda.cuDevicePrimaryCtxRetain(context, device);
}
void release(int index) {
    int device = 0;
    if (cuda.cuDeviceGet(&device, index) == 0) cuda.cuDevicePrimaryCtxRelease(device);
}
Result enter(void *context, Before *before) {
    if (Result result = cuda.cuCtxPushCurrent(context)) return result;
    before->capture_mode = kCaptureRelaxed;
    cuda.cuThreadExchangeStreamCaptureMode(&before->capture_mode);
    return 0;
}
void leave(const Before &before) {
    int mode = before.capture_mode;
    cuda.cuThreadExchangeStreamCaptureMode(&mode);
    void *ours = nullptr;
    cuda.cuCtxPopCurrent(&ours);
}

Result host_alloc(void **pointer, uint64_t *address, size_t size_bytes) {
    if (Result result = cuda.cuMemHostAlloc(pointer, size_bytes, kHostPortableMapped)) {
        return result;
    }
    Result result = cuda.cuMemHostGetDevicePointer(address, *pointer, 0);
    if (result != 0) cuda.cuMemFreeHost(*pointer);
    return result;
}

Result stream_create(bool is_urgent, Stream *out) {
    int least = 0, greatest = 0;
    if (Result result = cuda.cuCtxGetStreamPriorityRange(&least, &greatest)) return result;
    return cuda.cuStreamCreateWithPriority(out, kStreamNonBlocking, is_urgent ? greatest : 0);
}
bool has_legacy_stream() { return true; }
Result stream_is_of(Stream stream, void *context, bool *is_of) {
    void *found = nullptr;
    Result result = cuda.cuStreamGetCtx(stream, &found);
    *is_of = found == context;
    return result;
}
Result stream_capture(Stream stream, Capture *capture) {
    int status = kNotCaptured;
    Result result = cuda.cuStreamIsCapturing(stream, &status);
    *capture = status == kNotCaptured     ? Capture::none
               : status == kCaptureActive ? Capture::active
                                          : Capture::broken;
    if (result != kCaptureImplicit) return result;
    *capture = Capture::elsewhere;
    return 0;
}
Result capture_id(Stream stream, uint64_t *id) {
    int status = kNotCaptured;
    return cuda.cuStreamGetCaptureInfo(stream, &status, id, nullptr, nullptr, nullptr);
}
Result event_create(Event *out) { return cuda.cuEventCreate(out, kDisableTiming); }
Result event_record(Stream stream, Event event) { return cuda.cuEventRecord(event, stream); }
Result stream_wait_event(Stream stream, Event event) {
    return cuda.cuStreamWaitEvent(stream, event, 0);
}
Result fill(Stream stream, uint64_t address, unsigned char byte, size_t size_bytes) {
    return cuda.cuMemsetD8Async(address, byte, size_bytes, stream);
}
Result copy(Stream stream, uint64_t dst, uint64_t src, size_t size_bytes) {
    return cuda.cuMemcpyAsync(dst, src, size_bytes, stream);
}
// Sources are read in stream order, not before: data that comes from the device is written by
// earlier work of the stream.
Result copy_many(Stream stream, const Copies &copies) {
    CopyAttributes attributes{};
    attributes.order = kOrderStream;
    size_t first = 0, failed = 0;  // the attributes apply from the first copy on
    return cuda.cuMemcpyBatchAsync(const_cast<uint64_t *>(copies.dsts),
                                   const_cast<uint64_t *>(copies.srcs),
                                   const_cast<size_t *>(copies.sizes_bytes), copies.count,
                                   &attributes, &first, 1, &failed, stream);
}
Result module_load(const void *image, Module *out) { return cuda.cuModuleLoadData(out, image); }
Result module_function(Module module, const char *name, Function *out) {
    return cuda.cuModuleGetFunction(out, module, name);
}
Result function_allow_shared(Function function, uint32_t shared_bytes) {
    return cuda.cuFuncSetAttribute(function, kFunctionDynamicShared,
                                   static_cast<int>(shared_bytes));
}
Result launch(Function function, uint32_t groups_x, uint32_t groups_y, uint32_t threads,
              uint32_t shared_bytes, Stream stream, void *arguments) {
    void *list[] = {arguments};
    return cuda.cuLaunchKernel(function, groups_x, groups_y, 1, threads, 1, 1, shared_bytes, stream,
                               list, nullptr);
}

const char *describe(Result result) {
    const char *text = nullptr;
    if (cuda.cuGetErrorString(result, &text) != 0 || text == nullptr) return "no description";
    return text;
}
bool is_not_ready(Result result) { return result == kNotReady; }
bool is_out_of_memory(Result result) { return result == kOutOfMemory; }
bool is_no_stream(Result result) { return result == kInvalidHandle; }
bool is_fatal(Result result) {
    return std::find(std::begin(kFatal), std::end(kFatal), result) != std::end(kFatal);
}

Driver make_driver() {
    Driver driver{};
    driver.vendor = "CUDA";
    driver.stream_kind = QUIRE_NATIVE_CUDA_STREAM;
    driver.event_kind = QUIRE_NATIVE_CUDA_EVENT;
    driver.teams_of_prefill = kTeamsOnNvidia;
    driver.has_decode = true;
    driver.device_count = device_count;
    driver.device_name = device_name;
    driver.device_lacks = device_lacks;
    driver.retain = retain;
    driver.release = release;
    driver.enter = enter;
    driver.leave = leave;
    driver.memory_info = cuda.cuMemGetInfo;
    driver.memory_alloc = cuda.cuMemAlloc;
    driver.memory_free = cuda.cuMemFree;
    driver.host_alloc = host_alloc;
    driver.host_free = cuda.cuMemFreeHost;
    driver.stream_create = stream_create;
    driver.stream_destroy = cuda.cuStreamDestroy;
    driver.stream_query = cuda.cuStreamQuery;
    driver.stream_wait = cuda.cuStreamSynchronize;
    driver.has_legacy_stream = has_legacy_stream;
    driver.stream_is_of = stream_is_of;
    driver.stream_capture = stream_capture;
    driver.capture_id = capture_id;
    driver.event_create = event_create;
    driver.event_destroy = cuda.cuEventDestroy;
    driver.event_record = event_record;
    driver.stream_wait_event = stream_wait_event;
    driver.fill = fill;
    driver.copy = copy;
    driver.copy_many = cuda.cuMemcpyBatchAsync != nullptr ? copy_many : nullptr;
    driver.module_load = module_load;
    driver.module_unload = cuda.cuModuleUnload;
    driver.module_function = module_function;
    driver.function_load = cuda.cuFuncLoad;
    driver.function_allow_shared = function_allow_shared;
    driver.launch = launch;
    driver.describe = describe;
    driver.is_not_ready = is_not_ready;
    driver.is_out_of_memory = is_out_of_memory;
    driver.is_no_stream = is_no_stream;
    driver.is_fatal = is_fatal;
    return driver;
}

using GetProcAddress = int (*)(const char *, void **, int, uint64_t, int *);

template <typename Function>
void find_optional(GetProcAddress get, const char *name, int interface, Function *function) {
    void *found = nullptr;
    if (get(name, &found, interface, 0, nullptr) != 0) found = nullptr;
    *function = reinterpret_cast<Function>(found);
}

// NULL, or the name of the first function the driver lacks.
const char *find_functions(GetProcAddress get) {
    struct Wanted {
        const char *name;
        void **function;
    };
#define QUIRE_CUDA(name)                             \
    {                                                \
        #name, reinterpret_cast<void **>(&cuda.name) \
    }
    const Wanted wanted[] = {
        QUIRE_CUDA(cuDriverGetVersion),
        QUIRE_CUDA(cuInit),
        QUIRE_CUDA(cuDeviceGetCount),
        QUIRE_CUDA(cuDeviceGet),
        QUIRE_CUDA(cuDeviceGetName),
        QUIRE_CUDA(cuDeviceGetAttribute),
        QUIRE_CUDA(cuDevicePrimaryCtxRetain),
        QUIRE_CUDA(cuDevicePrimaryCtxRelease),
        QUIRE_CUDA(cuCtxPushCurrent),
        QUIRE_CUDA(cuCtxPopCurrent),
        QUIRE_CUDA(cuMemGetInfo),
        QUIRE_CUDA(cuMemAlloc),
        QUIRE_CUDA(cuMemFree),
        QUIRE_CUDA(cuMemHostAlloc),
        QUIRE_CUDA(cuMemFreeHost),
        QUIRE_CUDA(cuMemHostGetDevicePointer),
        QUIRE_CUDA(cuCtxGetStreamPriorityRange),
        QUIRE_CUDA(cuStreamCreateWithPriority),
        QUIRE_CUDA(cuThreadExchangeStreamCaptureMode),
        QUIRE_CUDA(cuStreamDestroy),
        QUIRE_CUDA(cuStreamGetCtx),
        QUIRE_CUDA(cuStreamIsCapturing),
        QUIRE_CUDA(cuStreamGetCaptureInfo),
        QUIRE_CUDA(cuStreamWaitEvent),
        QUIRE_CUDA(cuEventCreate),
        QUIRE_CUDA(cuEventDestroy),
        QUIRE_CUDA(cuEventRecord),
        QUIRE_CUDA(cuStreamQuery),
        QUIRE_CUDA(cuStreamSynchronize),
        QUIRE_CUDA(cuMemsetD8Async),
        QUIRE_CUDA(cuMemcpyAsync),
        QUIRE_CUDA(cuModuleLoadData),
        QUIRE_CUDA(cuModuleUnload),
        QUIRE_CUDA(cuModuleGetFunction),
        QUIRE_CUDA(cuFuncSetAttribute),
        QUIRE_CUDA(cuLaunchKernel),
        QUIRE_CUDA(cuGetErrorString),
    };
#undef QUIRE_CUDA
    for (const Wanted &one : wanted) {
        int found = 0;
        Result result = get(one.name, one.function, kInterface, 0, &found);
        if (result != 0 || *one.function == nullptr) return one.name;
    }
    find_optional(get, "cuMemcpyBatchAsync", kInterfaceOfBatches, &cuda.cuMemcpyBatchAsync);
    find_optional(get, "cuFuncLoad", kInterfaceOfLoading, &cuda.cuFuncLoad);
    return nullptr;
}

}  // namespace

Found look_for_driver(Driver *driver) {
    Found found;
    const char *named = environment("QUIRE_CUDA_LIBRARY");
    void *library = dlopen(named != nullptr ? named : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        if (named != nullptr) found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "%s%.150s",
                      named != nullptr ? "QUIRE_CUDA_LIBRARY: " : "", dlerror());
        return found;
    }
    auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    const char *lacks = get == nullptr ? "cuGetProcAddress_v2" : find_functions(get);
    if (lacks != nullptr) {
        found.status = QUIRE_E_INCOMPATIBLE;
        std::snprintf(found.message, sizeof found.message,
                      "the CUDA driver has no %s: it is older than CUDA 12; install a newer one",
                      lacks);
        return found;
    }
    int version = 0;
    Result result = cuda.cuDriverGetVersion(&version);
    if (result == 0 && version < kOldestVersion) {
        found.status = QUIRE_E_INCOMPATIBLE;
        std::snprintf(found.message, sizeof found.message,
                      "the driver is of CUDA %d.%d, older than CUDA %d, for which the kernels were "
                      "compiled: install driver %s, or build with an nvcc of CUDA %d",
                      version / 1000, version % 1000 / 10, QUIRE_CUDA_MAJOR, kOldestDriver,
                      version / 1000);
        return found;
    }
    if (result == 0) result = cuda.cuInit(0);
    if (result != 0) {
        bool has_none = result == kNoDevice;
        if (!has_none) found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "libcuda %s: %s (%d)",
                      has_none ? "found no GPU" : "failed to initialize", describe(result), result);
        return found;
    }
    *driver = make_driver();
    found.has_driver = true;
    return found;
}

}  // namespace quire::gpu
