// SPDX-License-Identifier: Apache-2.0
//
// log_check: whether a log can be applied to the state here. Its bytes may be anything.
//
// Ownership: refers to the books and to the Follower, in which it notes what each sequence will be.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/device/batch.hpp"
#include "core/replica/follower.hpp"
#include "core/replica/log_reader.hpp"
#include "core/steps/cache_books.hpp"

namespace quire {

class LogCheck {
 public:
    LogCheck(CacheBooks *books, Follower *follower, OrderTaker *orders)
        : books_(*books), follower_(*follower), orders_(*orders) {}

    // Checks every part by itself and against the state here; changes nothing in the books.
    Status check(const LogReader &log);
    // REQUIRES: check().
    Status check_batch(const LogReader &log, const Batch *batch) const;
    // Calls visit(change) for each sequence that ended or changed. REQUIRES: check().
    template <typename Visit>
    void each_change(const LogReader &log, Visit visit) const;

 private:
    LogSequence followed(uint32_t index) const;
    void read_change(const LogSequence &after, const TableChange *tables,
                     SequenceChange *change) const;
    SequenceChange read_end(uint32_t index) const;
    Status check_table(const SequenceChange &change, uint32_t group) const;
    Status check_sequence(const SequenceChange &change);
    Status check_copy(const quire_block_copy &copy) const;
    Status check_row(const LogRow &row, uint32_t mask_word_count);
    Status check_masks(const LogReader &log) const;
    Status check_orders(const LogReader &log);

    CacheBooks &books_;
    Follower &follower_;
    OrderTaker &orders_;
};

template <typename Visit>
void LogCheck::each_change(const LogReader &log, Visit visit) const {
    for (uint32_t i = 0; i < log.header().ended_count; ++i) visit(read_end(log.ended(i)));
    Status read =
        log.each_sequence([&](const LogSequence &after, const TableChange *tables) -> Status {
            SequenceChange change;
            read_change(after, tables, &change);
            visit(change);
            return Status{};
        });
    QUIRE_ASSERT(read.ok());
}

}  // namespace quire
