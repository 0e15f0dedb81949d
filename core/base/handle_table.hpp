// SPDX-License-Identifier: Apache-2.0
//
// handle_table: 64-bit handles: type 8 | number 56. No handle is given out twice in a process.
//
// HandleNumbers gives numbers out, from one counter per type for the whole process. A step or a
// namespace takes one number. A HandleTable, used for sequences and leases, takes ranges of as many
// numbers as it has entries, each starting at a multiple of that count. So the low bits of a handle
// name its entry, and one load and one comparison find the record or reject any other value.
//
// Entries are reused in the order in which they became free, and there are at least twice as many
// as records. So an entry is reused only after half of the entries were taken, and a range serves
// at least half as many records as it has numbers. Only the 56 bits can run out: one factor of two
// is lost here and another where ranges of two sizes are aligned, so of the 2^55 numbers after a
// random start 2^53 sequences remain, 285 years at a million sequences per second. Steps have all
// 2^56.
//
// Threads: HandleNumbers any; HandleTable none, Cache holds its lock.
#pragma once

#include <atomic>

#include "core/base/host_memory.hpp"
#include "core/base/test_limits.hpp"

namespace quire {

enum class HandleType : uint8_t { sequence = 1, step = 2, name_space = 3, lease = 4, handover = 5 };

inline uint64_t make_handle(HandleType type, uint64_t number) {
    return uint64_t{static_cast<uint8_t>(type)} << 56 | number;
}

class HandleNumbers {
 public:
    static constexpr uint64_t kEnd = uint64_t{1} << 56;
    // The end of the numbers: kEnd, except in a test that must reach it.
    static uint64_t end() { return uint64_t{1} << test_limits.handle_bits; }

    explicit HandleNumbers(uint64_t first) : next_(first) {}

    // The first of `count` numbers, a multiple of `count`; 0: none are left. REQUIRES: count is a
    // power of two.
    uint64_t take(uint64_t count) {
        uint64_t at = next_.load(std::memory_order_relaxed);
        for (;;) {
            uint64_t first = (at + count - 1) & ~(count - 1);
            if (first + count > end()) return 0;
            if (next_.compare_exchange_weak(at, first + count, std::memory_order_relaxed))
                return first;
        }
    }
    // Continues from `first` if no number has been taken yet; uses only the low 55 bits of it.
    void start_at(uint64_t first) {
        uint64_t untouched = 1;
        next_.compare_exchange_strong(untouched, (first & (end() / 2 - 1)) | 1);
    }

 private:
    std::atomic<uint64_t> next_;
};

// The counters of the process. Sequence numbers start where the first cache's seed says, so that
// handles that a follower received from another process are practically never equal to handles made
// here.
inline HandleNumbers g_sequence_numbers{1};
inline HandleNumbers g_step_numbers{1};
inline HandleNumbers g_namespace_numbers{1};
inline HandleNumbers g_handover_numbers{1};

class HandleTable {
 public:
    static constexpr uint32_t kNone = 0xFFFFFFFF;
    static constexpr uint32_t kLeastEntries = 65536;

    HandleTable(const HostAllocator *host, HandleType type, HandleNumbers *numbers)
        : entries_(host), handles_(host), free_(host), type_(type), numbers_(numbers) {}

    // capacity: records alive at once, at most 2^30.
    [[nodiscard]] bool create(uint32_t capacity) {
        uint64_t entry_count = next_power_of_two(uint64_t{capacity} * 2);
        if (entry_count < kLeastEntries) entry_count = kLeastEntries;
        if (!entries_.create(entry_count) || !handles_.create(capacity) || !free_.create(capacity))
            return false;
        mask_ = entry_count - 1;
        // Lowest index first, as a person reading a log would expect.
        for (uint32_t i = 0; i < capacity; ++i) free_[i] = capacity - 1 - i;
        for (Entry &entry : entries_) entry = Entry{0, kNone, kNone};
        return true;
    }

    uint32_t capacity() const { return static_cast<uint32_t>(handles_.size()); }
    uint32_t live() const { return live_; }
    // True if as many records are live as there may be, or no further record can ever be made.
    bool full() const { return free_.empty() || worn_out_; }
    // True if no further record can ever be made.
    bool worn_out() const { return worn_out_; }

    // The index of a new record; kNone if all are live or no number is left.
    uint32_t take() { return take(type_); }
    // The same for a record that only find_other() finds, under a handle of another type.
    uint32_t take(HandleType type) {
        if (free_.empty()) return kNone;
        bool is_unused = first_unused_ <= mask_;
        uint32_t at = is_unused ? first_unused_ : first_free_;
        Entry &entry = entries_[at];
        if (base_ == 0 || (entry.handle != 0 && base_of(entry.handle) == base_)) {
            uint64_t base = numbers_->take(mask_ + 1);
            if (base == 0) {
                worn_out_ = true;
                return kNone;
            }
            base_ = base;
        }
        if (is_unused) {
            ++first_unused_;
        } else {
            first_free_ = entry.next;
            if (first_free_ == kNone) last_free_ = kNone;
        }
        uint32_t index = free_[free_.size() - 1];
        free_.shrink(free_.size() - 1);
        handles_[index] = make_handle(type, base_ + at);
        entry = named(index, handles_[index]);
        ++live_;
        return index;
    }

    void end(uint32_t index) {
        QUIRE_ASSERT(is_live(index));
        uint32_t at = static_cast<uint32_t>(handles_[index] & mask_);
        entries_[at] = Entry{of_own_type(handles_[index]), kNone, kNone};
        (last_free_ != kNone ? entries_[last_free_].next : first_free_) = at;
        last_free_ = at;
        handles_[index] = 0;
        free_.push(index);
        --live_;
    }

    // Makes the record `index` live under a handle that another process's table gave out. For a
    // table on which neither take() nor end() is ever called. REQUIRES: could_be(handle), and the
    // record is not live.
    void give(uint32_t index, uint64_t handle_value) {
        entries_[handle_value & mask_] = named(index, handle_value);
        handles_[index] = handle_value;
        ++live_;
    }
    void abandon(uint32_t index) {
        Entry &entry = entries_[handles_[index] & mask_];
        if (entry.handle == handles_[index])  // else the entry was taken again
            entry = Entry{of_own_type(entry.handle), kNone, kNone};
        handles_[index] = 0;
        --live_;
    }
    // True if it could be the handle of a live record of some table of this capacity; other: the
    // second type that the table has.
    bool could_be(uint64_t handle_value, HandleType other) const {
        bool is_own = is_of(handle_value, type_);
        return (is_own || is_of(handle_value, other)) && base_of(handle_value) != 0;
    }

    bool is_live(uint32_t index) const { return index < handles_.size() && handles_[index] != 0; }

    // 0 for a record that is not live.
    uint64_t handle(uint32_t index) const { return handles_[index]; }

    // The record's index, or kNone if the handle is not live.
    uint32_t find(uint64_t handle_value) const {
        const Entry &entry = entries_[handle_value & mask_];
        return entry.handle == handle_value ? entry.index : kNone;
    }
    // The same for records of the other type, which find() does not see.
    uint32_t find_other(uint64_t handle_value) const {
        const Entry &entry = entries_[handle_value & mask_];
        return entry.handle == handle_value && !is_of(handle_value, type_) ? entry.next : kNone;
    }
    uint32_t find_any(uint64_t handle_value) const {
        uint32_t index = find(handle_value);
        return index != kNone ? index : find_other(handle_value);
    }
    static bool is_of(uint64_t handle_value, HandleType type) {
        return handle_value >> 56 == static_cast<uint8_t>(type);
    }

 private:
    struct Entry {
        uint64_t handle;  // the last one; of the table's own type once it was ended; 0: none yet
        uint32_t index;   // of the record; kNone: the handle was ended, or is of another type
        uint32_t next;    // free entry; while a handle of another type is live, its record
    };

    Entry named(uint32_t index, uint64_t handle_value) const {
        if (is_of(handle_value, type_)) [[likely]]
            return Entry{handle_value, index, kNone};
        return Entry{handle_value, kNone, index};
    }
    uint64_t of_own_type(uint64_t handle_value) const {
        return make_handle(type_, handle_value & (HandleNumbers::kEnd - 1));
    }

    // The first number of the handle's range.
    uint64_t base_of(uint64_t handle_value) const {
        return handle_value & (HandleNumbers::kEnd - 1) & ~mask_;
    }

    Array<Entry> entries_;
    Array<uint64_t> handles_;  // of the records
    Array<uint32_t> free_;     // records, the next one last
    HandleType type_;
    HandleNumbers *numbers_;
    uint64_t mask_ = 0;
    uint64_t base_ = 0;          // of the range in use; 0: none yet
    uint32_t first_unused_ = 0;  // entries from here on were never used
    uint32_t first_free_ = kNone;
    uint32_t last_free_ = kNone;
    uint32_t live_ = 0;
    bool worn_out_ = false;
};

}  // namespace quire
