// SPDX-License-Identifier: Apache-2.0
//
// measure: one case of attention, alternating with a plain read of the same tables.
#pragma once

#include <cstdint>
#include <string>

#include "tests/bench/machine/sizes.hpp"
#include "tests/bench/scene/dtype.hpp"
#include "tests/bench/scene/shape.hpp"

namespace quire::bench {

struct Subject {
    std::string name;
    Dtype dtype;
    uint32_t threads;
    uint32_t dim;
    std::string device;
    uint32_t device_flags;
};

struct Measured {
    double seconds;        // attention of one layer
    double table_seconds;  // the plain read of one layer; 0: the host cannot access the pool
    double best_table_seconds;
    double plan_seconds;    // the host's, for a step of all layers
    double call_seconds;    // the host's, to enqueue attention of one layer
    uint64_t unique_bytes;  // K, V and scales of one layer, each counted once
    double operations;      // of one layer
    uint32_t layers;
    uint32_t rounds;
    const char *q_dtype;  // of queries and results
};

// Attention of one new token per sequence, in layers that together fill `set`. Blocks lie in random
// order.
//
// Errors   throws Unsupported or Failure.
Measured measure_attention(const Subject &subject, const Shape &shape, const WorkingSet &set,
                           double seconds);

}  // namespace quire::bench
