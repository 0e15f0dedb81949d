// SPDX-License-Identifier: Apache-2.0

#include "core/steps/changes.hpp"

namespace quire {

void Changes::undo(StepRecord *record, Change *change) {
    if (change->kind == ChangeKind::dropped) return;
    Sequence &s = books_.sequences[change->sequence];
    if (change->kind == ChangeKind::item) --record->rows;
    tenants_.settle_returned(*change);
    uint32_t charged_before = s.charged();
    books_.journal.undo(record, *change, &s);
    s.state = change->before;
    s.change = change->previous;
    change->kind = ChangeKind::dropped;
    if (change->load != nullptr) change->load->is_taken = false;
    change->load = nullptr;
    change->edit_end = change->first_edit;
    tenants_.charge(s, charged_before);
}

void Changes::undo_to(StepRecord *record, uint64_t keep) {
    while (record->changes.size() > keep) {
        Change &last = *(record->changes.end() - 1);
        if (last.kind == ChangeKind::victim) {
            record->preemptions.shrink(record->preemptions.size() - 1);
        }
        bool dropped = last.kind == ChangeKind::dropped;
        uint32_t first_edit = last.first_edit, first_copy = last.first_copy;
        uint64_t mask_at = last.mask_at;
        undo(record, &last);
        record->changes.shrink(record->changes.size() - 1);
        if (dropped) continue;
        record->edits.shrink(first_edit);
        record->copies.shrink(first_copy);
        record->mask_words.shrink(mask_at);
    }
}

bool Changes::mark_doomed(StepRecord *record, uint32_t first) {
    bool possible = true;
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        Change &change = record->changes[i];
        if (change.kind == ChangeKind::dropped) continue;
        change.doomed = i == first || books_.journal.rests_on_doomed(*record, change);
        if (!change.doomed) continue;
        books_.journal.mark_doomed(*record, change, true);
        possible = possible && change.kind == ChangeKind::item;
    }
    for (uint64_t i = first; i < record->changes.size(); ++i) {
        const Change &change = record->changes[i];
        if (change.doomed) books_.journal.mark_doomed(*record, change, false);
    }
    return possible;
}

}  // namespace quire
