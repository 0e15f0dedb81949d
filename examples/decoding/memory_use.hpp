// SPDX-License-Identifier: Apache-2.0
//
// memory_use: how many blocks a set of texts holds, and how many it would hold without sharing.
//
// Counted from the block tables as they are: a block that several tables name counts once.
//
// Threads: one.  Units: blocks.

#pragma once

#include "decoder.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace decoding {

struct MemoryUse {
    size_t held = 0;    // different blocks in all tables
    size_t copies = 0;  // entries of all tables
};

// Counts the first `block_count` blocks of each text.
MemoryUse memory_use(const Decoder &decoder, std::span<const uint64_t> texts,
                     size_t block_count = SIZE_MAX);

inline double saved_percent(const MemoryUse &use) {
    if (use.copies == 0) {
        return 0;
    }
    return 100.0 * (1.0 - static_cast<double>(use.held) / static_cast<double>(use.copies));
}

}  // namespace decoding
