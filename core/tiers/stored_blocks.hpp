// SPDX-License-Identifier: Apache-2.0
//
// stored_blocks: a block of a group as the value that a tier keeps of it: its label, and the way
// between the value and the memory of the shards.
//
// A process that is one of several (log.h) keeps the layers and heads that its shards hold, as one
// rectangle; each rank has values of its own. The key of a value covers the rectangle only where it
// is not the whole group, so that ranks may share a store with each other and with whole caches. A
// migration cannot change what a process holds.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/cache_books.hpp"
#include "core/transfer/block_form.hpp"
#include "quire/tier.h"

namespace quire {

// Which block of which sequence of tokens.
struct BlockName {
    Digest tenant;
    Digest name;  // of the block with all before it
    uint32_t group;
    uint32_t index;  // of the block in its sequence
};

class StoredBlocks {
 public:
    enum class Verdict { right, damaged, foreign };

    explicit StoredBlocks(const CacheBooks *books) : books_(*books) {}

    // OK if the parts that are here can be kept as values of at most so many bytes.
    Status check(uint64_t max_value_bytes) const;
    // REQUIRES: check().
    void open(const uint8_t fingerprint[32]);

    // True if this process holds a part of the group. One that holds none keeps no value of it.
    bool holds(uint32_t group) const { return forms_[group] != 0; }
    uint64_t size_bytes(uint32_t group) const { return forms_[group]; }
    quire_store_label label(const BlockName &block) const;
    quire_store_label label(const Digest &name, uint32_t group, const Digest &tenant) const {
        return label(BlockName{tenant, name, group, 0});
    }

    // Makes the value of a full block. parts: [shard] where the shard's part of it lies, as in its
    // pool; tokens: [block_tokens]; out: [size_bytes()].
    void write(const BlockName &block, const quire_token *tokens, const uint8_t *const *parts,
               uint8_t *out) const;
    // Checks that the bytes are the value of the block, with those tokens. tokens: [block_tokens].
    Verdict judge(const BlockName &block, const quire_token *tokens, const uint8_t *bytes,
                  uint64_t size_bytes) const;
    // Fills a block of the host tier on all shards. REQUIRES: judge() found the bytes right.
    void fill(uint32_t group, uint32_t host_block, const uint8_t *bytes, uint64_t size_bytes) const;

 private:
    // Layers and heads of a group; layer_count 0: none.
    struct Rectangle {
        uint32_t first_layer = 0;
        uint32_t layer_count = 0;
        uint32_t first_head = 0;
        uint32_t head_count = 0;
    };

    Status find_part(uint32_t group, Rectangle *out) const;
    CanonicalHeader header(uint32_t group, uint32_t index, const Rectangle &part) const;
    CanonicalHeader header(const BlockName &block) const;

    const CacheBooks &books_;
    uint8_t fingerprint_[32] = {};
    Rectangle parts_[kMaxGroups];
    uint64_t forms_[kMaxGroups] = {};  // bytes of a value
};

}  // namespace quire
