// SPDX-License-Identifier: Apache-2.0
//
// step_records: the records of the steps that are not done, one per ring index of the timeline, and
// which of them is open.
//
// Invariant: the open step's record is in phase `open`, and no other is.
//
// Ownership: owns the records; a pointer to one is valid until its step is done.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/device/shards.hpp"
#include "core/steps/step.hpp"

namespace quire {

class StepRecords {
 public:
    StepRecords(const HostAllocator *host, Shards *shards) : shards_(shards) {
        for (StepRecord &record : records_) record.bind(host);
    }

    StepRecord &operator[](uint32_t index) { return records_[index]; }
    const StepRecord &operator[](uint32_t index) const { return records_[index]; }
    StepRecord *begin() { return records_; }
    StepRecord *end() { return records_ + kMaxUnfinished; }
    const StepRecord *begin() const { return records_; }
    const StepRecord *end() const { return records_ + kMaxUnfinished; }

    bool is_open() const { return open_index_ != kNone; }
    // REQUIRES: is_open().
    StepRecord &open() { return records_[open_index_]; }
    const StepRecord &open() const { return records_[open_index_]; }
    void set_open(uint32_t index) { open_index_ = newest_ = index; }
    void set_closed() { open_index_ = kNone; }

    // Begins with the newest step, because engines name one of the last few: O(steps begun since).
    Status find(uint64_t handle, bool must_be_open, StepRecord **out) {
        *out = &records_[newest_];
        if ((*out)->handle != handle || handle == 0) QUIRE_TRY(find_older(handle, out));
        if (!must_be_open || (*out)->phase == StepPhase::open) [[likely]]
            return Status{};
        return fail(QUIRE_E_BUSY, "the step is committed: it can only be finished");
    }

    // Make room in the open step's record, for this much more of each, and for this many more words
    // of masks. All records grow together, so that each step finds the room that any earlier step
    // needed. False: no memory.
    [[nodiscard]] bool reserve(uint64_t changes, uint64_t edits, uint64_t copies,
                               uint64_t preemptions);
    [[nodiscard]] bool reserve_mask(uint64_t words);
    // For one change more, which is all that an item that stays in place needs.
    [[nodiscard]] bool reserve_change() {
        const Array<Change> &changes = open().changes;
        return changes.size() < changes.capacity() || reserve(1, 0, 0, 0);
    }

 private:
    Status find_older(uint64_t handle, StepRecord **out);

    Shards *shards_;
    StepRecord records_[kMaxUnfinished];
    uint32_t open_index_ = kNone;
    uint32_t newest_ = 0;  // the index that was opened last
};

}  // namespace quire
