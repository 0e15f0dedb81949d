// SPDX-License-Identifier: Apache-2.0
//
// memory: what a kernel or a copy may reach: device memory and pinned host memory.
//
// A device address is no host pointer: it lies kDeviceOffset behind one, where no process has
// memory, so a host that follows one crashes at once. Pinned memory has one address for both.
// Fresh memory holds 0xFF, where it is large at its beginning. It is aligned to 256 bytes and to no
// more, which is all that drivers promise.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace fakegpu {

constexpr uint64_t kDeviceOffset = uint64_t{1} << 56;

// 0: there is none left (device memory is `device_memory_bytes()` altogether).
uint64_t allocate(size_t size_bytes, bool is_host);
// Is it pinned memory of the host?
bool is_pinned(uint64_t address);
// False: nothing was allocated there.
bool release(uint64_t address, bool is_host);
size_t device_memory_bytes();
size_t device_memory_used();

// The host's pointer to [address, address + size); NULL: it is not all inside one allocation.
void *find(uint64_t address, size_t size_bytes);
// A large piece of zeros is given back to the system, which keeps none.
void fill(void *at, unsigned char byte, size_t size_bytes);
// As find(), for a kernel's access; it ends the launch where there is nothing.
void *reach(uint64_t address, size_t size_bytes, size_t alignment,
            const std::source_location &where);

}  // namespace fakegpu
