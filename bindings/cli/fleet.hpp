// SPDX-License-Identifier: Apache-2.0
//
// fleet: many engines, each with a cache of its own, over one cluster that all of them share, as a
// simulation of which prefix is found where. It knows names and ages alone; the cache manager of
// one engine is what `quire replay` runs.
//
// A block is a hash id of the trace, 512 tokens. The traffic is that of the trace several times
// over, each copy with prompts of its own and shifted in time; no prefix is shared between copies.
//
//   Route     A request goes to the engine that last had the longest part of its prompt, with the
//             probability `affinity`; otherwise to any, all being equally likely.
//   Engine    An LRU of whole blocks, device and host memory together, which is what a cache with
//             QUIRE_CACHE_HOST_PREFIXES finds. The end of a sequence is evicted before its
//             beginning.
//   Cluster   An LRU of values by the last get or put of each (`allkeys-lru` comes near it). What
//             an engine finds in itself is not asked of the cluster, and so grows old there. Each
//             full block that is computed is put, prompt and answer; a value that is there already
//             is sent and changes nothing.
//   Failures  None, and every load arrives in time.
//
// Threads: one.
#pragma once

#include <vector>

#include "trace.hpp"

namespace quire::cli {

struct FleetOptions {
    uint32_t engines = 1;
    uint32_t copies = 1;          // of the trace's traffic, over all engines
    uint32_t engine_blocks = 0;   // of each engine
    uint32_t cluster_blocks = 0;  // 0: there is no cluster
    double affinity = 0;
    uint64_t seed = 1;
    uint64_t window_ms = 10'000;  // over which the busiest rate is taken
};

struct FleetCounts {
    uint64_t requests = 0;
    uint64_t input_tokens = 0;
    uint64_t local_tokens = 0;    // found in the engine
    uint64_t cluster_tokens = 0;  // and besides in the cluster
    uint64_t loads = 0;           // requests that found something there
    uint64_t read_blocks = 0;
    uint64_t written_blocks = 0;       // sent
    uint64_t known_blocks = 0;         // of these, the cluster had so many
    uint64_t asked_blocks = 0;         // a load asks for what the engine lacks, to the first miss
    uint64_t cluster_blocks = 0;       // at the end
    uint64_t evicted_blocks = 0;       // by the cluster
    uint64_t duration_ms = 0;          // of the trace
    uint64_t most_read_blocks = 0;     // in one window
    uint64_t most_written_blocks = 0;  // in one window
};

// Throws a Failure if a request does not fit into an engine, or into the cluster.
FleetCounts run_fleet(const FleetOptions &options, const Trace &trace);

}  // namespace quire::cli
