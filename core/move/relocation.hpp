// SPDX-License-Identifier: Apache-2.0
//
// relocation: which block goes where when a cache changes its memory, and the pools that will keep
// the books.
//
// A block keeps its number if the new pool has that number, so that a pool that grows renumbers
// nothing. Otherwise the block takes the lowest free number. Cached blocks for which there is no
// room are dropped, the least recently used first.
//
// Made by Journal::plan() and used up by Journal::relocate(); in between nothing of the journal may
// change.
//
// Threads: none; Cache holds its lock. ids and host_ids are constant once planned.
#pragma once

#include "core/base/geometry.hpp"
#include "core/blocks/block_pool.hpp"

namespace quire {

// A cached block that is dropped.
struct BlockDrop {
    uint32_t group;
    uint32_t block;
};

class Relocation {
 public:
    explicit Relocation(const HostAllocator *host) : drops(host), host_(host) {
        for (Array<uint32_t> &numbers : ids) numbers.bind(host);
        for (Array<uint32_t> &numbers : host_ids) numbers.bind(host);
    }
    ~Relocation() {
        for (BlockPool *&pool : pools) destroy(&pool);
        for (BlockPool *&pool : host_pools) destroy(&pool);
    }
    Relocation(const Relocation &) = delete;
    Relocation &operator=(const Relocation &) = delete;

    void destroy(BlockPool **pool) {
        if (*pool == nullptr) return;
        (*pool)->~BlockPool();
        host_->release(host_->user, *pool, sizeof(BlockPool), kCacheLine);
        *pool = nullptr;
    }

    // [group][old block] its new number; kNone: dropped, or neither held nor cached.
    Array<uint32_t> ids[kMaxGroups];
    Array<uint32_t> host_ids[kMaxGroups];
    Array<BlockDrop> drops;     // in the order in which they are dropped
    uint32_t blocks_short = 0;  // missing for live blocks, in the shortest group or tier
    uint64_t blocks_dropped = 0;
    BlockPool *pools[kMaxGroups] = {};
    BlockPool *host_pools[kMaxGroups] = {};

 private:
    const HostAllocator *host_;
};

}  // namespace quire
