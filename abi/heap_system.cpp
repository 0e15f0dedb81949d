// SPDX-License-Identifier: Apache-2.0
//
// The system's allocator, for sanitized builds: a sanitizer finds errors only in its own memory.

#include <cstdlib>

#include "abi/heap.hpp"
#include "abi/os.hpp"

namespace quire::abi {

namespace {

void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    if (size_bytes > os::physical_memory()) return nullptr;
    return std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment);
}

void release(void *, void *pointer, uint64_t, uint64_t) { std::free(pointer); }

}  // namespace

HostAllocator default_allocator() { return HostAllocator{allocate, release, nullptr}; }

}  // namespace quire::abi
