// SPDX-License-Identifier: Apache-2.0
//
// shard: one device of a cache with memory, and what the engine has there.
//
// Threads: none; values.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "quire/quire.h"

namespace sim {

class Device;
struct Kernel;

// A device of the cache, real to the library, and what the engine does on it.
struct Shard {
    quire_device *device = nullptr;
    Device *fake = nullptr;
    std::vector<quire_queue *> queues;
    std::vector<uint32_t> queue_index;  // of each, in the fake device
    std::vector<quire_pool_info> pools;
    std::vector<std::shared_ptr<Kernel>> kernels;  // of the step being committed
};

}  // namespace sim
