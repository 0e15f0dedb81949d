// SPDX-License-Identifier: Apache-2.0
//
// shuffle: puts the free blocks of a cache into random order.
#pragma once

#include <cstdint>
#include <vector>

#include "session.hpp"

namespace quire::bench {

// Creates `count` sequences of one block each, which take the free blocks, and ends them in random
// order. The cache has one group, room for `count` sequences, and publishes no prefixes.
void shuffle_free_blocks(Session *session, quire_cache *cache, uint32_t count);

// Share of entries whose block is adjacent to that of the previous entry, from 0 to 1.
double share_of_neighbours(const std::vector<int32_t> &blocks);

}  // namespace quire::bench
