// SPDX-License-Identifier: Apache-2.0
//
// rollback: what is lost when a step failed.
//
// A failed step takes *computed* back in every sequence that it computed, and in those that shared
// or forked what depends on it: exactly the tokens that depend on it. A sequence notes from which
// position on it depends on which unfinished step. A published block has the set of steps that its
// content depends on, and a sequence that finds the block takes that set over. So the sets are
// transitive.
//
// Ownership: refers to the books and to the parts below it; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/retreat.hpp"
#include "core/steps/withdrawal.hpp"

namespace quire {

class Rollback {
 public:
    Rollback(CacheBooks *books, Prefixes *prefixes, Withdrawal *withdrawal, Retreat *retreat)
        : books_(*books), prefixes_(*prefixes), withdrawal_(*withdrawal), retreat_(*retreat) {}

    // Takes back what the step computed and what depends on it. REQUIRES: no step is open.
    void fail_step(StepRecord *failed);

 private:
    bool suspect_copies(const StepRecord &failed);
    void cover_suspects();
    void cover_table(uint32_t sequence, uint32_t group);
    uint32_t first_suspect(uint32_t sequence, uint32_t group) const;
    void lose_suspects();
    void lose_suspects_of(uint32_t sequence, uint32_t group);
    void lose_suspects_of_lease(uint32_t lease, uint32_t group);
    void count_withdrawn(uint64_t step);
    void lose(uint32_t sequence, uint32_t valid_tokens);

    CacheBooks &books_;
    Prefixes &prefixes_;
    Withdrawal &withdrawal_;
    Retreat &retreat_;
};

}  // namespace quire
