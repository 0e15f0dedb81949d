// SPDX-License-Identifier: Apache-2.0
//
// recycled: a host allocator that keeps what is large for the next input.
//
// Why: a cache has tables of megabytes, and the pages of fresh ones take most of a short run. Each
// block keeps its exact size, so that a sanitizer still sees what lies past its end; what it does
// not see of these is a use after their release.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

namespace quire::fuzz {

constexpr uint64_t kRecycledBytes = uint64_t{1} << 16;
constexpr uint64_t kMostHostBytes = uint64_t{128} << 20;  // of one block; more is refused
constexpr uint64_t kMostKeptBytes = uint64_t{256} << 20;  // of all that wait for the next input

class Recycled {
 public:
    static void *allocate(void *, uint64_t size_bytes, uint64_t alignment) {
        if (size_bytes > kMostHostBytes) return nullptr;
        std::vector<void *> &kept = blocks()[size_bytes];
        if (size_bytes >= kRecycledBytes && !kept.empty()) {
            void *block = kept.back();
            kept.pop_back();
            kept_bytes() -= size_bytes;
            return block;
        }
        // Every kept block serves every alignment.
        uint64_t least = size_bytes >= kRecycledBytes ? 4096 : sizeof(void *);
        if (alignment < least) alignment = least;
        void *block = nullptr;
        return posix_memalign(&block, alignment, size_bytes) == 0 ? block : nullptr;
    }
    static void release(void *, void *block, uint64_t size_bytes, uint64_t) {
        if (size_bytes < kRecycledBytes || kept_bytes() + size_bytes > kMostKeptBytes) {
            std::free(block);
        } else {
            blocks()[size_bytes].push_back(block);
            kept_bytes() += size_bytes;
        }
    }

 private:
    static uint64_t &kept_bytes() {
        static uint64_t bytes = 0;
        return bytes;
    }
    static std::map<uint64_t, std::vector<void *>> &blocks() {
        static auto *all = new std::map<uint64_t, std::vector<void *>>;  // outlives every cache
        return *all;
    }
};

}  // namespace quire::fuzz
