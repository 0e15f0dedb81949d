// SPDX-License-Identifier: Apache-2.0
//
// witness: which slots of which blocks each unfinished step reads and writes, as its tables and
// copies said when it was committed.
//
// Why: until when work may touch a block is one number of the block and one of each sequence that
// holds it, and every call that lets go of a block, or takes that back, changes them. These lists
// are changed by nothing, so that a check can hold the numbers to them. A step takes O(entries of
// its tables), which only a cache that is audited pays (QUIRE_CACHE_AUDIT).
//
// Threads: none; Cache holds its lock.
#pragma once

#include "block_pool.hpp"

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

    // The list of this step is empty, with room for `count`. False: no memory.
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
