// SPDX-License-Identifier: Apache-2.0
//
// lease_index: where a lease's table of one group names a block, and how often the lease holds it.
//
// A lease's table names each block that it holds once, in no order, without null entries. So a hash
// table of entries finds a block: open addressing, each entry as near after its place as it fits,
// at most half full. Where a lease holds so much of its pool that an entry for each of the pool's
// blocks takes no more room, the index is *direct*: a block's place is its number. Then a look is
// one read, and looks for blocks in a row read in a row.
//
// Invariant: every entry of the table is in the index once, and nothing else is.
//
// Ownership: the journal has all indexes, and gives their buffers back to its pool.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_table.hpp"

namespace quire {

class LeaseIndex {
 public:
    // Makes room for a table of that many entries, of a pool with that many blocks. False: no
    // memory.
    [[nodiscard]] bool reserve(BufferPool *buffers, const BlockTable &t, uint32_t entries,
                               uint32_t pool_blocks) {
        if (!buffers->grow(&holds_, entries, t.length)) return false;
        const uint32_t wanted = entries * 2 < pool_blocks ? entries * 2 : pool_blocks;
        if (wanted <= places_.capacity) [[likely]]
            return true;
        if (!buffers->grow(&places_, wanted, 0)) return false;
        enter_all(t, pool_blocks);
        return true;
    }
    void give_back(BufferPool *buffers) {
        buffers->give_back(&holds_);
        buffers->give_back(&places_);
        is_direct_ = false;
    }

    // The entry that names the block, or kNone.
    uint32_t find(const BlockTable &t, uint32_t block) const {
        if (block >= places_.capacity && (is_direct_ || places_.capacity == 0)) return kNone;
        uint32_t entry = places_.data[place_of(t, block)];
        return entry != 0 ? entry - 1 : kNone;
    }
    // The cache line where find() begins, for a look some time later.
    void prefetch(uint32_t block) const {
        if (places_.capacity != 0) __builtin_prefetch(&places_.data[home(block)], 1);
    }
    uint32_t &holds(uint32_t entry) { return holds_.data[entry]; }
    uint32_t holds(uint32_t entry) const { return holds_.data[entry]; }

    // The entry names its block now. REQUIRES: no entry did, and room.
    void enter(const BlockTable &t, uint32_t entry) {
        places_.data[place_of(t, t.ids.data[entry])] = entry + 1;
    }
    // The block, which an entry names, is now named by another one.
    void move(const BlockTable &t, uint32_t block, uint32_t entry) {
        places_.data[place_of(t, block)] = entry + 1;
    }
    // The block is about to be named by no entry.
    void leave(const BlockTable &t, uint32_t block);
    // True if the lease holds each of the blocks once. REQUIRES: entries name all of them.
    bool holds_once(const BlockTable &t, const uint32_t *blocks, uint32_t count) const;
    // Takes blocks that entries name off the table, the last one first, if they are held once, and
    // returns how many; the others are held once less. The table's last entry comes in the place of
    // each.
    uint32_t remove_run(BlockTable *t, const uint32_t *blocks, uint32_t count);
    // The table's entries name other blocks now, of a pool with that many.
    void enter_all(const BlockTable &t, uint32_t pool_blocks);

 private:
    uint32_t mask() const { return places_.capacity - 1; }
    // Blocks are taken and given in runs, so 16 adjacent numbers are near one another, in two cache
    // lines, with a gap after each: a removal looks at all places up to the next gap. The runs are
    // spread evenly (Fibonacci hashing, 2^32 / golden ratio). A buffer's capacity is a power of
    // two.
    uint32_t home(uint32_t block) const {
        if (is_direct_) return block & mask();
        uint32_t run = (block >> 4) * 0x9E3779B9u >> 4;
        return (run << 5 | (block & 15) << 1) & mask();
    }
    // Where the block is, or where it would be.
    uint32_t place_of(const BlockTable &t, uint32_t block) const {
        uint32_t at = home(block);
        if (is_direct_) return at;
        while (places_.data[at] != 0 && t.ids.data[places_.data[at] - 1] != block)
            at = (at + 1) & mask();
        return at;
    }

    Buffer places_;  // entries plus 1; 0: unused
    Buffer holds_;   // by entry
    bool is_direct_ = false;
};

}  // namespace quire
