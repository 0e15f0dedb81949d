// SPDX-License-Identifier: Apache-2.0
//
// retreat: how a sequence gives up its newest tokens, and the blocks that held them.
//
// Ownership: refers to the books, Tenants and Prefixes; owns nothing.
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/prefixes.hpp"
#include "core/steps/tenants.hpp"

namespace quire {

class Retreat {
 public:
    Retreat(CacheBooks *books, Tenants *tenants, Prefixes *prefixes)
        : books_(*books), tenants_(*tenants), prefixes_(*prefixes) {}

    // Keeps at most the first token_count computed tokens. Those from `wrong_from` on were computed
    // wrongly; kNone: none was. An incomplete window may take away more tokens than are wrong;
    // those stay published for other sequences to find.
    void lower_computed(uint32_t sequence, uint32_t token_count, uint32_t wrong_from);
    // The longest length up to token_count whose windows are whole.
    uint32_t whole_window_length(uint32_t sequence, uint32_t token_count);
    // Gives back a table's blocks from `first_block` on, the tail first. Published blocks from
    // `first_wrong` on are withdrawn; kNone if none of them is wrong.
    void release_from(uint32_t sequence, uint32_t first_block, uint32_t first_wrong);

 private:
    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
};

}  // namespace quire
