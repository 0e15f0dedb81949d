// SPDX-License-Identifier: Apache-2.0
//
// prefix_tree: which computed content is in which blocks; every hit is verified.
//
// A node is one block-sized span of tokens under one parent, and names one optional block per
// group. The parent of a first node is a root: one namespace and one set of whole-sequence keys. A
// node is found through a hash of everything before it, and taken only if its parent is the node
// matched before (index and generation), and its tokens and extra keys are equal. So a collision
// costs time and never serves foreign content.
//
// A node leaves when it loses its block of a full-attention group; nodes below it are then out of
// reach and leave as their own blocks are evicted. Without full-attention groups a node stays while
// it names a block or has children: its tokens are what a match below it is compared with. So there
// the blocks do not bound the nodes; Cache::make_node_room does.
//
// Invariants (check()): (1) every linked node is in the bucket of its hash; (2) a linked node names
// a block in each full-attention group, and those blocks name it; (3) a block names a node in use
// that names it.
//
// Threads: none; Cache holds its lock.
#pragma once

#include "block_pool.hpp"
#include "geometry.hpp"
#include "hash.hpp"

namespace quire {

// Bytes beside the tokens that decide a block's content, as words; built by SequenceKeys.
struct Extra {
    const uint32_t *words = nullptr;
    uint32_t count = 0;
};

// A point in the tree: a node, or with node == kNone the root itself.
struct TreeCursor {
    uint32_t node = kNone;
    uint32_t generation = 0;
    uint64_t hash = 0;  // of everything up to here
};

class PrefixTree {
 public:
    PrefixTree(const HostAllocator *host, BufferPool *buffers)
        : records_(host),
          buckets_(host),
          free_stack_(host),
          extras_(host),
          roots_(host),
          root_buckets_(host),
          buffers_(buffers) {}
    ~PrefixTree();

    Status create(const Geometry &geometry, uint32_t node_capacity, uint64_t seed);

    // Room for so many nodes; nothing else changes. False: no memory.
    [[nodiscard]] bool reserve(uint32_t node_capacity);

    // A root holds its key words; equal words give the same root. kNone: no memory.
    // Each call is paired with a release_root.
    uint32_t acquire_root(const uint32_t *words, uint32_t word_count);
    void release_root(uint32_t root);
    void share_root(uint32_t root) { ++roots_[root].references; }
    TreeCursor root_cursor(uint32_t root) const { return TreeCursor{kNone, 0, roots_[root].hash}; }

    uint64_t hash_block(uint64_t previous, const uint32_t *tokens, const Extra &extra) const {
        uint64_t hash = chain_hash(previous, tokens, uint64_t{block_tokens_} * sizeof(uint32_t));
        if (extra.count != 0) hash = chain_hash(hash, extra.words, uint64_t{extra.count} * 4);
        return hash;
    }

    // The child of `at` with this content, or kNone. Counts compared bytes.
    uint32_t find(uint32_t root, const TreeCursor &at, uint64_t hash, const uint32_t *tokens,
                  const Extra &extra);
    void prefetch_bucket(uint64_t hash) const {
        __builtin_prefetch(&buckets_[hash & bucket_mask_]);
    }
    // Asks for the first candidate of a bucket that was prefetched before.
    void prefetch_candidate(uint64_t hash) const {
        uint32_t node = buckets_[hash & bucket_mask_];
        if (node == kNone) return;
        __builtin_prefetch(&header(node));
        __builtin_prefetch(tokens_of(node));
    }
    void prefetch_node(uint32_t node) const { __builtin_prefetch(&header(node)); }
    // The node should be there already, see prefetch_node.
    void prefetch_bucket_of(uint32_t node) const { prefetch_bucket(header(node).hash); }
    uint32_t candidate(uint64_t hash) const { return buckets_[hash & bucket_mask_]; }

    // Adds a child that is not there yet; it names no block. kNone when no node is left.
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

    // [group_count] the node's blocks; kNullBlock = none.
    uint32_t *blocks(uint32_t node) { return record(node) + kHeaderWords; }
    const uint32_t *blocks(uint32_t node) const { return record(node) + kHeaderWords; }

    // Moves on when the node is freed: a record with another one is another node.
    uint32_t generation(uint32_t node) const { return header(node).generation; }
    bool in_use(uint32_t node) const { return (header(node).generation & 1) != 0; }
    // Does it name a block in each full-attention group?
    bool whole(uint32_t node) const {
        for (uint32_t g = 0; g < group_count_; ++g) {
            if (full_group_[g] && blocks(node)[g] == kNullBlock) return false;
        }
        return true;
    }

    // Does a walk from the root come to the node?
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
    bool linked(uint32_t node) const { return (header(node).flags & kLinked) != 0; }
    // Frees an unlinked node; its generation moves on.
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
    const uint32_t *root_words(uint32_t node) const { return roots_[header(node).root].words.data; }
    uint32_t capacity() const { return capacity_; }

    Status check(const BlockPool *const *pools) const;

 private:
    static constexpr uint32_t kLinked = 1;

    struct Node {
        uint64_t hash;
        uint32_t parent;  // kNone: the root
        uint32_t parent_generation;
        uint32_t generation;  // odd = in use
        uint32_t root;
        uint32_t bucket_next;
        uint32_t flags;
        uint32_t children;  // counted only without full-attention groups
        uint32_t extra;     // index of its words, kNone = none
        // Behind it: a block of each group (0 = none), and on the next cache line the tokens.
    };
    struct ExtraRecord {
        Buffer words;
        uint32_t count;
        uint32_t next_free;
    };
    struct Root {
        Buffer words;
        uint32_t count;
        uint32_t references;  // sequences and nodes: a node out of reach still names its root
        uint32_t next;        // in the bucket, or the free list
        uint32_t reserved0;
        uint64_t hash;
    };

    static constexpr uint32_t kHeaderWords = sizeof(Node) / sizeof(uint32_t);

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
    bool same_extra(uint32_t extra, const Extra &wanted) const;
    bool store_extra(Node *node, const Extra &extra);
    void leave_parent(const Node &node);
    void spread_roots();
    uint32_t &root_bucket(uint64_t hash) {
        return root_buckets_[hash & (root_buckets_.size() - 1)];
    }

    Array<uint32_t> records_;  // node i at i * stride_words_
    Array<uint32_t> buckets_;
    Array<uint32_t> free_stack_;  // [capacity] records that were used, the last freed on top
    Array<ExtraRecord> extras_;
    Array<Root> roots_;
    Array<uint32_t> root_buckets_;
    BufferPool *buffers_;
    uint32_t capacity_ = 0;
    uint32_t block_tokens_ = 0;
    uint32_t group_count_ = 0;
    uint32_t header_words_ = 0;
    uint32_t stride_words_ = 0;
    uint32_t first_unused_ = 0;  // records from here on were never used
    uint32_t free_nodes_ = 0;    // on the stack
    uint32_t free_extra_ = kNone;
    uint32_t free_root_ = kNone;
    uint32_t root_count_ = 0;
    uint32_t node_count_ = 0;
    bool counts_children_ = false;
    bool full_group_[kMaxGroups] = {};
    uint64_t bucket_mask_ = 0;
    uint64_t seed_ = 0;
    uint64_t bytes_compared_ = 0;
};

}  // namespace quire
