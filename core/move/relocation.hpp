// SPDX-License-Identifier: Apache-2.0
//
// relocation: which block goes where when a cache changes its memory, and the pools that will keep
// the books.
//
// A block keeps its number if the new pool has that number, so that a pool that grows renumbers
// nothing. Otherwise the block takes the lowest free number. Cached blocks for which there is no
// room are dropped, the least recently used first.
//
// Between assign() and apply() nothing of the journal may change.
//
// Threads: none; Cache holds its lock. ids and host_ids are constant once planned.
#pragma once

#include "core/base/geometry.hpp"
#include "core/blocks/journal.hpp"

namespace quire {

// A cached block that is dropped.
struct BlockDrop {
    uint32_t group;
    uint32_t block;  // as the tree names it
};

class Relocation {
 public:
    explicit Relocation(const HostAllocator *host) : drops(host), block_tree(host), host_(host) {
        for (Array<uint32_t> &numbers : ids) numbers.bind(host);
        for (Array<uint32_t> &numbers : host_ids) numbers.bind(host);
    }
    ~Relocation() {
        for (BlockPool *&pool : pools) BlockPool::destroy(host_, &pool);
        for (BlockPool *&pool : host_pools) BlockPool::destroy(host_, &pool);
    }
    Relocation(const Relocation &) = delete;
    Relocation &operator=(const Relocation &) = delete;

    // Plans the ids of all held and cached blocks in pools of the target's sizes, in memory that
    // grows with the cache as it is; changes nothing in the journal. If the held blocks do not fit,
    // blocks_short says by how many and nothing is planned. REQUIRES: no step is open or running.
    Status assign(const Journal &journal, const Geometry &target);
    // Makes the pools, and the block tree if there is one, whose memory grows with the target.
    // Changes nothing in the journal. REQUIRES: assign() planned.
    Status make_pools(Journal *journal, const Geometry &target);
    // Drops what is dropped, and puts the pools in place of the journal's; those are destroyed with
    // this. The tables are renumbered one by one: renumber_tables().
    void apply(Journal *journal);
    // swapped: the sequence's tables name blocks of the host tier.
    void renumber_tables(Journal *journal, uint32_t sequence, bool swapped) const;

    // [pool][old block] its new number; kNone: dropped, or neither held nor cached.
    Array<uint32_t> ids[kMaxGroups];
    Array<uint32_t> host_ids[kMaxGroups];
    Array<BlockDrop> drops;     // in the order in which they are dropped
    uint32_t blocks_short = 0;  // missing for live blocks, in the shortest pool or tier
    uint64_t blocks_dropped = 0;
    BlockPool *pools[kMaxGroups] = {};
    BlockPool *host_pools[kMaxGroups] = {};
    BlockTree block_tree;

 private:
    // Blocks that stay, by pool.
    struct Left {
        uint32_t device[kMaxGroups] = {};
        uint32_t host[kMaxGroups] = {};
    };
    void plan_drop(const Journal &journal, uint32_t group, uint32_t named, Left *left);
    void plan_drops(const Journal &journal, const Geometry &target, Left *left);
    uint32_t &id_of(uint32_t group, uint32_t named) {
        return (is_on_host(named) ? host_ids : ids)[pool_of(group)][number_of(named)];
    }
    uint32_t pool_of(uint32_t group) const { return pool_count_ == 1 ? 0 : group; }

    const HostAllocator *host_;
    uint32_t group_count_ = 0;
    uint32_t pool_count_ = 0;
    bool full_[kMaxGroups] = {};
};

}  // namespace quire
