// SPDX-License-Identifier: Apache-2.0

#include "machine.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
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

// A hardware queue: work that its streams enqueue runs in the order of the calls.
struct Lane {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<Stream *, std::function<int()>>> work;
    uint64_t unfinished = 0;  // in `work` or running
};

struct Graph {
    std::vector<std::function<int()>> work;
    bool is_broken = false;
    bool is_launchable = false;  // instantiated from a captured one
    uint64_t capture_id = 0;
};

struct Stream {
    Lane *lane = nullptr;
    Context *context = nullptr;
    uint64_t unfinished = 0;  // like the rest, guarded by the lane's mutex
    bool is_destroyed = false;
    bool is_blocking = false;
    std::unique_ptr<Graph> captured;  // the graph being captured
};

namespace {

constexpr uint32_t kLanes = 4;  // as HIP has for each device
constexpr int kCaptureRelaxed = 2;

// Never destroyed: streams may still be running when the process ends.
struct Machine {
    std::mutex mutex;
    Context primary;
    std::vector<Stream *> streams;
    std::map<std::string, uint64_t> calls;
    uint64_t all_calls = 0;
    std::string last_fault;
    std::atomic<int> sticky{0};
    std::atomic<bool> is_capturing{false};
    std::atomic<bool> is_capture_broken{false};
    Lane *lanes[kLanes + 1] = {};  // the last is for urgent streams
    uint32_t made_streams = 0;
    std::atomic<uint64_t> live{0};
    uint32_t warp_width = 32;
    std::map<std::string, uint64_t> launches;
    size_t declared_bytes = 0;
    size_t asked_bytes = 0;
    std::map<const Kernel *, size_t> allowed_bytes;
};
Machine &machine() {
    static auto *made = new Machine;
    return *made;
}

thread_local Context *current = nullptr;
thread_local int capture_mode = 0;

void lane_main(Lane *lane) {
    std::unique_lock lock(lane->mutex);
    for (;;) {
        lane->changed.wait(lock, [&] { return !lane->work.empty(); });
        auto [stream, next] = std::move(lane->work.front());
        lane->work.pop_front();
        lock.unlock();
        dawdle();
        // After an error, no work of the context runs.
        int result = machine().sticky.load() == 0 ? next() : 0;
        next = nullptr;
        int none = 0;
        if (result != 0) machine().sticky.compare_exchange_strong(none, result);
        lock.lock();
        --lane->unfinished;
        if (--stream->unfinished == 0 && stream->is_destroyed) delete stream;
        lane->changed.notify_all();
    }
}

Lane *lane_of(uint32_t index) {
    Lane *&lane = machine().lanes[index];
    if (lane == nullptr) {
        lane = new Lane;
        std::thread(lane_main, lane).detach();
    }
    return lane;
}

Stream *make_stream(uint32_t lane) {
    auto *stream = new Stream;
    stream->lane = lane_of(lane);
    stream->context = current;
    machine().streams.push_back(stream);
    return stream;
}

bool is_legacy(Stream *handle) { return reinterpret_cast<uintptr_t>(handle) <= 1; }

// The stream that a handle stands for; NULL if there is none.
Stream *real(Stream *handle) {
    static Stream *legacy = nullptr;
    thread_local Stream *own = nullptr;
    std::lock_guard lock(machine().mutex);
    const std::vector<Stream *> &known = machine().streams;
    if (reinterpret_cast<uintptr_t>(handle) > 2) {
        return std::find(known.begin(), known.end(), handle) != known.end() ? handle : nullptr;
    }
    Stream *&stream = is_legacy(handle) ? legacy : own;
    if (stream == nullptr) {
        stream = make_stream(is_legacy(handle) ? 0 : 1);
        stream->is_blocking = true;
    }
    return stream;
}

// Fails a call on the legacy stream while a stream that it would wait for is being captured.
int check_legacy(Stream *handle, bool breaks_capture) {
    if (!is_legacy(handle)) return kSuccess;
    int result = kSuccess;
    std::lock_guard lock(machine().mutex);
    for (Stream *stream : machine().streams) {
        std::lock_guard of_lane(stream->lane->mutex);
        if (!stream->is_blocking || stream->captured == nullptr) continue;
        if (breaks_capture) stream->captured->is_broken = true;
        result = kCaptureImplicit;
    }
    return result;
}

void await_idle(Stream *stream) {
    std::unique_lock lock(stream->lane->mutex);
    stream->lane->changed.wait(lock, [&] { return stream->unfinished == 0; });
}

// Includes the work of streams that were destroyed.
void await_all() {
    std::vector<Lane *> lanes;
    {
        std::lock_guard lock(machine().mutex);
        lanes.assign(std::begin(machine().lanes), std::end(machine().lanes));
    }
    for (Lane *lane : lanes) {
        if (lane == nullptr) continue;
        std::unique_lock lock(lane->mutex);
        lane->changed.wait(lock, [&] { return lane->unfinished == 0; });
    }
}

// Fails a call that asks how far a captured stream is, and breaks the capture.
int check_captured(Stream *stream) {
    std::lock_guard lock(stream->lane->mutex);
    if (stream->captured == nullptr) return kSuccess;
    stream->captured->is_broken = true;
    return kCaptureUnsupported;
}

// Fails a call that may wait, or that other calls may have to wait for, and breaks the capture.
int check_capture() {
    if (!machine().is_capturing.load() || capture_mode == kCaptureRelaxed) return kSuccess;
    machine().is_capture_broken.store(true);
    return kCaptureUnsupported;
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
    if (to == nullptr || from == nullptr) return say("a copy accesses bytes outside device memory");
    std::memmove(to, from, size_bytes);
    return kSuccess;
}

}  // namespace

int stream_enqueue(Stream *handle, std::function<int()> work) {
    if (current == nullptr) return kInvalidContext;
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (int result = check_legacy(handle, true)) return result;
    std::lock_guard lock(stream->lane->mutex);
    if (stream->captured != nullptr) {
        if (stream->captured->is_broken) return kCaptureBroken;
        stream->captured->work.push_back(std::move(work));
        return kSuccess;
    }
    ++stream->unfinished;
    ++stream->lane->unfinished;
    stream->lane->work.emplace_back(stream, std::move(work));
    stream->lane->changed.notify_all();
    return kSuccess;
}

bool has_sticky_error() { return machine().sticky.load() != 0; }
void count_live(int change) { machine().live.fetch_add(static_cast<uint64_t>(change)); }

int begin_call(const char *name) {
    Machine &all = machine();
    std::lock_guard lock(all.mutex);
    ++all.all_calls;
    ++all.calls[name];
    if (int result = planted_result(name)) return result;
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
    if (int result = check_capture()) return result;
    *address = allocate(size_bytes, is_host);
    if (*address == 0) return kOutOfMemory;
    machine().live.fetch_add(1);
    return kSuccess;
}

int memory_free(uint64_t address, bool is_host) {
    if (current == nullptr) return kInvalidContext;
    if (int result = check_capture()) return result;
    await_all();
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

int stream_create(bool is_blocking, int priority, Stream **out) {
    if (current == nullptr) return kInvalidContext;
    if (priority < kGreatestPriority || priority > kLeastPriority) return kInvalidValue;
    std::lock_guard lock(machine().mutex);
    bool is_urgent = priority == kGreatestPriority;
    *out = make_stream(is_urgent ? kLanes : machine().made_streams++ % kLanes);
    (*out)->is_blocking = is_blocking;
    machine().live.fetch_add(1);
    return kSuccess;
}

int stream_destroy(Stream *stream) {
    {
        std::lock_guard lock(machine().mutex);
        if (std::erase(machine().streams, stream) == 0) return kInvalidValue;
        machine().live.fetch_sub(1);
    }
    std::lock_guard lock(stream->lane->mutex);
    stream->is_destroyed = true;
    if (stream->unfinished == 0) delete stream;
    return kSuccess;
}

int stream_query(Stream *handle) {
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (int result = check_legacy(handle, true)) return result;
    if (int result = check_captured(stream)) return result;
    if (int result = check_capture()) return result;
    std::lock_guard lock(stream->lane->mutex);
    return stream->unfinished == 0 ? kSuccess : kNotReady;
}

int stream_synchronise(Stream *handle) {
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (int result = check_legacy(handle, true)) return result;
    if (int result = check_captured(stream)) return result;
    if (int result = check_capture()) return result;
    await_idle(stream);
    return machine().sticky.load();
}

int stream_context(Stream *handle, Context **out) {
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    *out = stream->context;
    return kSuccess;
}

int stream_begin_capture(Stream *handle, int mode) {
    if (is_legacy(handle)) return kCaptureUnsupported;
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    std::lock_guard lock(stream->lane->mutex);
    if (stream->captured != nullptr) return kInvalidValue;
    static std::atomic<uint64_t> captures{0};
    stream->captured = std::make_unique<Graph>();
    stream->captured->capture_id = captures.fetch_add(1) + 1;
    if (mode != kCaptureRelaxed) fakegpu_begin_capture();
    return kSuccess;
}

int stream_end_capture(Stream *handle, Graph **out) {
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    std::lock_guard lock(stream->lane->mutex);
    if (stream->captured == nullptr) return kInvalidValue;
    std::unique_ptr<Graph> graph = std::move(stream->captured);
    bool is_broken = fakegpu_end_capture() != 0 || graph->is_broken;
    *out = nullptr;
    if (is_broken) return kCaptureBroken;
    *out = graph.release();
    machine().live.fetch_add(1);
    return kSuccess;
}

int stream_is_capturing(Stream *handle, int *status) {
    Stream *stream = real(handle);
    if (stream == nullptr) return kInvalidHandle;
    if (int result = check_legacy(handle, false)) return result;
    std::lock_guard lock(stream->lane->mutex);
    *status = stream->captured == nullptr ? 0 : stream->captured->is_broken ? 2 : 1;
    return kSuccess;
}

uint64_t stream_capture_id(Stream *handle) {
    Stream *stream = real(handle);
    std::lock_guard lock(stream->lane->mutex);
    return stream->captured == nullptr ? 0 : stream->captured->capture_id;
}

int graph_instantiate(const Graph *graph, Graph **out) {
    if (graph == nullptr || graph->is_launchable) return kInvalidValue;
    *out = new Graph(*graph);
    (*out)->is_launchable = true;
    machine().live.fetch_add(1);
    return kSuccess;
}

int graph_launch(Graph *graph, Stream *stream) {
    if (graph == nullptr || !graph->is_launchable) return kInvalidValue;
    // A graph may be destroyed while it runs.
    return stream_enqueue(stream, [all = graph->work] {
        for (const std::function<int()> &work : all) {
            if (int result = work()) return result;
        }
        return int{kSuccess};
    });
}

int graph_destroy(Graph *graph) {
    if (graph == nullptr || graph->is_launchable) return kInvalidValue;
    delete graph;
    machine().live.fetch_sub(1);
    return kSuccess;
}

int graph_destroy_launchable(Graph *graph) {
    if (graph == nullptr || !graph->is_launchable) return kInvalidValue;
    delete graph;
    machine().live.fetch_sub(1);
    return kSuccess;
}

void exchange_capture_mode(int *mode) { std::swap(*mode, capture_mode); }

int stream_wait_value(Stream *stream, uint64_t address, uint64_t value) {
    return stream_enqueue(stream, [=] {
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
    return stream_enqueue(stream, [=] {
        void *at = find(address, size_bytes);
        if (at == nullptr) return say("a fill accesses bytes outside device memory");
        fill(at, byte, size_bytes);
        return int{kSuccess};
    });
}

int stream_copy_many(Stream *handle, const Copies &copies) {
    if (is_legacy(handle)) return kInvalidValue;
    int capture = 0;
    if (int result = stream_is_capturing(handle, &capture)) return result;
    if (capture != 0) return kCaptureUnsupported;
    std::vector<std::array<uint64_t, 3>> listed;
    for (size_t i = 0; i < copies.count; ++i) {
        if (copies.sizes_bytes[i] == 0) return kInvalidValue;
        listed.push_back({copies.dsts[i], copies.srcs[i], copies.sizes_bytes[i]});
    }
    if (listed.empty()) return kInvalidValue;
    return stream_enqueue(handle, [listed] {
        for (auto one = listed.rbegin(); one != listed.rend(); ++one) {
            if (int result = copy_bytes((*one)[0], (*one)[1], (*one)[2])) return result;
        }
        return int{kSuccess};
    });
}

int stream_copy(Stream *stream, uint64_t dst, uint64_t src, size_t size_bytes) {
    int result = stream_enqueue(stream, [=] { return copy_bytes(dst, src, size_bytes); });
    int capture = 0;
    stream_is_capturing(stream, &capture);
    if (result == 0 && capture == 0 && is_pinned(dst) && is_pinned(src)) await_idle(real(stream));
    return result;
}

void set_shared_limits(size_t declared_bytes, size_t asked_bytes) {
    machine().declared_bytes = declared_bytes;
    machine().asked_bytes = asked_bytes;
}

int allow_shared(const Kernel *kernel, size_t asked_bytes) {
    std::lock_guard lock(machine().mutex);
    if (kernel == nullptr || asked_bytes > machine().asked_bytes) return kInvalidValue;
    machine().allowed_bytes[kernel] = asked_bytes;
    return kSuccess;
}

namespace {

// Counts the launch; false if it asks for more shared memory than was allowed.
bool note_launch(const Kernel *kernel, size_t asked_bytes) {
    Machine &all = machine();
    std::lock_guard lock(all.mutex);
    ++all.launches[kernel->name];
    auto allowed = all.allowed_bytes.find(kernel);
    return asked_bytes <=
           (allowed == all.allowed_bytes.end() ? all.declared_bytes : allowed->second);
}

}  // namespace

std::map<std::string, uint64_t> launch_counts() {
    std::lock_guard lock(machine().mutex);
    return machine().launches;
}

int stream_launch(Stream *stream, const Kernel *kernel, uint32_t groups_x, uint32_t groups_y,
                  uint32_t threads, size_t asked_bytes, void **arguments) {
    if (kernel == nullptr || groups_x == 0 || groups_y == 0 || groups_y > 65535 ||
        threads != kernel->threads || !note_launch(kernel, asked_bytes)) {
        return kInvalidValue;
    }
    if (is_left_out(kernel->name)) return kSuccess;
    std::vector<unsigned char> copied(kernel->argument_bytes);
    std::memcpy(copied.data(), arguments[0], copied.size());
    return stream_enqueue(stream, [=] {
        Launch launch = {kernel,
                         copied.data(),
                         groups_x,
                         groups_y,
                         machine().warp_width,
                         machine().declared_bytes,
                         asked_bytes,
                         counting()};
        std::string wrong = run(launch);
        return wrong.empty() ? int{kSuccess} : say(wrong);
    });
}

int module_load(const void *image, Module **out) {
    if (current == nullptr) return kInvalidContext;
    if (int result = check_capture()) return result;
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

}  // namespace fakegpu

using fakegpu::machine;

uint64_t fakegpu_calls(const char *name) {
    std::lock_guard lock(machine().mutex);
    return name == nullptr ? machine().all_calls : machine().calls[name];
}

uint64_t fakegpu_launches(const char *kernel) {
    std::lock_guard lock(machine().mutex);
    return machine().launches[kernel];
}

const char *fakegpu_last_fault(void) {
    static thread_local std::string copied;
    std::lock_guard lock(machine().mutex);
    copied = machine().last_fault;
    return copied.c_str();
}

void fakegpu_break(int result) {
    if (result == 0 && machine().sticky.load() != 0) fakegpu::await_all();
    machine().sticky.store(result);
}

void fakegpu_begin_capture(void) {
    machine().is_capture_broken.store(false);
    machine().is_capturing.store(true);
}

int fakegpu_end_capture(void) {
    machine().is_capturing.store(false);
    return machine().is_capture_broken.load() ? 1 : 0;
}

void fakegpu_call_unsafely(void) { fakegpu::check_capture(); }

uint64_t fakegpu_live(void) { return machine().live.load(); }
