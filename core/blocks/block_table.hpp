// SPDX-License-Identifier: Apache-2.0
//
// block_table: logical to physical blocks of one sequence in one group.
//
// Ownership: the journal has all tables; a table's buffer is given back to the journal's pool.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/blocks/block_pool.hpp"

namespace quire {

struct BlockTable {
    Buffer ids;
    uint32_t length = 0;
    uint32_t null_front = 0;    // end of the gap after the kept blocks, left by a passing window
    uint32_t writable = kNone;  // logical block whose end was found writable in place
    uint64_t epoch = 0;         // changes when an existing entry changes; never repeats
};

}  // namespace quire
