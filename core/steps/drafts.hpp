// SPDX-License-Identifier: Apache-2.0
//
// drafts: accepting drafts: the first ones of a chain, or a path through a tree.
//
// The tokens of an accepted path lie scattered among the drafts. They count as known and computed
// at once, but the sequence's next step moves them before anything reads them, so no other call
// needs a queue. Until then no other sequence may read them (Sequence::publishable, fork), and
// giving them up means computing them again.
//
// Ownership: refers to the books, Prefixes and Retreat; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/retreat.hpp"

namespace quire {

class Drafts {
 public:
    Drafts(CacheBooks *books, Prefixes *prefixes, Retreat *retreat)
        : books_(*books), prefixes_(*prefixes), retreat_(*retreat) {}

    Status accept(uint64_t handle, uint32_t count);
    Status accept_path(uint64_t seq, const uint32_t *path, uint32_t count);

 private:
    Status check_path(const Sequence &s, const uint32_t *path, uint32_t count) const;

    CacheBooks &books_;
    Prefixes &prefixes_;
    Retreat &retreat_;
};

}  // namespace quire
