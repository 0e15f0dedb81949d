// SPDX-License-Identifier: Apache-2.0
//
// plan: an item's needs, worked out before anything is changed.
//
// Threads: none; a local of the call that adds the item.
#pragma once

#include "core/steps/prefixes.hpp"

namespace quire {

struct Plan {
    uint32_t sequence;
    uint32_t known;     // after the item's tokens
    uint32_t position;  // of the first token to compute
    uint32_t compute;
    uint32_t lookahead;
    uint32_t room_tokens;  // that the tables shall have room for
    uint32_t hit_blocks;   // of the prefix that was found: spans of the tree
    uint32_t part_tokens;  // found of the last of them, which is to be copied; 0: all, as usual
    uint32_t query_tokens;
    bool admission;  // nothing of the sequence is on the device yet
    bool takes;      // takes any block or hit
    bool swapped;
    bool reuses;                       // it is short, and gives back blocks past its window
    uint32_t lookup_end;               // tokens from here on are computed, not found
    uint32_t drafts;                   // drafts that are a tree
    uint32_t length[kMaxGroups];       // of the table in the end
    uint32_t fresh[kMaxGroups];        // blocks to take
    uint32_t shared[kMaxGroups];       // hits on the device that the table will name
    uint32_t from_cached[kMaxGroups];  // hits that are unreferenced now
    uint32_t promoted[kMaxGroups];     // hits in the host tier, which need fresh blocks
    bool copy_tail[kMaxGroups];        // the block it writes first is shared, or found in part
    uint32_t null_front[kMaxGroups];   // of the table after it gave back what is reused
    uint32_t passed[kMaxGroups];       // entries that it then gives back
    uint32_t freed[kMaxGroups];        // blocks among them that the step can use
    Lookup found;                      // its prefix
    Load *load;                        // that it takes; nullptr: none
    bool is_loading;                   // it waits for a load
    uint32_t loaded_blocks;            // of the prefix, in found blocks and the load's; 0: the
                                       // device has as much
    Room reserved;                     // what the record may hold after all of it is taken
};

struct Short {
    uint32_t blocks = 0;
    uint32_t reason = 0;
};

}  // namespace quire
