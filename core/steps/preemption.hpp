// SPDX-License-Identifier: Apache-2.0
//
// preemption: giving up blocks: the caller's choice or Quire's, by swap to the host tier or by
// recompute. It never measures: whoever needs blocks asks for one victim after another.
//
// A victim keeps its known tokens and comes back when it is added again. The blocks that it
// published stay cached until the room is needed, so a victim often finds its own prefix when it
// returns.
//
// Ownership: refers to the books and to Tenants; owns the heap of victims.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/pressure.hpp"
#include "core/steps/tenants.hpp"

namespace quire {

enum VictimScope { kOfAll, kOfNamespace };

class Preemption {
 public:
    Preemption(CacheBooks *books, Tenants *tenants)
        : books_(*books), tenants_(*tenants), victims_(&books->host) {}
    void create(const quire_cache_desc &desc);

    // Gathers the sequences that give way to this one. Called once for all victims of an item in a
    // scope: giving up one changes nothing about the others. False: no memory.
    [[nodiscard]] bool gather_victims(uint32_t sequence, VictimScope scope);
    // Gives up the next of them for `for_seq`. *given: false if there is none.
    Status give_up_next(uint64_t for_seq, bool *given);
    // True if the sequence's last step is on another queue than the open step's and its fence is
    // not enqueued yet. Then nothing in this step can wait for what that step writes.
    bool still_written_elsewhere(const Sequence &s) const;

    // Gives up a sequence of the caller's choice. *freed: blocks that the step can use in addition.
    Status preempt(uint64_t step, uint64_t seq, uint32_t how, uint32_t *freed);
    Status preempted(uint64_t step, uint8_t *out, uint32_t capacity, uint32_t stride,
                     uint32_t *count);
    uint32_t victim_order() const { return victim_order_; }

 private:
    Candidate candidate(const Sequence &s) const;
    bool may_be_victim(const Sequence &s) const;
    uint32_t next_victim();
    Status give_up(uint32_t sequence, uint32_t how, uint64_t for_seq);
    void note_given_up(uint32_t sequence, uint32_t how);
    bool host_has_room(uint32_t sequence) const;
    void swap_out(uint32_t sequence, uint32_t group);
    void drop_blocks(uint32_t sequence, uint32_t group);
    uint64_t held_bytes(uint32_t sequence) const;
    uint32_t usable_blocks() const;

    CacheBooks &books_;
    Tenants &tenants_;
    Array<Victim> victims_;
    uint32_t victim_order_ = 0;
    SwapCost swap_cost_{0, 0};
};

}  // namespace quire
