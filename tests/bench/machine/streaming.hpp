// SPDX-License-Identifier: Apache-2.0
//
// streaming: how fast a number of threads read uncached memory, in the best of three orders.
#pragma once

#include <cstdint>

namespace quire::bench {

struct Streaming {
    double gbps;          // of the best order, 1e9 bytes per second
    const char *pattern;  // its name
};

// Reads `size_bytes`, larger than the caches, several times in each order: one forward stream per
// thread; four interleaved ones per thread; pieces of 4 KiB with a software prefetch.
Streaming streaming_read(uint64_t size_bytes, uint32_t threads);

}  // namespace quire::bench
