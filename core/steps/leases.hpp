// SPDX-License-Identifier: Apache-2.0
//
// leases: who holds blocks without being a sequence: create, end, list, take, give, pin.
//
// A lease is a sequence without tokens (Sequence::is_lease), so that pools, quotas, undo, logs and
// moves treat its tables as any other's. Each call that changes what it holds is one change of the
// open step, which cannot be dropped by itself: an item that it rests on is not dropped either.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/changes.hpp"
#include "core/steps/sequences.hpp"
#include "quire/lease.h"

namespace quire {

class Leases {
 public:
    Leases(CacheBooks *books, Tenants *tenants, Changes *changes, Sequences *sequences)
        : books_(*books),
          tenants_(*tenants),
          changes_(*changes),
          sequences_(*sequences),
          leaves_(&books->host) {}

    Status create(const quire_lease_desc &desc, const quire_key *keys, uint64_t *out);
    Status end(uint64_t handle);
    Status info(uint64_t handle, quire_lease_info *out) const;
    Status blocks(uint64_t handle, uint32_t group, uint32_t first, uint8_t *out, uint32_t capacity,
                  uint32_t stride, uint32_t *count) const;

    Status take(uint64_t step, uint64_t handle, uint32_t group, uint32_t count, int32_t *ids,
                quire_lease_result *result);
    // step: 0 here and in pin(): final at once.
    Status give(uint64_t step, uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count);
    Status pin(uint64_t step, uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count,
               quire_lease_result *result);

    // For calls of LeasePrefixes and LeaseRuns too.
    // Finds a lease that changes without a step. None may be open, which could be undone.
    Status find_at_rest(uint64_t handle, uint32_t *lease) const;
    // Finds the open step and the lease, which the step may change.
    Status find(uint64_t step, uint64_t handle, StepRecord **record, uint32_t *lease) const;
    Status check_group(uint32_t group) const;
    // True if the lease may hold the block: it does, or its namespace has published it.
    bool may_hold(uint32_t lease, uint32_t group, uint32_t block) const;
    // The lease holds the block once more. REQUIRES: may_hold(), and room for it.
    void hold(uint32_t lease, uint32_t group, uint32_t block);
    // Room for hold().
    static constexpr Room kHoldRoom = Journal::kHold + Journal::kAddRef;
    // Makes room for one change that writes so much.
    Status reserve(uint32_t lease, uint64_t blocks, Room room);
    // The same, after which it holds what nodes of the prefix tree name.
    Status reserve_places(uint32_t lease, uint64_t nodes, Room room);
    // Between these two, the journal's changes belong to one change of the lease.
    Change *open_change(StepRecord *record, uint32_t lease);
    void close_change(StepRecord *record, uint32_t lease);
    // The same, after which the lease holds `blocks` more times; takes the change back if the
    // namespace then holds more than its quota.
    Status close_within_quota(StepRecord *record, uint32_t lease, uint32_t blocks,
                              quire_lease_result *result);
    // False: the namespace's quota lacks room for `more` blocks; *result says how much.
    bool fits_quota(uint32_t lease, uint64_t more, quire_lease_result *result) const;
    // Takes the newest change back.
    void undo_newest(StepRecord *record) { changes_.undo_to(record, record->changes.size() - 1); }

 private:
    Status give_at_once(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count);
    Status pin_at_once(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count,
                       quire_lease_result *result);
    Status refuse(StepRecord *record, uint32_t lease, uint32_t at, int32_t id, const char *why);

    CacheBooks &books_;
    Tenants &tenants_;
    Changes &changes_;
    Sequences &sequences_;
    Array<uint8_t> leaves_;  // of the ids that are given: whether that is the last hold of a block
};

}  // namespace quire
