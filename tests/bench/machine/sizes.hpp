// SPDX-License-Identifier: Apache-2.0
//
// sizes: how much the processor's caches hold, and how much memory may be used to exceed them.
#pragma once

#include <cstdint>

namespace quire::bench {

// Size of processor 0's largest cache; 64 MiB if the system does not say.
uint64_t last_level_cache_bytes();

// Memory that the system could give at once.
uint64_t available_memory_bytes();

struct WorkingSet {
    uint64_t size_bytes;
    bool is_capped;  // smaller than wanted, because memory is short
};

// The wanted size, but at least 1 MiB and at most most_bytes.
WorkingSet limited(uint64_t wanted_bytes, uint64_t most_bytes);

// Four times the last-level cache, so that at most a quarter of what is read again is still there;
// divided by `scale`; at most half of the available memory, because others use this machine too.
WorkingSet working_set(uint32_t scale);

}  // namespace quire::bench
