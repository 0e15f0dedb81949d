// SPDX-License-Identifier: Apache-2.0
//
// prefix_tree by itself: a hash finds, the comparison decides.

#include "core/prefix_tree.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "host.hpp"

namespace {

using namespace quire;

constexpr uint32_t kTokens = 4;

struct Tree {
    test::Host host;
    BufferPool buffers{&host.allocator};
    PrefixTree tree{&host.allocator, &buffers};

    explicit Tree(uint32_t capacity = 64) {
        Geometry geometry;
        geometry.block_tokens = kTokens;
        geometry.group_count = 1;
        geometry.any_full = true;
        EXPECT_TRUE(tree.create(geometry, capacity, 1).ok());
    }
    uint32_t root(uint32_t name) {
        uint32_t words[] = {name, 0};
        return tree.acquire_root(words, 2);
    }
};

using Span = std::vector<uint32_t>;

TEST(PrefixTree, contents_with_the_same_hash_are_told_apart) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4}, b = {1, 2, 3, 5};
    constexpr uint64_t hash = 42;  // the same for both
    uint32_t node_a = t.tree.insert(root, at, hash, a.data(), {});
    EXPECT_EQ(t.tree.find(root, at, hash, b.data(), {}), kNone);
    uint32_t node_b = t.tree.insert(root, at, hash, b.data(), {});
    EXPECT_EQ(t.tree.find(root, at, hash, a.data(), {}), node_a);
    EXPECT_EQ(t.tree.find(root, at, hash, b.data(), {}), node_b);
}

TEST(PrefixTree, the_same_tokens_below_another_parent_are_another_node) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, same = {9, 9, 9, 9};
    uint32_t first = t.tree.insert(root, at, 1, a.data(), {});
    uint32_t second = t.tree.insert(root, at, 2, b.data(), {});
    uint32_t child = t.tree.insert(root, t.tree.cursor(first), 42, same.data(), {});
    EXPECT_EQ(t.tree.find(root, t.tree.cursor(first), 42, same.data(), {}), child);
    EXPECT_EQ(t.tree.find(root, t.tree.cursor(second), 42, same.data(), {}), kNone);
    EXPECT_EQ(t.tree.find(root, at, 42, same.data(), {}), kNone);
}

TEST(PrefixTree, a_root_with_the_same_hash_is_another_root) {
    Tree t;
    uint32_t one = t.root(1), two = t.root(2);
    EXPECT_NE(one, two);
    EXPECT_EQ(t.root(1), one);
    Span a = {1, 2, 3, 4};
    t.tree.insert(one, t.tree.root_cursor(one), 42, a.data(), {});
    EXPECT_EQ(t.tree.find(two, t.tree.root_cursor(two), 42, a.data(), {}), kNone);
}

TEST(PrefixTree, extra_words_are_compared_too) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4};
    uint32_t cat[] = {7, 8}, dog[] = {7, 9};
    uint32_t node = t.tree.insert(root, at, 42, a.data(), {cat, 2});
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), {cat, 2}), node);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), {dog, 2}), kNone);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), {cat, 1}), kNone);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), {}), kNone);
}

TEST(PrefixTree, a_child_of_a_node_that_was_freed_is_out_of_reach_for_good) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    uint32_t parent = t.tree.insert(root, at, 1, a.data(), {});
    TreeCursor old = t.tree.cursor(parent);
    uint32_t child = t.tree.insert(root, old, 2, b.data(), {});
    t.tree.unlink(parent);
    t.tree.free_node(parent);
    EXPECT_FALSE(t.tree.alive(old));
    EXPECT_EQ(t.tree.parent(child), kNone);
    EXPECT_EQ(t.tree.insert(root, at, 1, a.data(), {}), parent) << "its record is used again";
    EXPECT_EQ(t.tree.find(root, t.tree.cursor(parent), 2, b.data(), {}), kNone);
}

TEST(PrefixTree, a_node_out_of_reach_still_names_its_root) {
    Tree t;
    uint32_t root = t.root(5);
    Span a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    uint32_t parent = t.tree.insert(root, t.tree.root_cursor(root), 1, a.data(), {});
    uint32_t child = t.tree.insert(root, t.tree.cursor(parent), 2, b.data(), {});
    t.tree.release_root(root);  // the sequence that made them ends
    t.tree.unlink(parent);
    t.tree.free_node(parent);
    EXPECT_NE(t.root(6), root);
    EXPECT_EQ(t.tree.root_words(child)[0], 5u);
}

TEST(PrefixTree, a_full_tree_takes_no_more_and_a_freed_node_makes_room) {
    Tree t(2);
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4};
    t.tree.insert(root, at, 1, a.data(), {});
    uint32_t last = t.tree.insert(root, at, 2, a.data(), {});
    EXPECT_EQ(t.tree.insert(root, at, 3, a.data(), {}), kNone);
    t.tree.unlink(last);
    t.tree.free_node(last);
    EXPECT_EQ(t.tree.insert(root, at, 3, a.data(), {}), last);
    EXPECT_EQ(t.tree.node_count(), 2u);
}

TEST(PrefixTree, no_memory_for_extra_words_leaves_the_tree_as_it_was) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Span a = {1, 2, 3, 4};
    uint32_t words[] = {7};
    for (uint64_t n = 1; n <= 2; ++n) {
        t.host.fail_at = t.host.calls + n;
        EXPECT_EQ(t.tree.insert(root, at, 42, a.data(), {words, 1}), kNone);
        EXPECT_EQ(t.tree.node_count(), 0u);
    }
    t.host.fail_at = UINT64_MAX;
    EXPECT_NE(t.tree.insert(root, at, 42, a.data(), {words, 1}), kNone);
}

}  // namespace
