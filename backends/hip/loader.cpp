// SPDX-License-Identifier: Apache-2.0
//
// loader: libamdhip64, found when it is first asked for, and its functions as backends/gpu calls
// them.
//
// Versions 7, 6 and 5 are looked for, in that order. Only functions whose arguments are the same in
// all of them are used: none that fills hipDeviceProp_t, which grew. Types and numbers are those of
// hip_runtime_api.h, which is not needed to build this.
//
// HIP has no contexts of its own, but a current device for each thread: entering is to choose ours,
// leaving to choose what was before.
//
// Environment (not believed in a privileged process)
//   QUIRE_HIP_LIBRARY   another file than those
//
// Threads: any. The driver is opened once and never closed.

#include <dlfcn.h>

#include <cstdio>
#include <initializer_list>

#include "gpu/context.hpp"
#include "gpu/driver.hpp"
#include "shared/checks.hpp"

const char quire::kBackendName[] = "hip";

namespace quire::gpu {

namespace {

// hip_runtime_api.h.
constexpr Result kOutOfMemory = 2;
constexpr Result kDeinitialized = 4;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidDevice = 101;  // what ROCm 5's says where there is none
constexpr Result kNotReady = 600;
constexpr Result kFirstFatal = 700;  // of a kernel's: illegal address and what is like it
constexpr Result kLastFatal = 720;
constexpr int kAttributeWaitValue = 10013;  // hipDeviceAttributeCanUseStreamWaitValue
constexpr unsigned kStreamNonBlocking = 1;  // hipStreamNonBlocking
// hipHostMallocPortable | Mapped | Coherent: host and device see each other's words at once.
constexpr unsigned kHostFlags = 1 | 2 | 0x40000000;
constexpr unsigned kWaitValueGte = 0;  // hipStreamWaitValueGte
constexpr int kCopyDefault = 4;        // hipMemcpyDefault

struct Hip {
    int (*hipInit)(unsigned);
    int (*hipGetDeviceCount)(int *);
    int (*hipDeviceGetName)(char *, int, int);
    int (*hipDeviceGetAttribute)(int *, int, int);
    int (*hipGetDevice)(int *);
    int (*hipSetDevice)(int);
    int (*hipMemGetInfo)(size_t *, size_t *);
    int (*hipMalloc)(void **, size_t);
    int (*hipFree)(void *);
    int (*hipHostMalloc)(void **, size_t, unsigned);
    int (*hipHostFree)(void *);
    int (*hipHostGetDevicePointer)(void **, void *, unsigned);
    int (*hipStreamCreateWithFlags)(void **, unsigned);
    int (*hipStreamDestroy)(void *);
    int (*hipStreamQuery)(void *);
    int (*hipStreamSynchronize)(void *);
    int (*hipStreamWaitValue64)(void *, void *, uint64_t, unsigned, uint64_t);
    int (*hipMemsetD8Async)(void *, unsigned char, size_t, void *);
    int (*hipMemcpyAsync)(void *, const void *, size_t, int, void *);
    int (*hipModuleLoadData)(void **, const void *);
    int (*hipModuleUnload)(void *);
    int (*hipModuleGetFunction)(void **, void *, const char *);
    int (*hipModuleLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, void *, void **, void **);
    const char *(*hipGetErrorString)(int);
};
Hip hip;

void *pointer_of(uint64_t address) { return reinterpret_cast<void *>(address); }

// A device's number, as what stands for its context and for what was current: one more, so that
// none is NULL.
void *handle_of(int index) { return pointer_of(static_cast<uint64_t>(index) + 1); }
int index_of(void *handle) { return static_cast<int>(reinterpret_cast<uint64_t>(handle) - 1); }

Result device_count(int *count) {
    Result result = hip.hipGetDeviceCount(count);
    if (result != kNoDevice) return result;
    *count = 0;
    return 0;
}

Result device_name(int index, char *name, int name_bytes) {
    return hip.hipDeviceGetName(name, name_bytes, index);
}

Result device_lacks(int index, char *text, size_t text_bytes) {
    int can_wait = 0;
    Result result = hip.hipDeviceGetAttribute(&can_wait, kAttributeWaitValue, index);
    if (result == 0 && can_wait == 0) {
        std::snprintf(text, text_bytes, "its streams cannot wait for values");
    }
    return result;
}

Result retain(int index, void **context) {
    *context = handle_of(index);
    return 0;
}
void release(int) {}
Result enter(void *context, void **before) {
    int current = 0;
    if (Result result = hip.hipGetDevice(&current)) return result;
    *before = handle_of(current);
    return hip.hipSetDevice(index_of(context));
}
void leave(void *before) { hip.hipSetDevice(index_of(before)); }

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

Result stream_create(Stream *out) { return hip.hipStreamCreateWithFlags(out, kStreamNonBlocking); }
Result stream_wait_value(Stream stream, uint64_t address, uint64_t value) {
    return hip.hipStreamWaitValue64(stream, pointer_of(address), value, kWaitValueGte, UINT64_MAX);
}
Result fill(Stream stream, uint64_t address, unsigned char byte, size_t size_bytes) {
    return hip.hipMemsetD8Async(pointer_of(address), byte, size_bytes, stream);
}
Result copy(Stream stream, uint64_t dst, uint64_t src, size_t size_bytes) {
    return hip.hipMemcpyAsync(pointer_of(dst), pointer_of(src), size_bytes, kCopyDefault, stream);
}
Result module_load(const void *image, Module *out) { return hip.hipModuleLoadData(out, image); }
Result module_function(Module module, const char *name, Function *out) {
    return hip.hipModuleGetFunction(out, module, name);
}
Result launch(Function function, uint32_t groups_x, uint32_t groups_y, uint32_t threads,
              Stream stream, void *arguments) {
    void *list[] = {arguments};
    return hip.hipModuleLaunchKernel(function, groups_x, groups_y, 1, threads, 1, 1, 0, stream,
                                     list, nullptr);
}

const char *describe(Result result) { return hip.hipGetErrorString(result); }
bool is_not_ready(Result result) { return result == kNotReady; }
bool is_out_of_memory(Result result) { return result == kOutOfMemory; }
bool is_fatal(Result result) {
    return (result >= kFirstFatal && result <= kLastFatal) || result == kDeinitialized;
}

Driver make_driver() {
    Driver driver{};
    driver.vendor = "HIP";
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
    driver.stream_wait_value = stream_wait_value;
    driver.fill = fill;
    driver.copy = copy;
    driver.module_load = module_load;
    driver.module_unload = hip.hipModuleUnload;
    driver.module_function = module_function;
    driver.launch = launch;
    driver.describe = describe;
    driver.is_not_ready = is_not_ready;
    driver.is_out_of_memory = is_out_of_memory;
    driver.is_fatal = is_fatal;
    return driver;
}

// NULL, or the first function that the library does not have.
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
        QUIRE_HIP(hipDeviceGetAttribute),
        QUIRE_HIP(hipGetDevice),
        QUIRE_HIP(hipSetDevice),
        QUIRE_HIP(hipMemGetInfo),
        QUIRE_HIP(hipMalloc),
        QUIRE_HIP(hipFree),
        QUIRE_HIP(hipHostMalloc),
        QUIRE_HIP(hipHostFree),
        QUIRE_HIP(hipHostGetDevicePointer),
        QUIRE_HIP(hipStreamCreateWithFlags),
        QUIRE_HIP(hipStreamDestroy),
        QUIRE_HIP(hipStreamQuery),
        QUIRE_HIP(hipStreamSynchronize),
        QUIRE_HIP(hipStreamWaitValue64),
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
    return nullptr;
}

void *open_library(const char *named) {
    if (named != nullptr) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    for (const char *name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"}) {
        if (void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
    }
    return nullptr;
}

}  // namespace

Found look_for_driver(Driver *driver) {
    Found found;
    const char *named = environment("QUIRE_HIP_LIBRARY");
    void *library = open_library(named);
    if (library == nullptr) {
        if (named == nullptr) return found;
        found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "QUIRE_HIP_LIBRARY: %.150s", dlerror());
        return found;
    }
    if (const char *lacks = find_functions(library)) {
        found.status = QUIRE_E_INCOMPATIBLE;
        std::snprintf(found.message, sizeof found.message,
                      "libamdhip64 has no %s; install one of ROCm 5.2 to 7", lacks);
        return found;
    }
    Result result = hip.hipInit(0);
    if (result == kNoDevice || result == kInvalidDevice) return found;
    if (result != 0) {
        found.status = QUIRE_E_BACKEND;
        std::snprintf(found.message, sizeof found.message, "the HIP driver does not start: %s (%d)",
                      describe(result), result);
        return found;
    }
    *driver = make_driver();
    found.has_driver = true;
    return found;
}

}  // namespace quire::gpu
