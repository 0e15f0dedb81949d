// SPDX-License-Identifier: Apache-2.0
//
// replay: runs a trace through the real manager, in a cache without a device, and reports what the
// prefix cache saved and how long the manager's calls took.
#pragma once

#include <cstdint>
#include <string>

#include "library.hpp"

namespace quire::cli {

struct ReplayOptions {
    std::string trace;
    uint32_t blocks = 0;
    uint32_t host_blocks = 0;    // of the host tier that evicted blocks live on in; 0: none
    std::string block_bytes;     // these two tell how long its copies take; empty: not wanted
    std::string host_bandwidth;  // per second and direction
    uint32_t block_tokens = 16;
    std::string policy = "lru";
    std::string mode = "sequential";
    uint32_t running = 0;  // requests at once, in concurrent mode
    uint64_t limit = 0;
    bool baseline = false;
    bool json = false;
    std::string dump;  // the file for a dump of the cache after the replay; empty: write none
};

// The result of a run through a trace.
struct ReplayCounts {
    uint64_t hit_tokens = 0;          // of first admissions
    uint64_t resumed_hit_tokens = 0;  // of requests that had been preempted
    uint64_t steps = 0;
    double seconds = 0;  // CPU time of the manager's calls
    quire_cache_stats stats{};
};

void replay(const ReplayOptions &options);

}  // namespace quire::cli
