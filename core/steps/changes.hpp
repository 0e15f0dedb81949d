// SPDX-License-Identifier: Apache-2.0
//
// changes: the items and victims of the open step, and how to take them back.
//
// Ownership: refers to the books and to Tenants; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/tenants.hpp"

namespace quire {

class Changes {
 public:
    Changes(CacheBooks *books, Tenants *tenants) : books_(*books), tenants_(*tenants) {}

    // Undoes a change; the record keeps its place. Does nothing for one that was dropped.
    void undo(StepRecord *record, Change *change);
    // Undoes the newest changes down to the first `keep`, and removes them from the record.
    void undo_to(StepRecord *record, uint64_t keep);
    // Marks the changes that `first` dooms. False if one of them is a preemption.
    bool mark_doomed(StepRecord *record, uint32_t first);

 private:
    CacheBooks &books_;
    Tenants &tenants_;
};

}  // namespace quire
