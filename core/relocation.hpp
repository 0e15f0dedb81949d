// SPDX-License-Identifier: Apache-2.0
//
// relocation: which block goes where when a cache changes its memory, and the pools that will hold
// their books.
//
// A block keeps its number where the new pool has it, so that a pool that grows renumbers nothing.
// Where it has not, the block takes the lowest number that is free. Cached blocks that find no room
// leave, the least recent first.
//
// Made by Ledger::plan() and used up by Ledger::relocate(); in between nothing of the ledger may
// change.
//
// Threads: none; Cache holds its lock. ids and host_ids are constant once planned.
#pragma once

#include "block_pool.hpp"
#include "geometry.hpp"

namespace quire {

// A pool's block that leaves.
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

    // [group][old block] its new number; kNone: it is not there, or nobody's.
    Array<uint32_t> ids[kMaxGroups];
    Array<uint32_t> host_ids[kMaxGroups];
    Array<BlockDrop> drops;     // in the order in which they leave
    uint32_t blocks_short = 0;  // that live ones lack, in the group or tier that lacks most
    uint64_t blocks_dropped = 0;
    BlockPool *pools[kMaxGroups] = {};
    BlockPool *host_pools[kMaxGroups] = {};

 private:
    const HostAllocator *host_;
};

}  // namespace quire
