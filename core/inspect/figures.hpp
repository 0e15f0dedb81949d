// SPDX-License-Identifier: Apache-2.0
//
// figures: what a cache says about its sizes and counts.
//
// Threads: none; Cache holds its lock. Changes nothing.
#pragma once

#include "core/parts/cache_parts.hpp"

namespace quire {

void read_info(const CacheParts &parts, quire_cache_info *out);
// OK if the cache has such a shard. One without memory has shard 0, which stands for all of it.
Status check_shard(const CacheParts &parts, uint32_t shard);
Status read_pool_info(const CacheParts &parts, uint32_t group, uint32_t shard,
                      quire_pool_info *out);
// Errors  QUIRE_E_UNSUPPORTED  the cache measures nothing.
Status read_calibration_size(const CacheParts &parts, uint64_t *size_bytes);
void read_stats(const CacheParts &parts, quire_cache_stats *out);

}  // namespace quire
