// SPDX-License-Identifier: Apache-2.0
//
// tier_terms: which caches may have a tier, on which terms.
//
// Threads: any; everything here is constant or local.
#pragma once

#include "core/steps/cache_books.hpp"
#include "core/tiers/stored_blocks.hpp"

namespace quire {

// OK if the cache may have a tier with such a store. blocks: as the cache would keep them.
Status check_terms(const CacheBooks &books, const StoredBlocks &blocks,
                   const quire_cache_tier_desc &desc, const quire_store_info &store,
                   bool is_read_only);
// The description with the values that 0 stands for.
quire_cache_tier_desc with_defaults(const quire_cache_tier_desc &desc);

}  // namespace quire
