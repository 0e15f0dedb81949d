// SPDX-License-Identifier: Apache-2.0
//
// sizes: how much the processor's caches hold, and how much memory may be used to be beyond them.
#pragma once

#include <cstdint>

namespace quire::bench {

// Of the largest cache of processor 0; 64 MiB where the system does not say.
uint64_t last_level_cache_bytes();

// What the system could give at once.
uint64_t available_memory_bytes();

struct WorkingSet {
    uint64_t size_bytes;
    bool is_capped;  // below what was wanted, for want of memory
};

// So much, but 1 MiB at least, and no more than there is room for.
WorkingSet limited(uint64_t wanted_bytes, uint64_t most_bytes);

// Four times the last-level cache, so that at most a quarter of what is read again is still there;
// divided by `scale`; at most half of the memory that is available, for others run here too.
WorkingSet working_set(uint32_t scale);

}  // namespace quire::bench
