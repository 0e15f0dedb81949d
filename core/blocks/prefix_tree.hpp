// SPDX-License-Identifier: Apache-2.0
//
// prefix_tree: which computed content is in which blocks; every hit is verified.
//
// A node is one span of tokens under one parent, and has an entry for each of the span's blocks in
// each group: one, where all groups have blocks of one size. An entry names a block or none. The
// parent of a first node is a root: one namespace and one set of whole-sequence keys. A node is
// found through a hash of everything before it, and taken only if its parent is the node matched
// before (index and generation), and its tokens and the spans of keys over them are equal. So a
// collision costs time and never serves foreign content. Keys are stored in the node's scope
// (scopes), so that publishing allocates nothing.
//
// A node leaves when it loses its block of a full-attention group; nodes below it are then out of
// reach and leave as their own blocks are evicted. Without full-attention groups a node stays while
// it names a block or has children, because every match below it compares its tokens too. So there
// the blocks do not bound the number of nodes; Withdrawal::make_node_room does.
//
// Invariants (check()): (1) every linked node is in the bucket of its hash, which follows from its
// parent's hash, its tokens and its keys; (2) a linked node names each of its blocks in each
// full-attention group, and those blocks name it; (3) a node that a block names is in use and names
// the block; (4) every node in use is on its scope's list, once, if the scope has one; (5) a record
// is in use or free; (6) a node has its parent's root.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "core/base/geometry.hpp"
#include "core/base/hash.hpp"
#include "core/blocks/block_pool.hpp"
#include "core/blocks/lead_index.hpp"
#include "core/blocks/scopes.hpp"
#include "core/blocks/touched_nodes.hpp"

namespace quire {

// Everything besides the tokens that decides a block's content: the spans of `scope` that overlap
// the block that begins at token `begin`. Without such a span `scope` is kNone, whatever spans the
// sequence has elsewhere.
struct Extra {
    uint32_t scope = kNone;
    uint32_t begin = 0;
};

// A point in the tree: a node, or with node == kNone the root itself.
struct TreeCursor {
    uint32_t node = kNone;
    uint64_t generation = 0;
    uint64_t hash = 0;  // of everything up to here
};

// A node whose first tokens, but not all, are those that were asked for.
struct Part {
    uint32_t node = kNone;
    uint32_t tokens = 0;  // that are
};

class PrefixTree {
 public:
    PrefixTree(const HostAllocator *host, BufferPool *buffers)
        : records_(host),
          buckets_(host),
          free_stack_(host),
          links_(host),
          scopes_(host, buffers),
          leads_(host),
          removed_(host),
          changed_(host) {}

    Status create(const Geometry &geometry, uint32_t node_capacity, uint64_t seed);

    // Makes room for this many nodes; nothing else changes. False: no memory.
    [[nodiscard]] bool reserve(uint32_t node_capacity);

    // The scopes that nodes belong to, roots included.
    Scopes &scopes() { return scopes_; }
    const Scopes &scopes() const { return scopes_; }
    TreeCursor root_cursor(uint32_t root) const { return TreeCursor{kNone, 0, scopes_.hash(root)}; }

    // The spans of `scope`, which may be kNone, for the block that begins at token `begin`.
    Extra extra(uint32_t scope, uint32_t begin) const {
        if (scope == kNone || !scopes_.overlaps(scope, begin, begin + span_tokens_)) [[likely]]
            return Extra{};
        return Extra{scope, begin};
    }
    [[gnu::always_inline]] uint64_t hash_block(uint64_t previous, const uint32_t *tokens,
                                               const Extra &extra) const {
        uint64_t hash = chain_hash(previous, tokens, uint64_t{span_tokens_} * sizeof(uint32_t));
        if (extra.scope == kNone) [[likely]]
            return hash;
        return scopes_.hash_overlap(hash, extra.scope, extra.begin, extra.begin + span_tokens_);
    }

    // The child of `at` with this content, or kNone. Counts compared bytes.
    uint32_t find(uint32_t root, const TreeCursor &at, uint64_t hash, const uint32_t *tokens,
                  const Extra &extra);
    // The child of `at` without spans of keys that begins with the most of these tokens, of the
    // kMostParts that were linked last with the first of them; usable(child): it counts. Compares
    // tokens, and finds nothing that has fewer than lead_tokens() in common. REQUIRES: finds_parts.
    template <typename Usable>
    Part find_part(uint32_t root, const TreeCursor &at, const uint32_t *tokens, uint32_t count,
                   Usable usable) const;
    uint32_t lead_tokens() const { return lead_tokens_; }
    void prefetch_bucket(uint64_t hash) const {
        __builtin_prefetch(&buckets_[hash & bucket_mask_]);
    }
    // Prefetches the first candidate of a bucket that was itself prefetched before.
    void prefetch_candidate(uint64_t hash) const {
        uint32_t node = buckets_[hash & bucket_mask_];
        if (node == kNone) return;
        __builtin_prefetch(&header(node));
        __builtin_prefetch(tokens_of(node));
    }
    void prefetch_node(uint32_t node) const { __builtin_prefetch(&header(node)); }
    // The node should have arrived already: prefetch_node().
    void prefetch_bucket_of(uint32_t node) const { prefetch_bucket(header(node).hash); }
    uint32_t candidate(uint64_t hash) const { return buckets_[hash & bucket_mask_]; }

    // The next node of the same scope, or kNone; the first is Scopes::first_node.
    uint32_t next_of_scope(uint32_t node) const { return links_[node].next; }
    // These prefetch what freeing the node writes: its links on its scope's list and, once those
    // have arrived, the links of its neighbours.
    void prefetch_links(uint32_t node) const {
        if (has_lists_) __builtin_prefetch(&links_[node], 1);
    }
    void prefetch_neighbours(uint32_t node) const {
        if (!has_lists_) return;
        const NodeLink link = links_[node];
        if (link.prev != kNone) __builtin_prefetch(&links_[link.prev], 1);
        if (link.next != kNone) __builtin_prefetch(&links_[link.next], 1);
    }

    // Adds a child that is not there yet; it names no block. kNone if no node is left.
    uint32_t insert(uint32_t root, const TreeCursor &at, uint64_t hash, const uint32_t *tokens,
                    const Extra &extra);
    bool alive(const TreeCursor &at) const {
        return at.node == kNone || header(at.node).generation == at.generation;
    }
    TreeCursor cursor(uint32_t node) const {
        return TreeCursor{node, header(node).generation, header(node).hash};
    }
    // kNone: a first node, or its parent is gone.
    uint32_t parent(uint32_t node) const {
        uint32_t parent = header(node).parent;
        if (parent == kNone) return kNone;
        return header(parent).generation == header(node).parent_generation ? parent : kNone;
    }

    // Entries of a node: [first_entry(g), first_entry(g + 1)) are group g's, in the order of their
    // tokens. Where all groups have blocks of one size, group g has entry g alone.
    uint32_t entry_count() const { return first_entry_[group_count_]; }
    uint32_t first_entry(uint32_t group) const { return first_entry_[group]; }
    // The entry of the group that names this block; kNone: none does. O(entries of the group).
    uint32_t entry_of(uint32_t node, uint32_t group, uint32_t named) const {
        const uint32_t *entries = blocks(node);
        for (uint32_t e = first_entry_[group]; e < first_entry_[group + 1]; ++e) {
            if (entries[e] == named) return e;
        }
        return kNone;
    }
    // [entry_count()] the node's blocks; kNullBlock = none, kOnHost: in the host tier.
    const uint32_t *blocks(uint32_t node) const { return record(node) + kHeaderWords; }
    uint32_t *change_blocks(uint32_t node) {
        changed_.touch(node);
        return record(node) + kHeaderWords;
    }
    const uint32_t *tokens(uint32_t node) const { return tokens_of(node); }

    // For a reader of events: notes nodes that go out of reach or are freed, and apart from them
    // those that are linked or whose blocks change. False: no memory.
    [[nodiscard]] bool watch() { return removed_.watch(capacity_) && changed_.watch(capacity_); }
    // A step was opened, or is over: TouchedNodes.
    void hold_touched() { removed_.hold(), changed_.hold(); }
    void release_touched() { removed_.release(), changed_.release(); }
    bool is_held(uint32_t node) const { return removed_.is_held(node) || changed_.is_held(node); }
    TouchedNodes &removed() { return removed_; }
    TouchedNodes &changed() { return changed_; }

    // Changes when the node is freed: a record with another generation is another node. A record
    // has 2^62 of them, so none is used twice.
    uint64_t generation(uint32_t node) const { return header(node).generation; }
    bool in_use(uint32_t node) const { return (header(node).generation & 1) != 0; }
    // True if it names each block of each full-attention group.
    bool whole(uint32_t node) const {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (full_group_[g] && entry_of(node, g, kNullBlock) != kNone) return false;
        }
        return true;
    }
    bool is_bare(uint32_t node) const {
        for (uint32_t e = 0; e < entry_count(); ++e) {
            if (blocks(node)[e] != kNullBlock) return false;
        }
        return true;
    }

    bool is_first(uint32_t node) const { return header(node).parent == kNone; }
    // True if a walk from the root reaches the node.
    bool reachable(uint32_t node) const {
        while (node != kNone) {
            if (!linked(node)) return false;
            uint32_t above = header(node).parent;
            if (above != kNone && parent(node) == kNone) return false;
            node = above;
        }
        return true;
    }

    // Takes a node out of reach, or back; its record and generation stay.
    void unlink(uint32_t node);
    void relink(uint32_t node);
    bool linked(uint32_t node) const { return header(node).is_linked != 0; }
    // Frees an unlinked node; its generation changes.
    void free_node(uint32_t node);
    // Frees `node`, and then its ancestors, while they name no block and have no children. Returns
    // the first that stays, or kNone. For caches without full-attention groups.
    uint32_t free_if_bare(uint32_t node);
    // Counted only without full-attention groups.
    bool has_children(uint32_t node) const { return header(node).children != 0; }

    uint32_t node_count() const { return node_count_; }
    uint32_t free_count() const { return capacity_ - node_count_; }
    uint64_t bytes_compared() const { return bytes_compared_; }
    void set_bytes_compared(uint64_t bytes) { bytes_compared_ = bytes; }
    uint32_t scope(uint32_t node) const { return header(node).scope; }
    uint32_t capacity() const { return capacity_; }
    uint32_t used() const { return first_unused_; }  // higher numbers were never used

    // pools, host_pools: [group_count], of which the first pool_count are different ones; a host
    // pool may be nullptr.
    Status check(const BlockPool *const *pools, const BlockPool *const *host_pools,
                 uint32_t pool_count) const;
    // Checks that every node names a block or has children. REQUIRES: no full-attention group, and
    // no step is open, which may have taken a block that its commit frees the node of.
    Status check_bare() const;

 private:
    friend class CacheCheck;
    friend class CacheDump;
    friend struct Inside;

    struct Node {
        uint64_t hash;
        uint64_t generation : 63;  // odd = in use
        uint64_t is_linked : 1;
        uint64_t parent_generation;
        uint32_t parent;  // kNone: the root
        uint32_t scope;   // a node out of reach still names it
        uint32_t bucket_next;
        uint32_t children;  // counted only without full-attention groups
        // After the header: the entries (0 = none), and the tokens, on the same cache line if all
        // of it fits there, else from the next one on.
    };
    // Neighbours on the scope's list. Kept apart from the records: eviction writes the links of two
    // other nodes, and one cache line holds eight links.
    struct NodeLink {
        uint32_t prev;
        uint32_t next;
    };

    static constexpr uint32_t kHeaderWords = sizeof(Node) / sizeof(uint32_t);
    static constexpr uint32_t kMostParts = 16;  // candidates that a lookup compares
    static constexpr uint32_t kLeadTokens = 4;  // fewer are not worth a copy of a block

    uint32_t *record(uint32_t node) { return records_.data() + uint64_t{node} * stride_words_; }
    const uint32_t *record(uint32_t node) const {
        return records_.data() + uint64_t{node} * stride_words_;
    }
    Node &header(uint32_t node) { return *reinterpret_cast<Node *>(record(node)); }
    const Node &header(uint32_t node) const {
        return *reinterpret_cast<const Node *>(record(node));
    }
    uint32_t *tokens_of(uint32_t node) { return record(node) + header_words_; }
    const uint32_t *tokens_of(uint32_t node) const { return record(node) + header_words_; }
    void prefetch_record(uint32_t node) const {
        __builtin_prefetch(&header(node), 1);
        __builtin_prefetch(tokens_of(node), 1);
    }
    bool same_scope(uint32_t scope, uint32_t root, const Extra &wanted) const;
    void enter_scope(uint32_t node, uint32_t scope);
    void leave_scope(uint32_t node);
    Status check_records() const;
    Status check_entries(uint32_t node, uint32_t group, const BlockPool *pool,
                         const BlockPool *host_pool) const;
    Status check_bucket(uint64_t bucket, const BlockPool *const *pools,
                        const BlockPool *const *host_pools, uint32_t *found) const;
    Status check_named_by(const BlockPool &pool, uint32_t level) const;
    Status check_hash(uint32_t node) const;
    bool find_begin(uint32_t node, uint32_t *begin) const;
    void leave_parent(const Node &node);
    uint64_t lead_hash(uint64_t parent_hash, const uint32_t *tokens) const {
        return chain_hash(parent_hash, tokens, uint64_t{lead_tokens_} * sizeof(uint32_t));
    }
    Status check_scopes() const;

    Array<uint32_t> records_;  // node i at i * stride_words_
    Array<uint32_t> buckets_;
    Array<uint32_t> free_stack_;  // [capacity] records that were used, the last freed on top
    Array<NodeLink> links_;
    Scopes scopes_;
    LeadIndex leads_;
    TouchedNodes removed_, changed_;
    uint32_t capacity_ = 0;
    uint32_t span_tokens_ = 0;
    uint32_t lead_tokens_ = 0;  // 0: finds no parts
    uint32_t group_count_ = 0;
    uint32_t header_words_ = 0;
    uint32_t stride_words_ = 0;
    uint32_t first_unused_ = 0;  // records from here on were never used
    uint32_t free_nodes_ = 0;    // on the stack
    uint32_t node_count_ = 0;
    bool counts_children_ = false;
    bool has_lists_ = false;  // some scope listed a node
    bool full_group_[kMaxGroups] = {};
    uint32_t first_entry_[kMaxGroups + 1] = {};
    uint64_t bucket_mask_ = 0;
    uint64_t bytes_compared_ = 0;
};

template <typename Usable>
Part PrefixTree::find_part(uint32_t root, const TreeCursor &at, const uint32_t *tokens,
                           uint32_t count, Usable usable) const {
    Part best;
    if (count < lead_tokens_) return best;
    uint32_t node = leads_.first(lead_hash(at.hash, tokens));
    for (uint32_t i = 0; node != kNone && i < kMostParts; ++i, node = leads_.next(node)) {
        const Node &candidate = header(node);
        if (candidate.parent != at.node || candidate.parent_generation != at.generation) continue;
        if (!same_scope(candidate.scope, root, Extra{})) continue;
        const uint32_t *theirs = tokens_of(node);
        uint32_t common = 0;
        while (common < count && theirs[common] == tokens[common]) ++common;
        if (common >= lead_tokens_ && common > best.tokens && usable(node))
            best = Part{node, common};
    }
    return best;
}

}  // namespace quire
