// SPDX-License-Identifier: Apache-2.0
//
// tier_keys: the names under which a tier keeps blocks, as docs/tiers.md defines them.
//
// A block's name is a SHA-256 over everything that decides its content: the name of the block
// before it, its tokens and the keys over them; the name before the first block covers the model,
// the tenant and the sequence's keys. Names of nodes are remembered, so that a long prompt is
// hashed once.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/steps/cache_books.hpp"

namespace quire {

// What is known of a node of the prefix tree.
struct NodeName {
    uint64_t generation;  // of the node that it is about
    uint32_t index;       // of the block in its sequence
    uint32_t groups;      // bits: the block is in the tier, or was given to it
    Digest name;
};

class TierKeys {
 public:
    explicit TierKeys(CacheBooks *books)
        : books_(*books), names_(&books->host), path_(&books->host) {}

    [[nodiscard]] bool open(const uint8_t fingerprint[32]);
    void close() { names_.clear(), path_.clear(); }

    // The tenant of a root; nullptr: it has no name outside of the cache.
    const Digest *tenant(uint32_t root) const;
    // Before the first block. REQUIRES: tenant(root).
    Digest root_name(uint32_t root) const;
    // The name of the block after that with the name `previous`; extra: its spans.
    Digest next_name(const Digest &previous, const uint32_t *tokens, const Extra &extra) const;
    // nullptr: the node's tenant has no name, a node before it is gone, or there is no memory.
    NodeName *of_node(uint32_t node);
    // True if of_node() would name the node, and the block of the group is in the tier.
    bool is_kept(uint32_t node, uint32_t group) const {
        return node < names_.size() && (names_[node].groups >> group & 1) != 0 &&
               names_[node].generation == books_.journal.tree().generation(node);
    }
    uint32_t root_of(uint32_t node) const;

 private:
    CacheBooks &books_;
    uint8_t fingerprint_[32] = {};
    Array<NodeName> names_;  // by node
    Array<uint32_t> path_;
};

}  // namespace quire
