// SPDX-License-Identifier: Apache-2.0
//
// index: key -> where its value is. A flat table with linear probing over a slab of entries.
//
// Why a slab: an entry keeps its number while its record is copied forward, so a listing that goes
// by number lists each record once; and the entries of a segment are linked by number.
//
// Invariants
//   (1) a key has at most one entry
//   (2) an entry whose `segment` is not NULL is in the list of exactly that segment, and
//       segment->live_bytes is the sum of total_bytes of the entries in its list
//   (3) find() allocates nothing, and put() nothing after reserve()
//
// Threads: none; the store's mutex guards it.
#pragma once

#include <cstdint>
#include <vector>

#include "disk/record.hpp"

namespace quire::disk {

struct Segment;

constexpr uint32_t kNoEntry = UINT32_MAX;

struct Entry {
    quire_store_label label;
    Segment *segment;  // NULL: the entry is unused
    uint64_t offset;
    uint64_t value_bytes;
    uint64_t sequence;
    uint64_t first_sequence;
    uint32_t previous;  // in the segment's list, in the order of the log
    uint32_t next;
    bool was_read;  // since it was written, or last copied forward

    uint64_t total_bytes() const { return round_up(kRecordHeaderBytes + value_bytes); }
    bool is_at(const Segment *where, uint64_t place) const {
        return segment == where && offset == place;
    }
};

class Index {
 public:
    // Makes room for `count` more entries. Throws std::bad_alloc, and nothing changed.
    void reserve(uint64_t count);

    // By key; kNoEntry: no record has it.
    uint32_t find(const uint8_t key[32]) const;
    // Enters a record, in place of one of the same key. REQUIRES: reserve(1) since the last put().
    uint32_t put(const Record &record, Segment *segment);
    // Moves an entry's record to another place.
    void move(uint32_t number, const Record &record, Segment *segment);
    void remove(uint32_t number);

    const Entry &operator[](uint32_t number) const { return entries_[number]; }
    void set_was_read(uint32_t number, bool was_read) { entries_[number].was_read = was_read; }

    uint64_t count() const { return count_; }
    uint64_t value_bytes() const { return value_bytes_; }
    // Numbers are below it.
    uint32_t end() const { return static_cast<uint32_t>(entries_.size()); }

 private:
    uint64_t slot_of(const uint8_t key[32]) const;  // where it is, or where it would be
    void link(uint32_t number, Segment *segment);
    void unlink(uint32_t number);
    void grow(uint64_t slot_count);

    std::vector<Entry> entries_;
    std::vector<uint32_t> slots_;       // entry numbers; a power of two, at most half are used
    uint32_t first_unused_ = kNoEntry;  // linked through `next`
    uint64_t count_ = 0;
    uint64_t value_bytes_ = 0;
};

}  // namespace quire::disk
