// SPDX-License-Identifier: Apache-2.0
//
// memory: the memory that a kernel or a copy may access: device memory and pinned host memory.
//
// A device address is not a host pointer: it lies kDeviceOffset past one, where no process has
// memory, so a host that dereferences one crashes at once. Pinned memory has one address for both.
// Fresh memory holds 0xFF, if it is large only at its beginning. It is aligned to 256 bytes and no
// more, which is all that drivers promise.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

namespace fakegpu {

constexpr uint64_t kDeviceOffset = uint64_t{1} << 56;

// 0 if memory is exhausted (device memory has `device_memory_bytes()` in total).
uint64_t allocate(size_t size_bytes, bool is_host);
// True if the address is pinned host memory.
bool is_pinned(uint64_t address);
// False if nothing was allocated there.
bool release(uint64_t address, bool is_host);
size_t device_memory_bytes();
size_t device_memory_used();

// The host pointer to [address, address + size); NULL if that is not inside one allocation.
void *find(uint64_t address, size_t size_bytes);
// Gives a large piece of zeros back to the system, so that it takes no memory.
void fill(void *at, unsigned char byte, size_t size_bytes);
// As find(), for an access by a kernel; ends the launch if there is no such memory.
void *reach(uint64_t address, size_t size_bytes, size_t alignment,
            const std::source_location &where);

}  // namespace fakegpu
