// SPDX-License-Identifier: Apache-2.0
//
// state_move: what an item does to the table of a recurrent group with a state_interval.
//
// Such a table has one state, in the block of the last computed token. Blocks after it hold
// nothing: they are for drafts and lookahead. Entries before it are null, so the table has one gap,
// as every table has.
//
// An item that ends in another block than its state is in: (1) nulls fill the table up to there;
// (2) blocks of drafts whose places are passed move to the end, in their order; (3) what is missing
// is taken; (4) the state is copied to the block that is now at its place, and the older one is
// given back.
//
// Units: entries of the table.  Threads: none; a value.
#pragma once

#include <algorithm>

#include "core/base/geometry.hpp"

namespace quire {

struct StateMove {
    bool crosses;     // the state gets another block
    uint32_t from;    // where the state is; only if has_state
    bool has_state;   // any token is computed
    uint32_t to;      // where it will be
    uint32_t passed;  // blocks of drafts that move to the end
    uint32_t length;  // of the table in the end
    uint32_t fresh;   // blocks to take

    // The item computes `count` tokens from `position` on, and its table, of `length` entries now,
    // shall have room for `reserved` tokens.
    StateMove(const GroupGeometry &group, uint32_t position, uint32_t count, uint32_t reserved,
              uint32_t old_length)
        : has_state(position != 0) {
        from = has_state ? group.size.block_of(position - 1) : 0;
        to = group.size.block_of(position + count - 1);
        crosses = !has_state || to > from;
        const uint32_t least = group.size.blocks_of(reserved) + group.draft_states;
        if (!crosses) {
            passed = 0;
            length = std::max(least, old_length);
            fresh = length - old_length;
            return;
        }
        const uint32_t end = std::max(old_length, to), kept = std::min(old_length, to);
        passed = kept > first() ? kept - first() : 0;
        length = std::max(least, end + passed);
        fresh = length - end - passed;
    }
    // The first entry after the state.
    uint32_t first() const { return has_state ? from + 1 : 0; }
};

}  // namespace quire
