// SPDX-License-Identifier: Apache-2.0
//
// lease: what one lease should hold, by lease.h, and what the open step's work does in its blocks.
//
// Threads: none; values that are copied to undo a step.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "content.hpp"
#include "quire/quire.h"

namespace sim {

using GroupBlock = std::pair<uint32_t, int32_t>;

struct Lease {
    uint32_t id = 0;  // in the script
    quire_lease handle = 0;
    uint32_t ns = 0;                                      // number in the script
    uint32_t tenant = 0;                                  // of the namespace
    uint64_t base = 0;                                    // as Sequence::base
    std::map<GroupBlock, uint32_t> held;                  // how often
    std::map<GroupBlock, std::vector<Content>> contents;  // where they are known
    uint64_t lost = 0;                                    // blocks_lost, when looked at last
    uint64_t left = 0;                                    // blocks that left it by failures
};

// The step's work in one block.
struct LeaseUse {
    enum Kind : uint8_t { taken, published, read };
    Kind kind = taken;
    uint32_t lease = 0;
    GroupBlock block;
    std::vector<Content> contents;  // [block_tokens] to be written, or to be found
};

}  // namespace sim
