// SPDX-License-Identifier: Apache-2.0
//
// session_blocks: the blocks of a session in their order, and each one's canonical form.
//
// The order is group by group, and in each group from the first block to the last; null entries are
// left out.
//
// Threads: any; it reads only what is constant in a cache, the geometry's shape and static scales.
#pragma once

#include "core/session/session_head.hpp"
#include "core/steps/cache_books.hpp"
#include "core/transfer/block_form.hpp"

namespace quire {

class SessionBlocks {
 public:
    SessionBlocks(const CacheBooks *books, const SessionHead *head) : books_(books), head_(head) {}

    // Goes to the first block, or past the end.
    void rewind();
    // Goes to an entry that is not null.
    void seek(uint32_t group, uint32_t index) { group_ = group, index_ = index; }
    void next();
    bool at_end() const { return group_ == books_->geometry.group_count; }
    uint32_t group() const { return group_; }
    uint32_t index() const { return index_; }

    // The form of the block here, of all layers and heads; or of some layers. REQUIRES: not at the
    // end.
    Status describe(CanonicalBlock *out) const { return describe(0, layer_count(), out); }
    Status describe(uint32_t first_layer, uint32_t layer_count, CanonicalBlock *out) const;
    // The first of its tokens in the head; nullptr in a cross group, whose slots are no tokens.
    const quire_token *tokens() const;
    // OK if a block that begins with these bytes, a CanonicalHeader, fits the cache and has the
    // form's size.
    Status check_header(const uint8_t *bytes) const;
    // OK if these bytes, which have the form's size, are the block here, or these layers of it.
    Status check(const uint8_t *bytes, uint64_t size_bytes, CanonicalBlock *out) const {
        return check(bytes, size_bytes, 0, layer_count(), out);
    }
    Status check(const uint8_t *bytes, uint64_t size_bytes, uint32_t first_layer,
                 uint32_t layer_count, CanonicalBlock *out) const;
    // The size of all blocks together.
    Status total_bytes(uint64_t *out);

 private:
    uint32_t layer_count() const { return books_->geometry.groups[group_].layer_count; }
    bool is_null() const;
    void skip_nulls();

    const CacheBooks *books_;
    const SessionHead *head_;
    uint32_t group_ = 0;
    uint32_t index_ = 0;
};

}  // namespace quire
