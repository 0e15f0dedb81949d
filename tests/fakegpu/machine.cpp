// SPDX-License-Identifier: Apache-2.0

#include "machine.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "memory.hpp"
#include "simt.hpp"

namespace fakegpu {

struct Context {
    uint32_t references = 0;
};

struct Module {
    uint32_t reserved = 0;
};

struct Stream {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<int()>> work;
    bool is_running = false;
    bool is_destroyed = false;
};

namespace {

// Never destroyed: streams may still run when the process ends.
struct Machine {
    std::mutex mutex;
    Context primary;
    std::vector<Stream *> streams;
    std::map<std::string, uint64_t> calls;
    uint64_t all_calls = 0;
    std::string fail_name;
    bool is_failing = false;
    uint64_t fail_after = 0;
    int fail_result = 0;
    std::string last_fault;
    std::atomic<int> sticky{0};
    std::atomic<uint64_t> live{0};
    uint32_t warp_width = 32;
};
Machine &machine() {
    static auto *made = new Machine;
    return *made;
}

thread_local Context *current = nullptr;

void stream_main(Stream *stream) {
    std::unique_lock lock(stream->mutex);
    for (;;) {
        stream->changed.wait(lock, [&] { return !stream->work.empty() || stream->is_destroyed; });
        if (stream->work.empty()) break;
        std::function<int()> next = std::move(stream->work.front());
        stream->work.pop_front();
        stream->is_running = true;
        lock.unlock();
        // After an error nothing of the context runs.
        int result = machine().sticky.load() == 0 ? next() : 0;
        next = nullptr;
        int none = 0;
        if (result != 0) machine().sticky.compare_exchange_strong(none, result);
        lock.lock();
        stream->is_running = false;
        stream->changed.notify_all();
    }
    lock.unlock();
    delete stream;
}

int enqueue(Stream *stream, std::function<int()> work) {
    if (current == nullptr) return kInvalidContext;
    if (stream == nullptr) return kInvalidValue;
    std::lock_guard lock(stream->mutex);
    stream->work.push_back(std::move(work));
    stream->changed.notify_all();
    return kSuccess;
}

void await_idle(Stream *stream) {
    std::unique_lock lock(stream->mutex);
    stream->changed.wait(lock, [&] { return stream->work.empty() && !stream->is_running; });
}

int say(const std::string &what) {
    std::lock_guard lock(machine().mutex);
    machine().last_fault = what;
    std::fprintf(stderr, "fakegpu: %s\n", what.c_str());
    return kIllegalAddress;
}

int copy_bytes(uint64_t dst, uint64_t src, size_t size_bytes) {
    void *to = find(dst, size_bytes);
    const void *from = find(src, size_bytes);
    if (to == nullptr || from == nullptr) return say("a copy leaves device memory");
    std::memmove(to, from, size_bytes);
    return kSuccess;
}

}  // namespace

int begin_call(const char *name) {
    Machine &all = machine();
    std::lock_guard lock(all.mutex);
    ++all.all_calls;
    ++all.calls[name];
    if (all.is_failing && (all.fail_name.empty() || all.fail_name == name) &&
        --all.fail_after == 0) {
        all.is_failing = false;
        return all.fail_result;
    }
    return all.sticky.load();
}

int device_count() { return 1; }
uint32_t device_warp_width() { return machine().warp_width; }
void set_warp_width(uint32_t width) { machine().warp_width = width; }

int context_retain(int device, Context **out) {
    if (device != 0) return kInvalidDevice;
    std::lock_guard lock(machine().mutex);
    if (machine().primary.references++ == 0) machine().live.fetch_add(1);
    *out = &machine().primary;
    return kSuccess;
}

int context_release(int device) {
    if (device != 0) return kInvalidDevice;
    std::lock_guard lock(machine().mutex);
    if (machine().primary.references == 0) return kInvalidContext;
    if (--machine().primary.references != 0) return kSuccess;
    machine().sticky.store(0);
    machine().live.fetch_sub(1);
    return kSuccess;
}

Context *context_current() { return current; }
void context_set_current(Context *context) { current = context; }

int memory_allocate(uint64_t *address, size_t size_bytes, bool is_host) {
    if (current == nullptr) return kInvalidContext;
    *address = allocate(size_bytes, is_host);
    if (*address == 0) return kOutOfMemory;
    machine().live.fetch_add(1);
    return kSuccess;
}

int memory_free(uint64_t address, bool is_host) {
    if (current == nullptr) return kInvalidContext;
    std::vector<Stream *> streams;
    {
        std::lock_guard lock(machine().mutex);
        streams = machine().streams;
    }
    for (Stream *stream : streams) await_idle(stream);
    if (!release(address, is_host)) return kInvalidValue;
    machine().live.fetch_sub(1);
    return kSuccess;
}

int memory_info(size_t *free_bytes, size_t *total_bytes) {
    if (current == nullptr) return kInvalidContext;
    *total_bytes = device_memory_bytes();
    *free_bytes = device_memory_bytes() - device_memory_used();
    return kSuccess;
}

int stream_create(Stream **out) {
    if (current == nullptr) return kInvalidContext;
    auto *stream = new Stream;
    std::thread(stream_main, stream).detach();
    std::lock_guard lock(machine().mutex);
    machine().streams.push_back(stream);
    machine().live.fetch_add(1);
    *out = stream;
    return kSuccess;
}

int stream_destroy(Stream *stream) {
    {
        std::lock_guard lock(machine().mutex);
        if (std::erase(machine().streams, stream) == 0) return kInvalidValue;
        machine().live.fetch_sub(1);
    }
    std::lock_guard lock(stream->mutex);
    stream->is_destroyed = true;
    stream->changed.notify_all();
    return kSuccess;
}

int stream_query(Stream *stream) {
    std::lock_guard lock(stream->mutex);
    return stream->work.empty() && !stream->is_running ? kSuccess : kNotReady;
}

int stream_synchronise(Stream *stream) {
    await_idle(stream);
    return machine().sticky.load();
}

int stream_wait_value(Stream *stream, uint64_t address, uint64_t value) {
    return enqueue(stream, [=] {
        constexpr auto kLook = std::chrono::microseconds(20);
        for (;;) {
            auto *word = static_cast<uint64_t *>(find(address, sizeof value));
            if (word == nullptr) return say("a stream waits for a value outside device memory");
            uint64_t seen = __atomic_load_n(word, __ATOMIC_SEQ_CST);
            if (static_cast<int64_t>(seen - value) >= 0) return int{kSuccess};
            if (machine().sticky.load() != 0) return int{kSuccess};
            std::this_thread::sleep_for(kLook);
        }
    });
}

int stream_fill(Stream *stream, uint64_t address, unsigned char byte, size_t size_bytes) {
    return enqueue(stream, [=] {
        void *at = find(address, size_bytes);
        if (at == nullptr) return say("a fill leaves device memory");
        fill(at, byte, size_bytes);
        return int{kSuccess};
    });
}

int stream_copy(Stream *stream, uint64_t dst, uint64_t src, size_t size_bytes) {
    return enqueue(stream, [=] { return copy_bytes(dst, src, size_bytes); });
}

int stream_launch(Stream *stream, const Kernel *kernel, uint32_t groups_x, uint32_t groups_y,
                  uint32_t threads, void **arguments) {
    if (kernel == nullptr || groups_x == 0 || groups_y == 0 || groups_y > 65535 ||
        threads != kernel->threads) {
        return kInvalidValue;
    }
    std::vector<unsigned char> copied(kernel->argument_bytes);
    std::memcpy(copied.data(), arguments[0], copied.size());
    return enqueue(stream, [=] {
        Launch launch = {kernel, copied.data(), groups_x, groups_y, machine().warp_width};
        std::string wrong = run(launch);
        return wrong.empty() ? int{kSuccess} : say(wrong);
    });
}

int module_load(const void *image, Module **out) {
    if (current == nullptr) return kInvalidContext;
    if (image == nullptr) return kInvalidValue;
    machine().live.fetch_add(1);
    *out = new Module;
    return kSuccess;
}

int module_unload(Module *module) {
    delete module;
    machine().live.fetch_sub(1);
    return kSuccess;
}

int module_function(Module *module, const char *name, const Kernel **out) {
    if (module == nullptr) return kInvalidValue;
    *out = find_kernel(name);
    return *out != nullptr ? kSuccess : kNotFound;
}

const char *result_name(int result) {
    switch (result) {
        case kSuccess:
            return "no error";
        case kInvalidValue:
            return "invalid argument";
        case kOutOfMemory:
            return "out of memory";
        case kNotReady:
            return "device not ready";
        case kIllegalAddress:
            return "an illegal memory access was encountered";
        default:
            return "an error";
    }
}

}  // namespace fakegpu

using fakegpu::machine;

void fakegpu_fail(const char *name, uint64_t nth, int result) {
    std::lock_guard lock(machine().mutex);
    machine().is_failing = nth != 0;
    machine().fail_name = name == nullptr ? "" : name;
    machine().fail_after = nth;
    machine().fail_result = result;
}

uint64_t fakegpu_calls(const char *name) {
    std::lock_guard lock(machine().mutex);
    return name == nullptr ? machine().all_calls : machine().calls[name];
}

const char *fakegpu_last_fault(void) {
    static thread_local std::string copied;
    std::lock_guard lock(machine().mutex);
    copied = machine().last_fault;
    return copied.c_str();
}

uint64_t fakegpu_live(void) { return machine().live.load(); }
