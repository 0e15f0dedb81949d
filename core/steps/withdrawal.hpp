// SPDX-License-Identifier: Apache-2.0
//
// withdrawal: what stops being findable: because its engine says so, because a step failed, or
// because the prefix tree's nodes run short.
//
// Ownership: refers to the books and to Prefixes; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/prefixes.hpp"

namespace quire {

class Withdrawal {
 public:
    Withdrawal(CacheBooks *books, Prefixes *prefixes) : books_(*books), prefixes_(*prefixes) {}

    // Forgets the nodes on the path of the sequence's tokens that no other sequence uses, including
    // those whose blocks it gave back because they were past its window, swapped or preempted.
    Status drop_published(uint32_t sequence);
    // A published tail is copied before more is written to it. If the sequence holds every block of
    // the pool, no block for the copy would ever come free: so the tail is withdrawn and written in
    // place.
    void unpublish_tail(uint32_t sequence);
    // Withdraws published blocks whose content depends on the step, no matter when they were
    // published and by which sequence.
    void withdraw_published(uint64_t step);
    // Forgets all cached content; what is computed so far is not published any more.
    void forget_all();
    // Makes sure, before the next step can open, that as many nodes are free as it may publish.
    void make_node_room();

 private:
    bool drop_found(uint32_t sequence, const Lookup &found);
    uint32_t published_tail(uint32_t sequence, uint32_t group) const;
    bool used_by_others(uint32_t sequence, uint32_t index, uint32_t node) const;
    void drop_unreachable(uint32_t sequence, uint32_t first);
    uint32_t pinned_nodes(uint32_t sequence) const;
    template <typename Body>
    void each_published(Body body);
    void silence(uint32_t sequence);
    void silence_longest(uint64_t wanted, uint32_t spared);

    CacheBooks &books_;
    Prefixes &prefixes_;
};

}  // namespace quire
