// SPDX-License-Identifier: Apache-2.0
//
// cache_tier: what the model knows of the store below the cache, beside World.
//
// Threads: none; values.  Units: tokens, and nanoseconds of the simulated clock.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "content.hpp"
#include "quire/cache_tier.h"
#include "store.hpp"
#include "tier_name.hpp"

namespace sim {

// A block that the model knows to be full, computed and named, under the key of its value.
struct NamedBlock {
    quire_store_label label{};
    Digest name{};
    uint32_t group = 0;
    uint32_t position = 0;
    std::vector<Content> contents;
    std::vector<uint32_t> tokens;
};

struct CacheTier {
    quire_tier *tier = nullptr;
    Store *store = nullptr;
    bool attached = false;
    bool leaving = false;       // a detach timed out: it loads nothing more
    bool dead = false;          // the cache was reset: it neither loads nor writes
    bool same_weights = false;  // planted: the engine does not change its fingerprint
    uint32_t fingerprint = 0;   // which of two the engine gave
    uint32_t epoch = 0;
    uint64_t dead_puts = 0;  // submitted before the reset
    uint64_t migrations = 0;
    quire_cache_tier_desc desc{};
    quire_cache_tier_stats stats{};  // as of the last look
    Store::Counts counts;            // of the store when it was attached
    std::map<Store::Key, NamedBlock> names;
};

}  // namespace sim
