// SPDX-License-Identifier: Apache-2.0
//
// node: one published place of the prefix tree, by the library's dump (docs/dump.md).
//
// Threads: none; values.
#pragma once
#include <cstdint>
#include <vector>

namespace sim {

struct Node {
    int64_t id = 0;
    int64_t parent = -1;
    int64_t generation = 0;
    int64_t parent_generation = 0;
    int64_t scope = 0;
    uint64_t hash = 0;
    std::vector<int64_t> blocks;  // as Config::place_blocks; 0: none
};

}  // namespace sim
