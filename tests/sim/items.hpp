// SPDX-License-Identifier: Apache-2.0
//
// items: the arguments and results of one begin or add, beside what the model thinks of them.
//
// Threads: none; values.  Units: tokens.
#pragma once
#include <vector>

#include "world.hpp"

namespace sim {

struct PlannedItem {
    uint32_t seq = 0;
    uint32_t drafts = 0;
    uint32_t ahead = 0;
    uint32_t max = 0;
    uint32_t doc = 0;
    uint32_t mask_rows = 0;
    uint32_t limit = 0;  // quire_step_item.max_hit_tokens
    uint32_t load = 0;   // QUIRE_ITEM_MAY_LOAD
    // Tokens that the store has of it: before the call or after it, for values are put within it.
    uint32_t run = 0;
    uint32_t least_run = 0;
    uint32_t most_run = 0;  // with what the device may have
    uint32_t part_run = 0;  // and where the store has a block of some groups only
    Op op;
    std::vector<uint32_t> tokens;
    std::vector<uint8_t> unknown;
    std::vector<uint32_t> parents;
    // How many tokens it may find, in multiples of `unit`; any number if there is no limit.
    uint32_t most_hits(uint32_t unit) const {
        if (limit == QUIRE_NO_HITS) return 0;
        return limit == 0 ? ~0u : limit / unit * unit;
    }
};

struct World::Items {
    std::vector<quire_step_item> items;
    std::vector<quire_step_result> results;
    std::vector<PlannedItem> planned;
    std::vector<uint32_t> tokens;
    std::vector<quire_status> errors;  // that the headers name for these items; empty: must succeed
    uint64_t loads_begun = 0;          // of the tier, before the call
    bool unsure = false;               // the headers do not say whether this is an error
    bool may_be_busy = false;          // a sequence's last step is unfinished on another queue
    bool unheard = false;              // answers of the store were not reaped
    uint32_t probed = ~0u;             // hits that a probe and its limit leave the first item
    uint32_t probed_least = 0;         // and those that it is sure of, on the queue that wrote them
    bool looked = false;               // at the tree, and the pools, before the call
    std::vector<Node> nodes;
    std::map<int64_t, int64_t> free_blocks;  // or cached ones, of each pool
};

}  // namespace sim
