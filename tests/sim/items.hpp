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
    std::vector<uint32_t> tokens;
    std::vector<uint8_t> unknown;
    std::vector<uint32_t> parents;
};

struct World::Items {
    std::vector<quire_step_item> items;
    std::vector<quire_step_result> results;
    std::vector<PlannedItem> planned;
    std::vector<uint32_t> tokens;
    std::vector<quire_status> errors;  // that the headers name for these items; empty: must succeed
    bool unsure = false;               // the headers do not say whether this is an error
    bool may_be_busy = false;          // a sequence's last step is unfinished on another queue
    uint32_t probed = ~0u;             // hits that a probe promised the first item
};

}  // namespace sim
