// SPDX-License-Identifier: Apache-2.0
//
// witness: which slots of which blocks each unfinished step reads and writes, according to its
// tables and copies when it was committed.
//
// Why: the last step that may touch a block is one number in the block and one in each sequence
// that holds it, and every call that lets go of a block, or undoes that, changes them. These lists
// never change, so a check can compare the numbers with them. They cost O(entries of its tables)
// per step, only in an audited cache (QUIRE_CACHE_AUDIT).
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_pool.hpp"

namespace quire {

// Slots of one block: [0, read_end) are read, [write_begin, write_end) are written.
struct Seen {
    uint64_t step;
    uint32_t group;
    uint32_t block;
    uint32_t sequence;  // kNone: a copy
    uint32_t read_end;
    uint32_t write_begin;
    uint32_t write_end;
    bool is_host;

    bool writes() const { return write_end > write_begin; }
};

class Witness {
 public:
    explicit Witness(const HostAllocator *host) {
        for (Array<Seen> &seen : seen_) seen.bind(host);
    }

    // Empties the list of this step and makes room for `count` entries. False: no memory.
    [[nodiscard]] bool begin(uint64_t step, uint64_t count) {
        Array<Seen> &seen = seen_[Timeline::slot(step)];
        seen.shrink(0);
        return seen.reserve(count);
    }
    // REQUIRES: begin() made room.
    void note(const Seen &seen) { seen_[Timeline::slot(seen.step)].push(seen); }
    const Array<Seen> &of(uint64_t step) const { return seen_[Timeline::slot(step)]; }

 private:
    Array<Seen> seen_[kMaxUnfinished];
};

}  // namespace quire
