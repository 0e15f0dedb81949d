// SPDX-License-Identifier: Apache-2.0
//
// session: libquire, a device with a number of threads, and one queue; where the device has a
// clock, the queue is a stream of our own, as engines have them.
//
// Threads: none.
#pragma once

#include <quire/api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device_clock.hpp"
#include "tests/bench/machine/sizes.hpp"

namespace quire::bench {

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

struct Memory {
    quire_memory *handle = nullptr;
    uint64_t address = 0;
    std::byte *bytes = nullptr;  // NULL: the host cannot access it
};

class Session {
 public:
    // `device` is a backend's name, and may name one of its devices: vulkan:1. flags:
    // QUIRE_DEVICE_*.
    explicit Session(uint32_t threads, const std::string &device = "cpu", uint32_t flags = 0);
    ~Session();
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    const quire_api &api;
    quire_instance *instance = nullptr;
    quire_device *device = nullptr;
    quire_queue *queue = nullptr;
    quire_error error = described<quire_error>();

    // Throws Unsupported or Failure with the library's message; also on a result that is not
    // success, such as QUIRE_S_NO_BLOCKS.
    void must(quire_status status) const;
    void sync() { must(api.queue_sync(queue, &error)); }

    // True if the device's addresses are pointers of the host.
    bool is_host_visible() const { return info().host_visible != 0; }
    std::string device_name() const { return info().name; }
    // How much all layers together must fill, so that caches help little.
    WorkingSet working_set(uint32_t scale) const;

    // The memory is zeroed.
    Memory make_host_memory(uint64_t size_bytes) { return make(QUIRE_MEMORY_HOST, size_bytes); }
    Memory make_device_memory(uint64_t size_bytes) { return make(QUIRE_MEMORY_DEVICE, size_bytes); }
    // Memory where an engine holds what it computes: on the device.
    Memory make_activations(uint64_t size_bytes);
    // Writes the first bytes of the memory; waits until they are there.
    void write(const Memory &memory, const std::vector<std::byte> &bytes);
    void destroy(const Memory &memory) { must(api.memory_destroy(memory.handle, &error)); }
    void copy(const Memory &to, const Memory &from, uint64_t size_bytes) {
        must(api.memory_copy(queue, to.handle, 0, from.handle, 0, size_bytes, &error));
    }

    // Host seconds of the enqueued work, from the call until the queue is idle.
    double host_seconds_of(const std::function<void()> &enqueue);
    // The same by the device's clock, if it has one: without calls, launches and the wait. Then the
    // work is enqueued twice and the second time measured: the device is still busy with the first
    // while the host enqueues the second, and so does not wait for the host in between.
    double seconds_of(const std::function<void()> &enqueue);
    // The clock that seconds_of() uses: "device" or "host".
    const char *clock_name() const { return clock_ != nullptr ? "device" : "host"; }

 private:
    quire_device_info info() const;
    Memory make(uint32_t kind, uint64_t size_bytes);

    std::unique_ptr<DeviceClock> clock_;
};

}  // namespace quire::bench
