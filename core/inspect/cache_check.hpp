// SPDX-License-Identifier: Apache-2.0
//
// cache_check: proves that a cache's books are true, one function per invariant.
//
//   cache_check.cpp    who holds a block, who may write it, until when work may touch it
//   content_check.cpp  what is in a block: tokens, keys, tenant, and the steps that it depends on
//   order_check.cpp    which unfinished steps conflict, in a cache that is audited
//
// The pools and the tree prove what they alone can see (BlockPool::check, PrefixTree::check). This
// unit compares what several parts say about the same thing. A finding names the block, the
// sequence and the step, with both numbers.
//
// Cost: O(blocks + table entries + known tokens), and 24 host bytes per block while it runs.
//
// Threads: none; Cache holds its lock. Changes nothing of the cache.
#pragma once

#include "core/parts/cache_parts.hpp"

namespace quire {

class CacheCheck {
 public:
    // error: receives the words of a finding.
    CacheCheck(CacheParts *parts, quire_error *error);

    // Errors  QUIRE_E_INTERNAL     an invariant is broken.
    //         QUIRE_E_HOST_MEMORY  there is no room for the counts.
    Status run();

 private:
    // The tables' view of one block.
    struct Named {
        uint32_t count;      // entries that name it
        uint32_t sequence;   // the last sequence among those
        uint32_t by_owner;   // 1: the table of its owner is one of them
        uint32_t group;      // whose table named it first
        uint64_t last_step;  // the latest step that any of their sequences ran in
    };

    [[gnu::format(printf, 2, 3)]] Status wrong(const char *format, ...) const;

    // cache_check.cpp
    Status check_steps() const;
    Status check_changes() const;
    bool is_change_of(uint32_t sequence, uint64_t change) const;
    Status check_lease(uint32_t index) const;
    Status check_sequence(uint32_t index) const;
    Status check_table(uint32_t index, uint32_t group) const;
    Status check_sequences() const;
    void count_edits();
    Status count_names();
    Status check_loads() const;
    Status check_load(const Load &load, uint32_t slot) const;
    Status name_block(const Sequence &s, uint32_t index, uint32_t group, uint32_t block);
    Status check_references(uint32_t pool_number) const;
    Status check_host_references(uint32_t pool_number) const;
    Status check_owners(uint32_t pool_number) const;
    Status check_frozen(uint32_t index, uint32_t group) const;
    Status check_tail(uint32_t index, uint32_t group) const;
    Status check_item(const Change &change, uint32_t group) const;
    Status check_items() const;
    Status check_touched(bool is_host, uint32_t group, uint32_t block, uint64_t step,
                         const char *how) const;
    Status check_copies(const StepRecord &record) const;
    Status check_namespaces() const;
    void count_returned() const;
    Status check_quotas() const;

    // content_check.cpp
    Status check_tokens(uint32_t index, uint32_t group);
    Status check_scopes();
    Status check_tenants(uint32_t pool_number) const;
    Status check_published(const BlockPool &pool) const;
    Status check_failed(const BlockPool &pool, uint64_t step) const;
    Status check_dependence(uint32_t index, uint32_t group) const;
    Status check_failures() const;

    // order_check.cpp
    uint32_t steps_before(uint64_t step) const;
    bool collide(const Seen &a, const Seen &b) const;
    Status check_collisions(Array<Seen> *all) const;
    Status check_witness() const;

    bool is_live(uint32_t index) const { return books_.handles.is_live(index); }
    bool is_swapped(const Sequence &s) const { return (s.state.flags & Sequence::kSwapped) != 0; }
    // True if work of the step may still run.
    bool may_run(uint64_t step) const { return !books_.timeline.has_run(step); }
    uint32_t pool_of(uint32_t group) const { return books_.geometry.pool_of(group); }
    const BlockSize &size_of(uint32_t group) const { return books_.geometry.groups[group].size; }
    // Calls visit(index) for each live sequence until one call fails.
    template <typename Visit>
    Status each_sequence(Visit visit) const {
        for (uint32_t i = 0; i < books_.sequences.size(); ++i) {
            if (is_live(i)) QUIRE_TRY(visit(i));
        }
        return Status{};
    }

    CacheParts &parts_;
    CacheBooks &books_;
    quire_error *error_;
    Array<Named> named_[kMaxGroups];  // by pool
    Array<Named> host_named_[kMaxGroups];
};

}  // namespace quire
