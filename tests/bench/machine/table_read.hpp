// SPDX-License-Identifier: Apache-2.0
//
// table_read: a plain read of K and V through block tables: attention cannot be faster.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.hpp"
#include "quire/cache.h"

namespace quire::bench {

// The runs of memory that hold a layer's K and V, one or two per table entry, in the tables' order.
//
// blocks       ids of all rows' blocks, row after row.
// block_bytes  K, V and scales of one layer in one block.
// Errors   throws Failure if the blocks of a layer are not dense in the pool: then its strides do
//          not say what attention has to read.
std::vector<Run> layer_runs(const quire_pool_info &pool, const std::vector<int32_t> &blocks,
                            uint32_t layer, uint64_t block_bytes);

// Seconds in which `threads` read the runs, an equal number each.
double seconds_to_read(const std::vector<Run> &runs, uint32_t threads);

}  // namespace quire::bench
