// SPDX-License-Identifier: Apache-2.0
//
// replay: runs a trace through the real manager, in a cache without a device, and reports what the
// prefix cache saved and how long the manager's calls took. With a store below it, the cache has
// memory: see replay_store.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "library.hpp"

namespace quire::cli {

struct ReplayOptions {
    std::string trace;
    uint32_t blocks = 0;
    uint32_t host_blocks = 0;    // of the host tier that evicted blocks live on in; 0: none
    uint32_t disk_blocks = 0;    // of the store below; 0: none
    std::string disk_write;      // through (or empty), selective or back
    std::string block_bytes;     // of a model's block; with it and a bandwidth, copies take time
    std::string host_bandwidth;  // per second and direction; empty: not wanted, as for these:
    std::string disk_read_bandwidth;
    std::string disk_write_bandwidth;
    std::string disk_latency;               // of each load
    std::string tier;                       // or a real store, by its plugin's name; empty: none
    std::vector<std::string> tier_options;  // NAME=VALUE
    uint32_t block_tokens = 16;
    std::string policy = "lru";
    std::string mode = "sequential";
    uint32_t running = 0;  // requests at once, in concurrent mode
    uint64_t limit = 0;
    bool baseline = false;
    bool json = false;
    bool has_store() const { return disk_blocks != 0 || !tier.empty(); }
    std::string dump;  // the file for a dump of the cache after the replay; empty: write none
};

// The result of a run through a trace.
struct ReplayCounts {
    uint64_t hit_tokens = 0;          // of first admissions
    uint64_t resumed_hit_tokens = 0;  // of requests that had been preempted
    uint64_t steps = 0;
    double seconds = 0;  // CPU time of the manager's calls
    quire_cache_stats stats{};
    quire_cache_tier_stats tier{};  // these are of the store, if there is one
    quire_store_stats store{};
    uint64_t blocks_read = 0;
    bool is_remote = false;      // the store is on other machines
    double load_seconds = 0;     // by the clock, that requests waited for loads
    double writing_seconds = 0;  // and that writes took after a step
};

void replay(const ReplayOptions &options);

}  // namespace quire::cli
