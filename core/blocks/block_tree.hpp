// SPDX-License-Identifier: Apache-2.0
//
// block_tree: which tokens are in which blocks, where leases alone find and publish them.
//
// A prefix tree whose nodes are the blocks of one pool. A block's place says which block comes
// before it, and which one after it; its tokens lie beside. So a path is followed from block to
// block, and nothing is hashed or allocated on the way. Only the first block of a path, and one
// that follows the same block as an older one, are found through a hash table. Every block that is
// found was compared token by token, and is below the block that was found before it.
//
// Why apart from prefix_tree: a node there outlives its blocks while a step is open, has entries
// for groups and the host tier, and is reached through a hash of all that comes before it. With
// blocks of one token that is three cache lines for each token.
//
// A block whose predecessor leaves is lost: it stays in the tree until it leaves too, and is not
// found any more. The first blocks of a root and its lost blocks are on one list, which begins in
// the root's record (Scopes::first_node).
//
// Invariants (check()): (1) a block is in the tree iff its record in the pool says that it is
// published; (2) it is on one list, that of the block before it or of its root; (3) it is in the
// hash table iff it is the first block of a path, or not the first of its list; (4) no two blocks
// after the same one have equal tokens; (5) a root counts its blocks.
//
// Threads: none; Cache holds its lock. Units: counts are blocks.
#pragma once

#include "core/base/hash.hpp"
#include "core/blocks/block_pool.hpp"
#include "core/blocks/scopes.hpp"

namespace quire {

class BlockTree {
 public:
    explicit BlockTree(const HostAllocator *host)
        : tokens_(host), next_(host), places_(host), siblings_(host), table_(host) {}

    // scopes: those of the roots, which outlive the tree. seed: of the hashes.
    Status create(uint32_t block_count, uint32_t block_tokens, uint64_t seed, Scopes *scopes);
    bool is_open() const { return size_ != 0; }

    bool names(uint32_t block) const { return places_[block].root != kNone; }
    // REQUIRES: the tree names the block.
    uint32_t root(uint32_t block) const { return places_[block].root; }
    const uint32_t *tokens(uint32_t block) const { return &tokens_[uint64_t{block} * size_]; }
    uint32_t count() const { return count_; }
    uint64_t bytes_compared() const { return bytes_compared_; }

    // Follows whole blocks of tokens from a root on. Returns how many are in the tree.
    // found: [count] receives them.
    uint32_t find(uint32_t root, const uint32_t *tokens, uint32_t count, uint32_t *found);
    // Adds one or more blocks with these tokens after `before`, which is kNullBlock at the root.
    // REQUIRES: the tree names none of them, and the first one's tokens do not follow `before`.
    void insert(uint32_t root, uint32_t before, const uint32_t *tokens, const uint32_t *blocks,
                uint32_t count);
    // Takes a block out of the tree; those after it are lost. Time O(1), and for each block that
    // follows it directly. It may free the root.
    void remove(uint32_t block);

    // The blocks of a root, each before those after it; kNone after the last one.
    uint32_t first_of(uint32_t root) const { return scopes_->first_node(root); }
    uint32_t next_of(uint32_t block) const;

    void swap(BlockTree *other);
    // Takes over another tree's blocks: old block i becomes ids[i]. REQUIRES: this one is empty,
    // and each block of the other has a number here.
    void take_over(BlockTree *old, const uint32_t *ids);

    Status check(const BlockPool &pool) const;

 private:
    friend class CacheDump;
    friend struct Inside;

    struct Place {
        uint32_t before;  // kNullBlock: it is the first of a path; kNone: it is lost
        uint32_t root;    // kNone: it is not in the tree
    };
    // Neighbours on the list of the blocks that follow the same block; kNullBlock at its ends.
    struct Siblings {
        uint32_t prev;
        uint32_t next;
    };
    struct Entry {
        uint32_t block;  // kNullBlock: free
        uint32_t hash;
    };

    bool has_tokens(uint32_t block, const uint32_t *tokens) const {
        const uint32_t *own = this->tokens(block);
        return own[0] == tokens[0] && (size_ == 1 || std::memcmp(own, tokens, size_ * 4) == 0);
    }
    bool is_hashed(uint32_t block) const {
        const uint32_t before = places_[block].before;
        return before == kNullBlock || (before != kNone && next_[before] != block);
    }
    template <bool kOneToken>
    uint32_t follow(uint32_t root, uint32_t first, const uint32_t *tokens, uint32_t count,
                    uint32_t *found) const;
    uint32_t hash(uint32_t root, uint32_t before, const uint32_t *tokens) const;
    uint32_t look_up(uint32_t root, uint32_t before, const uint32_t *tokens) const;
    void enter(uint32_t block);
    void erase(uint32_t block);
    void link(uint32_t block, uint32_t root, uint32_t before);
    void unlink(uint32_t block);
    void link_to_root(uint32_t block, uint32_t root);
    void lose(uint32_t block);
    uint32_t head_of(uint32_t block) const;
    Status check_list(uint32_t first, uint32_t before, uint32_t root, uint32_t *found) const;
    Status check_table() const;

    Array<uint32_t> tokens_;  // [block][size_]
    Array<uint32_t> next_;    // [block] the oldest that follows it; kNullBlock: none does
    Array<Place> places_;
    Array<Siblings> siblings_;
    Array<Entry> table_;  // open addressing, at most half full
    Scopes *scopes_ = nullptr;
    uint64_t seed_ = 0;
    uint32_t size_ = 0;  // tokens of a block
    uint32_t count_ = 0;
    uint64_t bytes_compared_ = 0;
};

}  // namespace quire
