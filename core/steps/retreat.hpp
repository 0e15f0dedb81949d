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
    // Gives back all blocks but those of the first token_count tokens, the tail first. Published
    // blocks of tokens from `wrong_from` on are withdrawn; kNone if none of them is wrong.
    void release_from(uint32_t sequence, uint32_t token_count, uint32_t wrong_from);

 private:
    CacheBooks &books_;
    Tenants &tenants_;
    Prefixes &prefixes_;
};

}  // namespace quire
