// SPDX-License-Identifier: Apache-2.0
//
// steps: begin, add, drop, abort, commit and finish: the order in which a step's parts act.
//
// A commit has three parts, between which a cache that leads reserves and writes its log:
// prepare() and order(), which may fail, and commit(), in which only the device can.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/admission.hpp"
#include "core/steps/rollback.hpp"
#include "core/steps/runs.hpp"
#include "core/steps/witness.hpp"

namespace quire {

class Steps {
 public:
    Steps(CacheBooks *books, Tenants *tenants, Prefixes *prefixes, Changes *changes,
          Admission *admission, Runs *runs, Rollback *rollback, Witness *witness)
        : books_(*books),
          tenants_(*tenants),
          prefixes_(*prefixes),
          changes_(*changes),
          admission_(*admission),
          runs_(*runs),
          rollback_(*rollback),
          witness_(*witness) {}

    Status begin(const StepOptions &options, const ItemList &list, uint64_t *out,
                 quire_error *error);
    Status add(uint64_t step, const ItemList &list);
    Status drop(uint64_t step, uint64_t seq, uint64_t *dropped, uint32_t capacity, uint32_t *count);
    Status abort(uint64_t step);
    Status copies(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride, uint32_t *count);

    // Checks that the step can be committed into the batch, and reserves what the commit writes.
    Status prepare(StepRecord *record, Batch *batch, quire_error *error);
    // Makes the step's queues wait for what must come before it.
    Status order(StepRecord *record, quire_error *error);
    // Returns why the commit is refused; if a device was lost, the step has failed.
    Status refuse_commit(StepRecord *record, const Status &why, quire_error *error);
    // REQUIRES: order().
    Status commit(StepRecord *record, Batch *batch, quire_error *error);

    // native: a semaphore that the step's queue waits for first; nullptr or NONE for no wait.
    Status finish(uint64_t step, const quire_native *native, uint32_t outcome, quire_error *error);
    // Reads fences; steps whose work has run become done.
    Status poll(quire_error *error) {
        if (!books_.has_memory) return Status{};  // what is finished is done
        return poll_fences(error);
    }

 private:
    Status poll_fences(quire_error *error);
    void undo_step(StepRecord *record);
    void abandon(StepRecord *record);
    BatchNeed need_of(const StepRecord &record) const;
    Status check_batch(const StepRecord &record, Batch *batch) const;
    void pass_windows(const Change &change);
    void settle_load(const Change &change);
    void count_lookup(const Change &change, uint32_t name_space);
    void settle_changes(StepRecord *record, Batch *batch);
    void count_copies(const StepRecord &record);
    Status reserve(const StepRecord &record);
    void make_final(StepRecord *record, Batch *batch);

    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
    Changes &changes_;
    Admission &admission_;
    Runs &runs_;
    Rollback &rollback_;
    Witness &witness_;
};

}  // namespace quire
