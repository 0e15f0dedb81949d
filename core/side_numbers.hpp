// SPDX-License-Identifier: Apache-2.0
//
// side_numbers: f32 numbers that a pool has beside its blocks on the device, and their copy on the
// host: static scales, which go up once, and largest magnitudes, which come down.
//
// Why its own queue, for the moment of a copy: nothing else is on it, so a copy of a few KB waits
// for no work of the caller's.
//
// Threads: none; Cache holds its lock. Kernels read and raise the device's copy meanwhile.
#pragma once

#include "device.hpp"

namespace quire {

class SideNumbers {
 public:
    SideNumbers() = default;
    ~SideNumbers() { clear(); }
    SideNumbers(const SideNumbers &) = delete;
    SideNumbers &operator=(const SideNumbers &) = delete;

    void clear();
    // `count` zeros on both sides. error: the backend's words.
    Status create(const Device *device, uint64_t count, quire_error *error);

    uint64_t address() const { return address_; }  // on the device; 0: there are none
    uint64_t count() const { return size_bytes_ / sizeof(float); }
    uint64_t device_bytes() const { return address_ != 0 ? size_bytes_ : 0; }
    uint64_t host_bytes() const { return host_address_ != 0 ? size_bytes_ : 0; }
    float *host() { return host_; }

    // Copies all of them, and waits for it.
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
