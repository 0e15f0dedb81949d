// SPDX-License-Identifier: Apache-2.0
//
// follower_cache: a following cache: it applies the logs of a leader and decides nothing itself.
//
// A log is read several times. It is checked completely, then counted, so that a digest that does
// not match is found before anything is applied. Then memory is reserved, and then the log is
// applied; from there on only the device can fail.
//
// Ownership: refers to the books, to Runs and to the tier, which takes a log's orders; owns what
// the follower counts. Its pools hold nothing: the tables name the blocks that the leader chose.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/replica/log_check.hpp"
#include "core/steps/runs.hpp"

namespace quire {

class FollowerCache {
 public:
    FollowerCache(CacheBooks *books, Runs *runs, OrderTaker *orders)
        : books_(*books),
          runs_(*runs),
          orders_(*orders),
          follower_(&books->host),
          log_check_(books, &follower_, orders) {}
    // Makes the cache a follower.
    Status create(uint64_t geometry_digest, uint32_t max_sequences) {
        return follower_.create(geometry_digest, books_.geometry, max_sequences);
    }
    bool active() const { return follower_.active(); }
    const Follower &follower() const { return follower_; }

    Status apply_log(const uint8_t *bytes, uint64_t size_bytes, const StepOptions &options,
                     Batch *batch, uint64_t *out, quire_error *error);
    Status finish(uint64_t step, const quire_native *native, uint32_t outcome, quire_error *error);
    Status poll(quire_error *error);
    // The tables, counted anew, must give what was counted change by change.
    Status check();

 private:
    Status check_digest(const LogReader &log);
    Status reserve(const LogReader &log, StepRecord *record);
    Status order_after(const StepRecord &record, uint32_t order, quire_error *error);
    void apply_end(uint32_t index);
    void apply_change(const SequenceChange &change);
    void apply(const LogReader &log, StepRecord *record, Batch *batch);
    void apply_orders(const LogReader &log, uint64_t step);
    void note_overwritten(const LogReader &log);
    void note_computed(const LogReader &log);
    void stop(const Status &why);
    Status commit(StepRecord *record, Batch *batch, quire_error *error);
    void fail_step(StepRecord *record);

    CacheBooks &books_;
    Runs &runs_;
    OrderTaker &orders_;
    Follower follower_;
    LogCheck log_check_;
};

}  // namespace quire
