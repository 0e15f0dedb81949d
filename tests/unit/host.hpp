// SPDX-License-Identifier: Apache-2.0
//
// host: an allocator for tests of the core's parts: counts live allocations, and fails on request.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>

#include "core/base/host_memory.hpp"

namespace quire::test {

class Host {
 public:
    Host() {
        allocator.allocate = [](void *user, uint64_t size_bytes, uint64_t alignment) {
            return static_cast<Host *>(user)->allocate(size_bytes, alignment);
        };
        allocator.release = [](void *user, void *pointer, uint64_t size_bytes, uint64_t alignment) {
            static_cast<Host *>(user)->release(pointer, size_bytes, alignment);
        };
        allocator.user = this;
    }
    Host(const Host &) = delete;
    Host &operator=(const Host &) = delete;

    HostAllocator allocator;
    uint64_t calls = 0;
    uint64_t fail_at = UINT64_MAX;  // the call, from 1, that returns NULL
    uint64_t wrong_releases = 0;    // with another size or alignment than was requested
    uint64_t live() const { return sizes_.size(); }

 private:
    void *allocate(uint64_t size_bytes, uint64_t alignment) {
        if (++calls == fail_at) return nullptr;
        uint64_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
        void *pointer = std::aligned_alloc(alignment, rounded);
        sizes_[pointer] = {size_bytes, alignment};
        return pointer;
    }
    void release(void *pointer, uint64_t size_bytes, uint64_t alignment) {
        auto it = sizes_.find(pointer);
        bool right = it != sizes_.end() && it->second == std::pair(size_bytes, alignment);
        if (!right) ++wrong_releases;
        if (it != sizes_.end()) sizes_.erase(it);
        std::free(pointer);
    }

    std::map<void *, std::pair<uint64_t, uint64_t>> sizes_;
};

// An allocator whose calls are not counted.
inline const HostAllocator *host() {
    static Host shared;
    return &shared.allocator;
}

}  // namespace quire::test
