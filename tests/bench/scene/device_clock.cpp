// SPDX-License-Identifier: Apache-2.0

#include "device_clock.hpp"

#include <dlfcn.h>

#include "opened_library.hpp"
#include "tests/bench/machine/failure.hpp"

namespace quire::bench {

// The names that one vendor has for what a clock needs.
struct ClockNames {
    const char *backend;
    const char *library;  // prefix of the file's name
    uint32_t stream_kind;
    std::function<void()> (*enter)(const DriverLookup &lookup, uint32_t index);
    const char *create_stream, *destroy_stream, *synchronise;
    const char *create_event, *destroy_event, *record_event, *elapsed_time;
};

struct ClockFunctions {
    int (*create_stream)(void **out, unsigned flags, int priority);
    int (*destroy_stream)(void *stream);
    int (*synchronise)(void *stream);
    int (*create_event)(void **out, unsigned flags);
    int (*destroy_event)(void *event);
    int (*record_event)(void *event, void *stream);
    int (*elapsed_time)(float *milliseconds, void *begin, void *end);
};

namespace {

constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING, hipStreamNonBlocking
constexpr unsigned kTimed = 0;        // an event without CU_EVENT_DISABLE_TIMING and its like
constexpr int kInterface = 12000;     // of the functions from cuGetProcAddress: CUDA 12's

template <typename Function>
Function must_find(const DriverLookup &lookup, const char *name) {
    void *found = lookup(name);
    if (found == nullptr) {
        throw Failure("the driver has no " + std::string(name) +
                      ", which timing work on the device needs: install a newer driver");
    }
    return reinterpret_cast<Function>(found);
}

void must_enter(int result, const char *name) {
    if (result == 0) return;
    throw Failure(std::string(name) + " failed with " + std::to_string(result));
}

// Both functions make the device the thread's current one until the function they return is called.
std::function<void()> enter_cuda(const DriverLookup &lookup, uint32_t index) {
    auto release = must_find<int (*)(int)>(lookup, "cuDevicePrimaryCtxRelease");
    auto pop = must_find<int (*)(void **)>(lookup, "cuCtxPopCurrent");
    int device = 0;
    void *context = nullptr;
    must_enter(
        must_find<int (*)(int *, int)>(lookup, "cuDeviceGet")(&device, static_cast<int>(index)),
        "cuDeviceGet");
    must_enter(
        must_find<int (*)(void **, int)>(lookup, "cuDevicePrimaryCtxRetain")(&context, device),
        "cuDevicePrimaryCtxRetain");
    must_enter(must_find<int (*)(void *)>(lookup, "cuCtxPushCurrent")(context), "cuCtxPushCurrent");
    return [=] {
        void *popped = nullptr;
        pop(&popped);
        release(device);
    };
}

std::function<void()> enter_hip(const DriverLookup &lookup, uint32_t index) {
    auto set = must_find<int (*)(int)>(lookup, "hipSetDevice");
    int before = 0;
    must_enter(must_find<int (*)(int *)>(lookup, "hipGetDevice")(&before), "hipGetDevice");
    must_enter(set(static_cast<int>(index)), "hipSetDevice");
    return [=] { set(before); };
}

constexpr ClockNames kVendors[] = {
    {"cuda", "libcuda.so", QUIRE_NATIVE_CUDA_STREAM, enter_cuda, "cuStreamCreateWithPriority",
     "cuStreamDestroy", "cuStreamSynchronize", "cuEventCreate", "cuEventDestroy", "cuEventRecord",
     "cuEventElapsedTime"},
    {"hip", "libamdhip64.so", QUIRE_NATIVE_HIP_STREAM, enter_hip, "hipStreamCreateWithPriority",
     "hipStreamDestroy", "hipStreamSynchronize", "hipEventCreateWithFlags", "hipEventDestroy",
     "hipEventRecord", "hipEventElapsedTime"},
};

const ClockNames *find_names(const std::string &backend) {
    for (const ClockNames &names : kVendors) {
        if (backend == names.backend) return &names;
    }
    return nullptr;
}

}  // namespace

DriverLookup find_driver(const std::string &backend) {
    const ClockNames *names = find_names(backend);
    if (names == nullptr) return {};
    void *library = find_opened(names->library);
    if (library == nullptr) throw Failure(backend + " has not opened " + names->library);
    using GetProcAddress = int (*)(const char *, void **, int, uint64_t, int *);
    auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
    return [=](const char *name) -> void * {
        if (get == nullptr) return dlsym(library, name);
        void *function = nullptr;
        int found = 0;
        return get(name, &function, kInterface, 0, &found) == 0 ? function : nullptr;
    };
}

std::unique_ptr<DeviceClock> DeviceClock::make(const std::string &backend, uint32_t index) {
    DriverLookup lookup = find_driver(backend);
    return lookup ? std::make_unique<DeviceClock>(backend, index, lookup) : nullptr;
}

DeviceClock::DeviceClock(const std::string &backend, uint32_t index, const DriverLookup &lookup)
    : names_(*find_names(backend)), driver_(std::make_unique<ClockFunctions>()) {
    auto fill = [&](auto *function, const char *name) {
        *function = must_find<std::remove_pointer_t<decltype(function)>>(lookup, name);
    };
    fill(&driver_->create_stream, names_.create_stream);
    fill(&driver_->destroy_stream, names_.destroy_stream);
    fill(&driver_->synchronise, names_.synchronise);
    fill(&driver_->create_event, names_.create_event);
    fill(&driver_->destroy_event, names_.destroy_event);
    fill(&driver_->record_event, names_.record_event);
    fill(&driver_->elapsed_time, names_.elapsed_time);
    leave_ = names_.enter(lookup, index);
    try {
        make_events();
    } catch (...) {
        release();
        throw;
    }
}

DeviceClock::~DeviceClock() { release(); }

void DeviceClock::make_events() {
    must(driver_->create_stream(&stream_, kNonBlocking, 0), names_.create_stream);
    must(driver_->create_event(&begin_, kTimed), names_.create_event);
    must(driver_->create_event(&end_, kTimed), names_.create_event);
}

// A failure here repeats one already reported, or does not matter because the process ends.
void DeviceClock::release() {
    if (begin_ != nullptr) driver_->destroy_event(begin_);
    if (end_ != nullptr) driver_->destroy_event(end_);
    if (stream_ != nullptr) driver_->destroy_stream(stream_);
    leave_();
}

quire_native DeviceClock::stream() const {
    quire_native native{};
    native.kind = names_.stream_kind;
    native.value = reinterpret_cast<uint64_t>(stream_);
    return native;
}

void DeviceClock::record(void *event) {
    must(driver_->record_event(event, stream_), names_.record_event);
}

double DeviceClock::seconds() {
    float milliseconds = 0;
    must(driver_->synchronise(stream_), names_.synchronise);
    must(driver_->elapsed_time(&milliseconds, begin_, end_), names_.elapsed_time);
    return static_cast<double>(milliseconds) / 1e3;
}

void DeviceClock::must(int result, const char *what) const {
    if (result == 0) return;
    throw Failure("the device clock of " + std::string(names_.backend) + ": " + what +
                  " failed with " + std::to_string(result));
}

}  // namespace quire::bench
