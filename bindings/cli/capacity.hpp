// SPDX-License-Identifier: Apache-2.0
//
// capacity: what a cluster that many engines share would find, hold and carry, by the traffic of a
// trace: memory, network, hit rate and cost. Names and ages are simulated (fleet.hpp); bytes,
// seconds and prices are arithmetic on that.
#pragma once

#include <cstdint>
#include <string>

namespace quire::cli {

// Texts as given; empty means not given.
struct CapacityOptions {
    std::string trace;
    uint32_t engines = 0;
    uint32_t copies = 0;  // 0: as many as engines
    std::string token_bytes, engine_memory, cluster_memory;
    uint32_t block_tokens = 16;
    uint32_t nodes = 3;     // that hold values; each has the replicas besides
    uint32_t replicas = 0;  // of each value
    double affinity = 0;
    std::string prefill;                        // tokens per second of an engine
    std::string link;                           // bytes per second of an engine to the cluster
    double engine_price = 0, memory_price = 0;  // of an hour; of a GiB for an hour
    uint64_t limit = 0;
    uint64_t seed = 1;
    bool json = false;
};

void capacity(const CapacityOptions &options);

}  // namespace quire::cli
