// SPDX-License-Identifier: Apache-2.0
//
// device_floats: f32 numbers that a pool has on the device besides its blocks, and their copy on
// the host: static scales, which are uploaded once, and largest magnitudes, which are downloaded.
//
// Why a queue of its own for each copy: nothing else is on it, so a copy of a few KB does not wait
// for any work of the caller.
//
// Threads: none; Cache holds its lock. Kernels read and raise the device's copy meanwhile.
#pragma once

#include "core/device/device.hpp"

namespace quire {

class DeviceFloats {
 public:
    DeviceFloats() = default;
    ~DeviceFloats() { clear(); }
    DeviceFloats(const DeviceFloats &) = delete;
    DeviceFloats &operator=(const DeviceFloats &) = delete;

    void clear();
    // `count` zeros on both sides. error: filled by the backend.
    Status create(const Device *device, uint64_t count, quire_error *error);

    uint64_t address() const { return address_; }  // on the device; 0: no numbers
    uint64_t count() const { return size_bytes_ / sizeof(float); }
    uint64_t device_bytes() const { return address_ != 0 ? size_bytes_ : 0; }
    uint64_t host_bytes() const { return host_address_ != 0 ? size_bytes_ : 0; }
    float *host() { return host_; }

    // Copies all numbers, and waits until they are copied.
    Status upload(quire_error *error);
    Status download(quire_error *error);

 private:
    Status copy(bool is_up, quire_error *error);

    const Device *device_ = nullptr;
    uint64_t size_bytes_ = 0;
    uint64_t address_ = 0;
    uint64_t host_address_ = 0;
    float *host_ = nullptr;
};

}  // namespace quire
