// SPDX-License-Identifier: Apache-2.0
//
// leader: what a leader remembers for its log: the state that it last sent to its followers, and
// the steps of its last logs.
//
// Why a copy of every table: a log holds what changed since the log before, and between two logs a
// table may shrink and grow again, or an index may be given to another sequence.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/replica/log.hpp"

namespace quire {

class Leader {
 public:
    Leader(const HostAllocator *host, BufferPool *buffers)
        : buffers_(buffers), logged_(host), tables_(host) {}
    ~Leader();

    // REQUIRES: called once.
    Status create(uint64_t identity, uint64_t geometry_digest, uint32_t max_sequences,
                  const Geometry &geometry);
    bool active() const { return active_; }
    uint64_t identity() const { return identity_; }

    // Adds to *size_bytes the most bytes that the log needs for the index, and makes room to
    // remember its tables. False: no memory.
    bool reserve(uint32_t index, bool alive, const BlockTable *tables, uint64_t *size_bytes);
    // Each writes what changed at an index, if anything did, and remembers it: write_ended() that
    // its sequence ended, write_changed() what its sequence is now. REQUIRES: reserve() made room.
    void write_ended(uint32_t index, bool alive, Array<uint8_t> *log, LogHeader *header);
    void write_changed(const LogSequence &now, const BlockTable *tables, Array<uint8_t> *log,
                       LogHeader *header);
    // Ends a log: fills in the header's number, identity and digests.
    void close(const uint32_t *held, const uint32_t *host_held, uint64_t step, LogHeader *header);

    // The step of the log `back` + 1 logs before the next one; 0: none.
    uint64_t step_before(uint32_t back) const {
        return back < number_ ? steps_[(number_ - back) % kLogOrderBits] : 0;
    }

 private:
    friend class CacheDump;

    void find_change(const LogSequence &now, const BlockTable *tables, SequenceChange *change);
    void remember(const SequenceChange &change);
    BlockTable *tables_of(uint32_t index) { return &tables_[uint64_t{index} * group_count_]; }

    BufferPool *buffers_;
    bool active_ = false;
    uint32_t group_count_ = 0;
    uint32_t kept_blocks_[kMaxGroups] = {};
    uint64_t identity_ = 0;
    uint64_t geometry_ = 0;
    uint64_t number_ = 0;  // of the last log
    uint64_t sum_ = 0;
    uint64_t steps_[kLogOrderBits] = {};  // of the last logs, by number
    Array<LogSequence> logged_;           // by index
    Array<BlockTable> tables_;            // [index][group]
};

}  // namespace quire
