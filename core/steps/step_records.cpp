// SPDX-License-Identifier: Apache-2.0

#include "core/steps/step_records.hpp"

namespace quire {

Status StepRecords::find_older(uint64_t handle, StepRecord **out) {
    for (uint32_t age = 1; age < kMaxUnfinished && handle != 0; ++age) {
        StepRecord &record = records_[(newest_ + kMaxUnfinished - age) % kMaxUnfinished];
        if (record.handle != handle) continue;
        *out = &record;
        return Status{};
    }
    return fail(QUIRE_E_STALE, handle != 0 ? "no such step: it was finished or aborted"
                                           : "step is 0: the call needs one, so begin it first");
}

bool StepRecords::reserve(uint64_t changes, uint64_t edits, uint64_t copies, uint64_t preemptions) {
    const StepRecord &now = open();
    changes += now.changes.size();
    edits += now.edits.size();
    copies += now.copies.size();
    preemptions += now.preemptions.size();
    if (now.has_room(changes, edits, copies, preemptions)) [[likely]]
        return true;
    // Comes first, because it is needed only where the records have to grow.
    if (!shards_->reserve(copies)) return false;
    for (StepRecord &record : records_) {
        bool grown = record.changes.reserve(changes) && record.edits.reserve(edits) &&
                     record.copies.reserve(copies) && record.preemptions.reserve(preemptions);
        if (!grown) return false;
    }
    return true;
}

bool StepRecords::reserve_mask(uint64_t words) {
    words += open().mask_words.size();
    if (open().mask_words.capacity() >= words) [[likely]]
        return true;
    for (StepRecord &record : records_) {
        if (!record.mask_words.reserve(words)) return false;
    }
    return true;
}

}  // namespace quire
