// SPDX-License-Identifier: Apache-2.0
//
// lease_runs: runs of tokens and slots of 64 bits, as engines keep them, that leases find and
// insert in one call, final at once.
//
// Why apart from lease_prefixes: what belongs to no step needs no record, cannot be undone, and so
// is checked whole before anything changes.
//
// Ownership: refers to the books and to the parts below it; owns scratch for tokens and blocks.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/lease_prefixes.hpp"

namespace quire {

// A run of tokens from the root on, and the slot of each: token s % block_tokens of block
// s / block_tokens.
struct SlotRun {
    const int64_t *tokens;
    const int64_t *slots;  // only to insert
    uint32_t token_count;
    int32_t *named;  // [blocks] receives what is found from now on
};

class LeaseRuns {
 public:
    LeaseRuns(CacheBooks *books, Tenants *tenants, Prefixes *prefixes, Leases *leases,
              LeasePrefixes *found)
        : books_(*books),
          tenants_(*tenants),
          prefixes_(*prefixes),
          leases_(*leases),
          found_(*found),
          tokens_(&books->host),
          blocks_(&books->host),
          found_blocks_(&books->host) {}

    Status find(uint64_t handle, uint32_t how, const SlotRun &run, quire_lease_result *result);
    Status insert(uint64_t handle, const SlotRun &run, quire_lease_result *result);

 private:
    Status narrow(const SlotRun &run);
    bool is_plain() const;
    Status look_up(uint32_t lease, Lookup *found);
    void read_found(const Lookup &found, uint32_t *out) const;
    Status check_cache(uint32_t token_count) const;
    Status read_slots(const SlotRun &run);
    Status check_blocks(uint32_t lease, const Lookup &found);
    Status insert_blocks(uint32_t lease, const SlotRun &run, quire_lease_result *result);
    bool may_insert(uint32_t lease, uint32_t block) const;
    void name_new(uint32_t lease, const Lookup &found);
    void let_go(uint32_t lease, const Lookup &found);

    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
    Leases &leases_;
    LeasePrefixes &found_;
    Array<quire_token> tokens_;  // of the run that was narrowed last
    Array<uint32_t> blocks_;     // of the run that is inserted
    Array<uint32_t> found_blocks_;
};

}  // namespace quire
