// SPDX-License-Identifier: Apache-2.0
//
// log_writer: the log of a leading cache: written at commit, after everything that can fail, and
// readable until finish.
//
// A step that a device refused at commit has no log; its changes to sequences are in the next log.
//
// Ownership: refers to the books; owns what the leader remembers. Does nothing in a cache that does
// not lead.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/replica/leader.hpp"
#include "core/steps/cache_books.hpp"

namespace quire {

class LogWriter {
 public:
    explicit LogWriter(CacheBooks *books)
        : books_(*books), leader_(&books->host, &books->journal.buffers()) {}
    // Makes the cache a leader.
    Status create(uint64_t identity, uint64_t geometry_digest, uint32_t max_sequences);
    bool active() const { return leader_.active(); }
    const Leader &leader() const { return leader_; }

    // Makes room for the step's log and for remembering what it says.
    Status reserve(StepRecord *record) {
        if (!leader_.active()) [[likely]]
            return Status{};
        return reserve_log(record);
    }
    // REQUIRES: reserve(), and since then only the changes that commit makes.
    void write(StepRecord *record);
    Status step_log(uint64_t step, void *buffer, uint64_t capacity, uint64_t *size_bytes);

 private:
    Status reserve_log(StepRecord *record);
    uint32_t log_order(const StepRecord &record) const;
    void write_rows(const StepRecord &record, Array<uint8_t> *log, LogHeader *header);
    uint64_t orders_bytes();
    void write_load(Load *load, Array<uint8_t> *log, LogHeader *header);
    void write_kept(const WriteOrder &kept, Array<uint8_t> *log, LogHeader *header);
    void write_orders(Array<uint8_t> *log, LogHeader *header);

    CacheBooks &books_;
    Leader leader_;
};

}  // namespace quire
