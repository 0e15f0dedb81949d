// SPDX-License-Identifier: Apache-2.0
//
// allocations: device and pinned memory, from the driver.
//
// Freeing memory may make a driver wait for everything that runs, so releasing and freeing are two
// calls (schedule.hpp, sweep()).
//
// Threads: none; the device's mutex. The device's context is current.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "driver.hpp"

namespace quire::gpu {

struct Allocation {
    uint64_t address;     // a multiple of 4,096
    unsigned char *host;  // NULL for device memory
    uint64_t size_bytes;
    // As the driver returned it, aligned to only 256 bytes.
    uint64_t driver_address;
    void *driver_host;
};

class Allocations {
 public:
    void open(const Driver *driver) { driver_ = driver; }
    // Frees everything; errors are ignored.
    void close();

    [[nodiscard]] Result make(uint64_t size_bytes, bool is_host, Allocation *out);
    // Frees one that was just made.
    void drop(const Allocation &made);
    // Leaves it to free_released(). False: no such allocation.
    bool release(uint64_t address, uint64_t size_bytes, bool is_host);
    bool has_released() const { return !released_.empty(); }
    // An error if there was one, fatal before others.
    Result free_released();

 private:
    using ByAddress = std::map<uint64_t, Allocation>;
    Result query_driver(bool is_host, Allocation *made);
    Result free(const Allocation &allocation);

    const Driver *driver_ = nullptr;
    ByAddress live_;
    std::vector<Allocation> released_;
};

}  // namespace quire::gpu
