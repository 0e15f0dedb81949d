// SPDX-License-Identifier: Apache-2.0
//
// follower: what a follower keeps besides its sequences and tables: which leader it follows, the
// last log that it applied, the digest, and how many table entries name each block.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/journal.hpp"
#include "core/replica/log.hpp"

namespace quire {

// The state that a sequence will have under the log that is being checked.
struct FollowedSequence {
    uint64_t round;     // the check that set the other fields
    uint32_t computed;  // 0 when it ended
    uint32_t longest;   // table, in blocks
    uint32_t cross_tokens;
    uint32_t first_written = kNone;  // where the log's row of it begins; kNone: it has none
};

class Follower {
 public:
    explicit Follower(const HostAllocator *host) : sequences_(host) {
        for (Array<uint32_t> &refs : refs_) refs.bind(host);
        for (Array<uint32_t> &refs : host_refs_) refs.bind(host);
    }

    Status create(uint64_t geometry_digest, const Geometry &geometry, uint32_t max_sequences);
    bool active() const { return active_; }

    // Succeeds if this is the next log of the leader that is followed.
    Status check_header(const LogHeader &header) const;
    // No log is applied any more; every later call fails with `why`.
    void stop(const Status &why) { stopped_ = why; }
    const Status &stopped() const { return stopped_; }

    // Begins the check of a log: no sequence has been seen in it yet.
    void begin_check() { ++round_; }
    bool seen(uint32_t index) const { return sequences_[index].round == round_; }
    void see(uint32_t index, FollowedSequence made) {
        made.round = round_;
        sequences_[index] = made;
    }
    const FollowedSequence &at(uint32_t index) const { return sequences_[index]; }
    // The log has a row of the sequence, which begins at this position. REQUIRES: seen().
    void note_row(uint32_t index, uint32_t first_position) {
        uint32_t &first = sequences_[index].first_written;
        if (first_position < first) first = first_position;
    }

    // Adds a change to the block counts and to the digest's sum, or takes it out again.
    void count(const SequenceChange &change);
    void uncount(const SequenceChange &change);
    uint64_t digest() const;
    void applied(const LogHeader &header);
    uint64_t leader() const { return leader_; }  // 0: no log was applied

    // [pool][block] how many table entries name it; groups that share a pool count in the first.
    const Array<uint32_t> *refs() const { return refs_; }
    const uint32_t *held() const { return held_; }
    const uint32_t *host_held() const { return host_held_; }
    uint64_t sum() const { return sum_; }

 private:
    friend class CacheDump;

    void add(bool swapped, uint32_t group, uint32_t id);
    void remove(bool swapped, uint32_t group, uint32_t id);
    uint32_t pool_of(uint32_t group) const { return pool_count_ == 1 ? 0 : group; }

    bool active_ = false;
    uint32_t group_count_ = 0;
    uint32_t pool_count_ = 0;
    uint64_t geometry_ = 0;
    uint64_t leader_ = 0;
    uint64_t number_ = 0;  // of the last log
    uint64_t sum_ = 0;
    uint64_t round_ = 0;
    Status stopped_{};
    Array<FollowedSequence> sequences_;
    Array<uint32_t> refs_[kMaxGroups];
    Array<uint32_t> host_refs_[kMaxGroups];
    uint32_t held_[kMaxGroups] = {};
    uint32_t host_held_[kMaxGroups] = {};
};

}  // namespace quire
