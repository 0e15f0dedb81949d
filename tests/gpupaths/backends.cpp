// SPDX-License-Identifier: Apache-2.0

#include "backends.hpp"

#include <dlfcn.h>
#include <quire/dyn.h>

#include <cstdio>
#include <cstdlib>

#include "tests/place.hpp"

namespace gpupaths {

namespace {

using quire::tests::place;

constexpr int kOutOfMemory = 2, kInvalid = 1, kNotReady = 600, kLaunchFailure = 719;

// The driver that a backend is to open: the one that this test was built with, if none is named.
std::string driver_of(const std::string &backend) {
    struct Named {
        const char *backend, *variable, *built;
    };
    constexpr Named kDrivers[] = {
#ifdef QUIRE_FAKE_CUDA
        {"cuda", "QUIRE_CUDA_LIBRARY", QUIRE_FAKE_CUDA},
        {"hip", "QUIRE_HIP_LIBRARY", QUIRE_FAKE_HIP},
#endif
#ifdef QUIRE_FAULTY_VULKAN
        {"vulkan", "QUIRE_VULKAN_LIBRARY", QUIRE_FAULTY_VULKAN},
#endif
        {"cpu", nullptr, nullptr},
    };
    for (const Named &named : kDrivers) {
        if (backend != named.backend || named.variable == nullptr) continue;
        setenv(named.variable, place(named.built).c_str(), 1);
        return place(named.built);
    }
    return "";
}

void *open_or_end(const std::string &path) {
    void *opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (opened != nullptr) return opened;
    std::fprintf(stderr, "%s\n", dlerror());
    std::exit(2);
}

// What the driver of either vendor may refuse, and with which results.
struct DriverCall {
    const char *what;
    const char *of_cuda, *of_hip;
    int results[2];
};
constexpr DriverCall kDriverCalls[] = {
    {"allocation", "cuMemAlloc", "hipMalloc", {kOutOfMemory, kOutOfMemory}},
    {"host allocation", "cuMemHostAlloc", "hipHostMalloc", {kOutOfMemory, kOutOfMemory}},
    {"launch", "cuLaunchKernel", "hipModuleLaunchKernel", {kInvalid, kOutOfMemory}},
    {"fill", "cuMemsetD8Async", "hipMemsetD8Async", {kInvalid, kOutOfMemory}},
    {"copy", "cuMemcpyAsync", "hipMemcpyAsync", {kInvalid, kOutOfMemory}},
    {"copies", "cuMemcpyBatchAsync", "hipMemcpyBatchAsync", {kInvalid, kOutOfMemory}},
    {"mark", "cuEventRecord", "hipEventRecord", {kInvalid, kOutOfMemory}},
    {"wait", "cuStreamWaitEvent", "hipStreamWaitEvent", {kInvalid, kOutOfMemory}},
    {"query", "cuStreamQuery", "hipStreamQuery", {kNotReady, kInvalid}},
    {"stream", "cuStreamCreateWithPriority", "hipStreamCreateWithPriority", {2, 2}},
    {"graph launch", "cuGraphLaunch", "hipGraphLaunch", {kInvalid, kOutOfMemory}},
    {"any call", nullptr, nullptr, {kInvalid, kOutOfMemory}},
    {"any call, device lost", nullptr, nullptr, {kLaunchFailure, kLaunchFailure}},
};

// Names of what can be left out, as options give them.
struct Defect {
    const char *name;
    Call call;
    const char *of_cuda, *of_hip, *of_vulkan;  // where the driver leaves it out
};
constexpr Defect kDefects[] = {
    {"copy_on_device", Call::copy_on_device, nullptr, nullptr, nullptr},
    {"copy_to_host", Call::copy_to_host, nullptr, nullptr, nullptr},
    {"copy_from_host", Call::copy_from_host, nullptr, nullptr, nullptr},
    {"fill", Call::fill, nullptr, nullptr, nullptr},
    {"fence_wait", Call::fence_wait, nullptr, nullptr, nullptr},
    {"kv_write", Call::kv_write, nullptr, nullptr, nullptr},
    {"move_tokens", Call::move_tokens, nullptr, nullptr, nullptr},
    {"driver:copy", Call::any, "quire_copy", "quire_copy", "lost copy"},
    {"driver:fill", Call::any, "quire_fill", "quire_fill", "lost fill"},
    {"driver:wait", Call::any, "cuStreamWaitEvent", "hipStreamWaitEvent", "lost wait"},
};

}  // namespace

template <typename Function>
Function Backend::symbol(const char *name) const {
    return reinterpret_cast<Function>(dlsym(driver_, name));
}

template <typename Function>
Function Backend::vendor(const char *of_cuda, const char *of_hip) const {
    if (name_ == "hip") return symbol<Function>(of_hip);
    void *function = nullptr;
    symbol<int (*)(const char *, void **, int, uint64_t, int *)>("cuGetProcAddress_v2")(
        of_cuda, &function, 12000, 0, nullptr);
    return reinterpret_cast<Function>(function);
}

Backend::Backend(const std::string &name, const std::string &folder) : name_(name) {
    void *module = open_or_end(folder + "/quire_backend_watched_" + name + ".so");
    watch_ = reinterpret_cast<const Watch *(*)()>(dlsym(module, "quire_watch"))();
    std::string driver = driver_of(name);
    if (!driver.empty()) driver_ = open_or_end(driver);
}

uint64_t Backend::strikes() const {
    uint64_t refused = watch_->refused();
    if (is_emulated()) refused += symbol<uint64_t (*)()>("fakegpu_failed")();
    if (name_ == "vulkan") {
        refused += static_cast<uint64_t>(symbol<int (*)()>("faulty_failures")());
    }
    return refused + losses_;
}

uint64_t Backend::defects() const {
    uint64_t skipped = watch_->skipped();
    if (is_emulated()) skipped += symbol<uint64_t (*)()>("fakegpu_left_out")();
    return skipped;
}

void Backend::pause(bool is_paused) const {
    watch_->pause(is_paused);
    if (is_emulated()) symbol<void (*)(int)>("fakegpu_pause")(is_paused);
    if (name_ == "vulkan") symbol<void (*)(int)>("faulty_pause")(is_paused);
}

void Backend::dawdle(uint64_t most_us) const {
    if (is_emulated()) symbol<void (*)(uint64_t)>("fakegpu_dawdle")(most_us);
}

std::string Backend::plant(Rng &rng) {
    armed_ = true;
    if (is_emulated()) return plant_emulated(rng);
    return name_ == "vulkan" ? plant_vulkan(rng) : plant_watched(rng);
}

std::string Backend::plant_emulated(Rng &rng) {
    const DriverCall &call = kDriverCalls[rng.below(std::size(kDriverCalls))];
    const char *name = name_ == "cuda" ? call.of_cuda : call.of_hip;
    int result = call.results[rng.below(2)];
    uint64_t nth = rng.range(1, name == nullptr ? 40 : 6);
    uint64_t count = result == kNotReady ? rng.range(1, 50) : rng.percent(75) ? 1 : rng.range(2, 5);
    symbol<void (*)(const char *, uint64_t, uint64_t, int)>("fakegpu_fail_run")(name, nth, count,
                                                                                result);
    return std::string(call.what) + ' ' + std::to_string(nth) + '+' + std::to_string(count) +
           " result " + std::to_string(result);
}

std::string Backend::plant_vulkan(Rng &rng) {
    constexpr const char *kFaults[] = {"no memory", "refused submission", "unended commands",
                                       "lost"};
    const char *fault = kFaults[rng.below(20) == 0 ? 3 : rng.below(3)];
    auto nth = static_cast<int>(rng.range(1, 8)), count = rng.percent(75) ? 1 : 3;
    symbol<void (*)(const char *, int, int)>("faulty_set_run")(fault, nth - 1, count);
    return std::string(fault) + ' ' + std::to_string(nth) + '+' + std::to_string(count);
}

std::string Backend::plant_watched(Rng &rng) {
    constexpr quire_status kAnswers[] = {QUIRE_E_DEVICE_LOST, QUIRE_E_DEVICE_MEMORY, QUIRE_E_OS};
    auto kind = static_cast<Call>(rng.below(static_cast<uint32_t>(Call::count)));
    quire_status status =
        kind == Call::mem_alloc ? quire_status{QUIRE_E_DEVICE_MEMORY} : kAnswers[rng.below(3)];
    uint64_t nth = rng.range(1, kind == Call::any ? 40 : 5);
    uint64_t count = rng.percent(75) ? 1 : rng.range(2, 4);
    watch_->refuse(kind, nth, count, status);
    return "call " + std::to_string(static_cast<uint32_t>(kind)) + ' ' + std::to_string(nth) + '+' +
           std::to_string(count) + " status " + std::to_string(status);
}

bool Backend::plant_defect(const std::string &what, uint64_t nth, uint64_t count) {
    for (const Defect &defect : kDefects) {
        if (what != defect.name) continue;
        if (defect.call != Call::any) {
            watch_->skip(defect.call, nth, count);
            return true;
        }
        if (is_emulated()) {
            symbol<void (*)(const char *, uint64_t, uint64_t)>("fakegpu_leave_out")(
                name_ == "cuda" ? defect.of_cuda : defect.of_hip, nth, count);
            return true;
        }
        if (name_ != "vulkan") return false;
        symbol<void (*)(const char *, int, int)>("faulty_set_run")(
            defect.of_vulkan, static_cast<int>(nth) - 1, static_cast<int>(count));
        return true;
    }
    return false;
}

void Backend::repair() {
    armed_ = true;
    disarm();
    watch_->skip(Call::any, 0, 0);
    if (is_emulated()) {
        symbol<void (*)(const char *, uint64_t, uint64_t)>("fakegpu_leave_out")("", 0, 0);
    }
}

void Backend::disarm() {
    if (!armed_) return;
    armed_ = false;
    watch_->refuse(Call::any, 0, 0, QUIRE_OK);
    if (is_emulated()) {
        symbol<void (*)(const char *, uint64_t, uint64_t, int)>("fakegpu_fail_run")(nullptr, 0, 0,
                                                                                    0);
        symbol<void (*)(int)>("fakegpu_break")(0);
    }
    if (name_ == "vulkan") symbol<void (*)(const char *, int, int)>("faulty_set_run")("", 0, 0);
}

void Backend::lose() {
    armed_ = true;
    ++losses_;
    if (is_emulated()) {
        symbol<void (*)(int)>("fakegpu_break")(kLaunchFailure);
    } else if (name_ == "vulkan") {
        symbol<void (*)(const char *, int, int)>("faulty_set_run")("lost", 0, 1'000'000);
    } else {
        watch_->refuse(Call::any, 1, UINT64_MAX, QUIRE_E_DEVICE_LOST);
    }
}

void *Backend::make_stream() const {
    if (name_ == "cuda") {
        void *primary = nullptr;
        int device = 0;
        vendor<int (*)(int *, int)>("cuDeviceGet", "")(&device, 0);
        vendor<int (*)(void **, int)>("cuDevicePrimaryCtxRetain", "")(&primary, device);
        vendor<int (*)(int)>("cuDevicePrimaryCtxRelease", "")(device);
        vendor<int (*)(void *)>("cuCtxSetCurrent", "")(primary);
    }
    void *stream = nullptr;
    vendor<int (*)(void **, unsigned, int)>("cuStreamCreateWithPriority",
                                            "hipStreamCreateWithPriority")(&stream, 1, 0);
    return stream;
}

void Backend::destroy_stream(void *stream) const {
    vendor<int (*)(void *)>("cuStreamDestroy", "hipStreamDestroy")(stream);
}

int Backend::begin_capture(void *stream) const {
    constexpr int kOwnThread = 1;
    return vendor<int (*)(void *, int)>("cuStreamBeginCapture", "hipStreamBeginCapture")(
        stream, kOwnThread);
}

int Backend::end_capture(void *stream, void **launchable) const {
    void *captured = nullptr;
    *launchable = nullptr;
    pause(true);  // an engine that is refused this could only try again
    int result = vendor<int (*)(void *, void **)>("cuStreamEndCapture", "hipStreamEndCapture")(
        stream, &captured);
    pause(false);
    if (result != 0) return result;
    result = vendor<int (*)(void **, void *, unsigned long long)>(
        "cuGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags")(launchable, captured, 0);
    vendor<int (*)(void *)>("cuGraphDestroy", "hipGraphDestroy")(captured);
    return result;
}

int Backend::launch(void *launchable, void *stream) const {
    return vendor<int (*)(void *, void *)>("cuGraphLaunch", "hipGraphLaunch")(launchable, stream);
}

void Backend::destroy_graph(void *launchable) const {
    vendor<int (*)(void *)>("cuGraphExecDestroy", "hipGraphExecDestroy")(launchable);
}

void Backend::await_stream(void *stream) const {
    vendor<int (*)(void *)>("cuStreamSynchronize", "hipStreamSynchronize")(stream);
}

Library::Library(const std::string &family) {
    char why[512] = "";
    if (quire_dyn_load(nullptr, &q, why, sizeof why) < 0) {
        std::fprintf(stderr, "%s\n", why);
        std::exit(2);
    }
    auto error = described<quire_error>();
    auto desc = described<quire_instance_desc>();
    if (q->instance_create(&desc, &instance, &error) < 0) {
        std::fprintf(stderr, "%s\n", error.message);
        std::exit(2);
    }
    std::string folder = place(".");
    for (const char *name : {"cpu", "cuda", "hip", "vulkan"}) {
        bool is_gpu = family == "cuda" || family == "hip";
        bool is_wanted = name == family || std::string(name) == "cpu" ||
                         (is_gpu && std::string(name) != "vulkan");
        if (!is_wanted) continue;
        backends.emplace_back(name, folder);
        uint32_t index = 0;
        auto info = described<quire_backend_info>();
        std::string path = folder + "/quire_backend_watched_" + name + ".so";
        if (q->backend_load(instance, path.c_str(), &index, &error) < 0 ||
            q->backend_get_info(instance, index, &info, &error) < 0) {
            std::fprintf(stderr, "%s\n", error.message);
            std::exit(2);
        }
        if (name == family) has_device = info.device_count != 0;
    }
}

Library::~Library() {
    auto error = described<quire_error>();
    if (q->instance_destroy(instance, &error) < 0) std::fprintf(stderr, "%s\n", error.message);
}

Backend &Library::named(const std::string &name) {
    for (Backend &backend : backends) {
        if (backend.name() == name) return backend;
    }
    std::abort();
}

uint64_t Library::strikes() const {
    uint64_t sum = 0;
    for (const Backend &backend : backends) sum += backend.strikes();
    return sum;
}

void Library::disarm() {
    for (Backend &backend : backends) backend.disarm();
}

void Library::pause(bool is_paused) {
    for (Backend &backend : backends) backend.pause(is_paused);
}

}  // namespace gpupaths
