// SPDX-License-Identifier: Apache-2.0
//
// mimalloc as the default host allocator and as new and delete of this library alone: the symbols
// are hidden, so the process keeps its own malloc.

#include <mimalloc.h>

#include <new>

#include "abi/heap.hpp"
#include "abi/os.hpp"

namespace quire::abi {

namespace {

constexpr uint64_t kLargeBytes = uint64_t{4} << 20;  // a large cache's tables, used throughout
constexpr uint64_t kLargePage = uint64_t{2} << 20;   // so that pages of this size fill them

void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
    if (size_bytes > os::physical_memory()) return nullptr;
    if (size_bytes < kLargeBytes) return mi_malloc_aligned(size_bytes, alignment);
    void *memory = mi_malloc_aligned(size_bytes, kLargePage);
    if (memory != nullptr) os::advise_large(memory, size_bytes);
    return memory;
}

void release(void *, void *pointer, uint64_t size_bytes, uint64_t alignment) {
    mi_free_size_aligned(pointer, size_bytes, alignment);
}

}  // namespace

HostAllocator default_allocator() { return HostAllocator{allocate, release, nullptr}; }

}  // namespace quire::abi

namespace {

// mimalloc is C: its own mi_new cannot throw and ends the process instead.
void *or_throw(void *memory) {
    if (memory == nullptr) [[unlikely]]
        throw std::bad_alloc();
    return memory;
}

}  // namespace

void *operator new(std::size_t size) { return or_throw(mi_malloc(size)); }
void *operator new[](std::size_t size) { return or_throw(mi_malloc(size)); }
void *operator new(std::size_t size, std::align_val_t alignment) {
    return or_throw(mi_malloc_aligned(size, static_cast<std::size_t>(alignment)));
}
void operator delete(void *pointer) noexcept { mi_free(pointer); }
void operator delete[](void *pointer) noexcept { mi_free(pointer); }
void operator delete(void *pointer, std::size_t) noexcept { mi_free(pointer); }
void operator delete[](void *pointer, std::size_t) noexcept { mi_free(pointer); }
void operator delete(void *pointer, std::align_val_t) noexcept { mi_free(pointer); }
void operator delete(void *pointer, std::size_t, std::align_val_t) noexcept { mi_free(pointer); }
