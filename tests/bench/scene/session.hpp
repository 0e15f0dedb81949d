// SPDX-License-Identifier: Apache-2.0
//
// session: libquire, a device with a number of threads, and one queue.
//
// Threads: none.
#pragma once

#include <quire/api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace quire::bench {

template <typename T>
T described() {
    T value{};
    value.struct_size = sizeof value;
    return value;
}

// Memory for activations, which a queue reads and writes.
struct Activations {
    quire_memory *memory;
    uint64_t address;
    std::byte *bytes;
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

    // Throws Unsupported or Failure with the library's words; a result that is no success, such as
    // QUIRE_S_NO_BLOCKS, is one too.
    void must(quire_status status) const;
    void sync() { must(api.queue_sync(queue, &error)); }

    // Are the device's addresses pointers of the host?
    bool is_host_visible() const;
    std::string device_name() const;
    Activations make_activations(uint64_t size_bytes);
    // Zeroed memory of the device.
    quire_memory *make_device_memory(uint64_t size_bytes);
    // Seconds from the call until the queue is idle.
    double copy_seconds(quire_memory *to, quire_memory *from, uint64_t size_bytes);
};

}  // namespace quire::bench
