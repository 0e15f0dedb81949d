// SPDX-License-Identifier: Apache-2.0

#include "core/steps/step_records.hpp"

namespace quire {

Status StepRecords::find(uint64_t handle, bool must_be_open, StepRecord **out) {
    for (StepRecord &record : records_) {
        if (record.handle != handle || handle == 0) continue;
        if (must_be_open && record.phase != StepPhase::open) {
            return fail(QUIRE_E_BUSY, "the step is committed: it can only be finished");
        }
        *out = &record;
        return Status{};
    }
    return fail(QUIRE_E_STALE, "no such step: it was finished or aborted");
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
