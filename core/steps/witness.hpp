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
// Ownership: refers to the books; owns the lists.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/cache_books.hpp"

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
    explicit Witness(CacheBooks *books) : books_(*books) {
        for (Array<Seen> &seen : seen_) seen.bind(&books->host);
    }

    // Empties the step's list and makes room for what the commit will note. unscrubbed_count:
    // blocks that it may zero in addition. False: no memory.
    [[nodiscard]] bool reserve(const StepRecord &record, uint64_t unscrubbed_count);
    // Notes what the step touches, in no particular order. REQUIRES: reserve(), and the step's
    // items are settled.
    void note_step(const StepRecord &record);
    const Array<Seen> &of(uint64_t step) const { return seen_[Timeline::ring_index(step)]; }

 private:
    void note(const Seen &seen) { seen_[Timeline::ring_index(seen.step)].push(seen); }
    void note_table(const StepRecord &record, const Change &change, uint32_t group);
    uint32_t wanted_slots(const Change &change, const quire_block_copy &copy) const;
    void note_copy(const StepRecord &record, const quire_block_copy &copy, uint32_t wanted);

    CacheBooks &books_;
    Array<Seen> seen_[kMaxUnfinished];
};

}  // namespace quire
