// SPDX-License-Identifier: Apache-2.0
//
// device_array: words of the emulated GPU's memory that a test fills and reads.
//
// Threads: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/dialect.hpp"

namespace quire::gpu {

struct DeviceArray {
    explicit DeviceArray(size_t count)
        : bytes(count * 4), address(fakegpu::allocate(bytes, false)) {}
    template <typename T>
    explicit DeviceArray(const std::vector<T> &from)
        : DeviceArray(std::max<size_t>(from.size(), 1)) {
        static_assert(sizeof(T) == 4);
        std::copy(from.begin(), from.end(), reinterpret_cast<T *>(host()));
    }
    DeviceArray(const DeviceArray &) = delete;
    DeviceArray &operator=(const DeviceArray &) = delete;
    ~DeviceArray() { fakegpu::release(address, false); }

    uint32_t *host() { return static_cast<uint32_t *>(fakegpu::find(address, bytes)); }

    size_t bytes;
    uint64_t address;
};

}  // namespace quire::gpu
