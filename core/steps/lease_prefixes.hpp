// SPDX-License-Identifier: Apache-2.0
//
// lease_prefixes: what leases find and publish in the prefix tree, and what is withdrawn from it by
// block ids.
//
// A publisher's caller is trusted for the content of its blocks, and for nothing else: tokens are
// compared with those of every node on the way, and a node is made only below nodes whose blocks
// the lease holds.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/leases.hpp"

namespace quire {

// The tokens of a run from the root on, and its blocks, place by place: those of the tree's nodes.
struct LeaseRun {
    const quire_token *tokens;
    uint32_t token_count;
    const int32_t *ids;  // what the caller has; only to publish
    int32_t *named;      // what is found or named
};

class LeasePrefixes {
 public:
    LeasePrefixes(CacheBooks *books, Tenants *tenants, Prefixes *prefixes, Leases *leases)
        : books_(*books), tenants_(*tenants), prefixes_(*prefixes), leases_(*leases) {}

    // step: 0 if `how` pins nothing.
    Status match(uint64_t step, uint64_t handle, uint32_t how, const LeaseRun &run,
                 quire_lease_result *result);
    Status publish(uint64_t step, uint64_t handle, const LeaseRun &run, quire_lease_result *result);
    Status forget(uint64_t handle, uint32_t group, const int32_t *ids, uint32_t count,
                  uint32_t *forgotten);
    Status evict(uint32_t group, uint32_t count, int32_t *ids, uint32_t *evicted);

 private:
    // A block of a place: one per group, or several where it is smaller than the place.
    struct Entry {
        uint32_t group;
        uint32_t in_group;  // among the group's of the place
        uint32_t number;    // among all of the place
    };
    // Calls body(entry) for each, in the order of the ids of a run.
    template <typename Body>
    void each_entry(Body body) const {
        uint32_t number = 0;
        for (uint32_t g = 0; g < books_.geometry.group_count; ++g) {
            const uint32_t count = books_.geometry.groups[g].per_span;
            for (uint32_t k = 0; k < count; ++k) body(Entry{g, k, number++});
        }
    }
    uint32_t entry_count() const { return books_.journal.tree().entry_count(); }

    // Pinning a match takes so much of one pool.
    struct Need {
        uint32_t promoted;     // blocks of the host tier
        uint32_t from_cached;  // that the step could get otherwise
    };

    Status check_tokens(const LeaseRun &run) const;
    Status find(uint64_t queue, uint32_t lease, const LeaseRun &run, Lookup *found);
    uint32_t found_block(const Lookup &found, uint32_t hits, uint32_t place,
                         const Entry &entry) const;
    void touch(const Lookup &found, uint32_t hits);
    // needs: [pools]
    void measure(const Lookup &found, uint32_t hits, uint64_t barrier, Need *needs) const;
    void check_room(const Lookup &found, uint32_t hits, const StepRecord &record,
                    quire_lease_result *result, uint64_t *promoted) const;
    void pin_found(const Lookup &found, uint32_t hits, uint32_t lease, int32_t *ids);
    Status pin(StepRecord *record, uint32_t lease, const Lookup &found, uint32_t hits,
               const LeaseRun &run, quire_lease_result *result);

    Status match_blocks(StepRecord *record, uint32_t lease, uint32_t how, const LeaseRun &run,
                        quire_lease_result *result);

    bool may_adopt(uint32_t lease, uint32_t group, uint32_t block) const;
    bool lacks_block(const Lookup &found, uint32_t place, const Entry &entry) const;
    Status check_id(uint32_t lease, const Lookup &found, uint32_t place, const Entry &entry,
                    int32_t id);
    Status check_ids(uint32_t lease, const Lookup &found, const LeaseRun &run);
    Status check_end(uint32_t lease, const Lookup &found, const LeaseRun &run);
    uint64_t count_extra(uint32_t lease, const Lookup &found, const LeaseRun &run) const;
    void name_place(uint32_t lease, uint32_t node, const Content &content, const int32_t *ids,
                    int32_t *named);
    bool is_held_elsewhere(uint32_t lease, uint32_t node) const;

    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
    Leases &leases_;
};

}  // namespace quire
