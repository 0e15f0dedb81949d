// SPDX-License-Identifier: Apache-2.0
//
// memory: the allocations made by mem_alloc.
//
// Freeing memory may make a driver wait for everything that runs, and a queue held back by a fence
// does not finish on its own. While any queue is held, freed memory is only recorded; it is
// returned later, by the next memory call or when the device is closed.
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "driver.hpp"
#include "quire/plugin/backend.h"

namespace quire::gpu {

class Memory {
 public:
    void open(quire_be_device *device) { device_ = device; }
    void close();

    quire_status allocate(uint64_t size_bytes, uint32_t kind, uint64_t *address,
                          void **host_pointer, quire_error *error);
    // Records it for sweep() to free. False: no such allocation.
    bool release(uint64_t address, uint64_t size_bytes, uint32_t kind);
    void sweep();

 private:
    struct Allocation {
        uint64_t address;
        void *host;  // NULL for device memory
        uint64_t size_bytes;
        // As the driver returned it, aligned to only 256 bytes.
        uint64_t driver_address;
        void *driver_host;
    };
    using Allocations = std::map<uint64_t, Allocation>;  // keyed by address
    Result ask_driver(bool is_host, Allocation *made);
    Result zero(const Allocation &made);
    void free(const Allocation &allocation);

    quire_be_device *device_ = nullptr;
    Allocations allocations_;
    std::vector<Allocation> freed_;
};

quire_status mem_alloc(quire_be_device *device, uint64_t size_bytes, uint32_t kind,
                       uint64_t *address, void **host_pointer, quire_error *error);
void mem_free(quire_be_device *device, uint64_t address, uint64_t size_bytes, uint32_t kind);

}  // namespace quire::gpu
