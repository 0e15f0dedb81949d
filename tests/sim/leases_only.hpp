// SPDX-License-Identifier: Apache-2.0
//
// leases_only: the rules of a cache with QUIRE_CACHE_LEASES_ONLY, which has leases and no
// sequences. World tells it of each call on a lease, and it judges what the call did by a tree of
// its own (lease_tree.hpp).
//
// Threads: none; its world's.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lease_tree.hpp"
#include "world.hpp"

namespace sim {

class LeasesOnly {
 public:
    LeasesOnly(World &world, const quire_cache_desc &desc);

    // The cache before a call.
    struct Before {
        bool exact = false;  // nothing but the tree decides what can be evicted
        std::set<int32_t> cached;
        uint64_t free = 0;
        uint64_t evictions = 0;
        uint32_t blocks = 0;
    };
    Before look();
    const LeaseTree &tree() const { return tree_; }
    std::set<int32_t> cached() const;
    // The blocks that the first places of the run have, as many as are found.
    std::vector<int32_t> find(const Sequence &run, uint32_t places) const;
    // Blocks that are published in the tenant's namespace, and found.
    std::vector<int32_t> published(uint32_t tenant) const;
    // A block that the lease may not insert, for the reason `why`; 0: there is no such one now.
    int32_t not_to_insert(const Lease &lease, uint32_t why);

    void judge_room(const Lease &lease, quire_status status, const quire_lease_result &result,
                    uint64_t needed, uint64_t taken, const Before &before);
    void judge_found(const Lease &lease, const Sequence &run, uint32_t places, const int32_t *ids,
                     uint32_t found);
    void taken(const std::vector<int32_t> &ids, const Before &before);
    // in_order: the first of them is evicted first.
    void given(const std::vector<int32_t> &ids, bool in_order);
    void touched(const int32_t *ids, uint32_t count);
    void inserted(const Lease &lease, const Sequence &run, const std::vector<int32_t> &named,
                  uint32_t cached);
    void aborted();
    void committed(const Step &step);
    void evicted(const std::vector<int32_t> &ids, uint32_t asked, const Before &before);
    void forgotten(const Lease &lease, const std::vector<int32_t> &ids, uint32_t count);
    void destroyed(uint32_t tenant);
    void reset() { tree_.clear(); }
    // To a pool of `blocks`.
    void moved(const std::vector<quire_block_move> &moves, uint64_t dropped, const Before &before,
               uint32_t blocks);
    void audit();
    void close();
    bool unserved(const Op &op);

 private:
    void check_refusals(const quire_cache_desc &good);
    bool is_leased(int32_t block) const;
    bool is_others(const Lease &lease, int32_t block) const;
    std::vector<std::vector<Content>> places_of(const Sequence &run, uint32_t places) const;
    void judge_lru(const std::set<int32_t> &gone, const Before &before);
    uint64_t held_by(uint32_t ns) const;
    quire_cache_stats stats();

    World &w_;
    LeaseTree tree_;
};

}  // namespace sim
