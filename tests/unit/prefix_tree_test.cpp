// SPDX-License-Identifier: Apache-2.0
//
// prefix_tree by itself: a hash finds, and the comparison decides.

#include "core/blocks/prefix_tree.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "inside.hpp"

namespace {

using namespace quire;

constexpr uint32_t kTokens = 4;

struct Tree {
    test::Host host;
    BufferPool buffers{&host.allocator};
    PrefixTree tree{&host.allocator, &buffers};

    explicit Tree(uint32_t capacity = 64) {
        Geometry geometry;
        geometry.span = BlockSize(kTokens);
        geometry.group_count = 1;
        geometry.any_full = true;
        EXPECT_TRUE(tree.create(geometry, capacity, 1).ok());
        EXPECT_TRUE(tree.scopes().open_account(0, UINT64_MAX));
    }
    uint32_t root(uint32_t name) {
        uint32_t words[] = {name, 0};
        return tree.scopes().use_root(0, words, 2, true);
    }
    // A scope with one span over tokens [begin, end).
    uint32_t scope(uint32_t root, uint32_t begin, uint32_t end, uint32_t picture) {
        Span span{begin, end, tree.scopes().acquire_key(0, &picture, 1)};
        return tree.scopes().use_spans(root, &span, 1);
    }
};

using Tokens = std::vector<uint32_t>;

TEST(PrefixTree, contents_with_the_same_hash_are_told_apart) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4}, b = {1, 2, 3, 5};
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
    Tokens a = {1, 2, 3, 4}, b = {5, 6, 7, 8}, same = {9, 9, 9, 9};
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
    Tokens a = {1, 2, 3, 4};
    t.tree.insert(one, t.tree.root_cursor(one), 42, a.data(), {});
    EXPECT_EQ(t.tree.find(two, t.tree.root_cursor(two), 42, a.data(), {}), kNone);
}

TEST(PrefixTree, spans_over_a_block_are_compared_too) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4};
    uint32_t cat = t.scope(root, 2, 6, 8), dog = t.scope(root, 2, 6, 9);
    uint32_t node = t.tree.insert(root, at, 42, a.data(), t.tree.extra(cat, 0));
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), t.tree.extra(cat, 0)), node);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), t.tree.extra(dog, 0)), kNone);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), t.tree.extra(t.scope(root, 1, 6, 8), 0)), kNone);
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), t.tree.extra(t.scope(root, 4, 6, 8), 0)), kNone)
        << "a span after the block does not apply to it";
    EXPECT_EQ(t.tree.find(root, at, 42, a.data(), {}), kNone);
}

TEST(PrefixTree, another_list_with_the_same_spans_over_a_block_finds_it) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4};
    Span both[] = {{2, 6, t.tree.scopes().acquire_key(0, &at.node, 1)},
                   {8, 9, t.tree.scopes().acquire_key(0, &root, 1)}};
    Span first = both[0];
    uint32_t one = t.tree.scopes().use_spans(root, &first, 1);
    t.tree.scopes().acquire_key(0, &at.node, 1);
    uint32_t two = t.tree.scopes().use_spans(root, both, 2);
    ASSERT_NE(one, two);
    uint64_t hash = t.tree.hash_block(at.hash, a.data(), t.tree.extra(one, 0));
    EXPECT_EQ(hash, t.tree.hash_block(at.hash, a.data(), t.tree.extra(two, 0)));
    uint32_t node = t.tree.insert(root, at, hash, a.data(), t.tree.extra(one, 0));
    EXPECT_EQ(t.tree.find(root, at, hash, a.data(), t.tree.extra(two, 0)), node);
}

TEST(PrefixTree, a_child_of_a_node_that_was_freed_is_out_of_reach_for_good) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
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

// A 32-bit generation would have wrapped around to its first value.
TEST(PrefixTree, a_record_that_lived_two_billion_times_is_not_taken_for_its_first_life) {
    Tree t;
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    uint32_t parent = t.tree.insert(root, at, 1, a.data(), {});
    TreeCursor first = t.tree.cursor(parent);
    uint32_t child = t.tree.insert(root, first, 2, b.data(), {});
    t.tree.unlink(parent);
    t.tree.free_node(parent);
    Inside::live(t.tree, parent, (uint64_t{1} << 31) - 1);
    ASSERT_EQ(t.tree.insert(root, at, 1, a.data(), {}), parent);
    EXPECT_FALSE(t.tree.alive(first));
    EXPECT_EQ(t.tree.parent(child), kNone);
    EXPECT_EQ(t.tree.find(root, t.tree.cursor(parent), 2, b.data(), {}), kNone);
    TreeCursor last = t.tree.cursor(parent);
    EXPECT_NE(t.tree.insert(root, last, 2, b.data(), {}), kNone);
    EXPECT_TRUE(t.tree.alive(last));
}

TEST(PrefixTree, an_eviction_is_undone_whatever_the_age_of_the_record) {
    test::Books b(0, 2);
    quire_seq gone = b.sequence(), other = b.sequence();
    b.compute(gone, 1, 4);
    ASSERT_TRUE(b.cache.end_sequence(gone, 0).ok());
    ASSERT_EQ(b.pool().cached_count(), 1u);
    Inside::live(Inside::tree(b.cache), 0, uint64_t{1} << 40);
    b.begin();
    b.add(other, 50, 8);
    EXPECT_EQ(b.pool().cached_count(), 0u);
    ASSERT_TRUE(b.cache.abort(b.step).ok());
    EXPECT_EQ(b.pool().cached_count(), 1u);
    EXPECT_EQ(b.check(), "");
}

TEST(PrefixTree, a_node_out_of_reach_still_names_its_root) {
    Tree t;
    uint32_t root = t.root(5);
    Tokens a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
    uint32_t parent = t.tree.insert(root, t.tree.root_cursor(root), 1, a.data(), {});
    uint32_t child = t.tree.insert(root, t.tree.cursor(parent), 2, b.data(), {});
    t.tree.scopes().end_use(root);  // the sequence that created them ends
    t.tree.unlink(parent);
    t.tree.free_node(parent);
    EXPECT_NE(t.root(6), root);
    EXPECT_EQ(t.tree.scopes().words(t.tree.scope(child))[0], 5u);
}

TEST(PrefixTree, a_full_tree_takes_no_more_and_a_freed_node_makes_room) {
    Tree t(2);
    uint32_t root = t.root(1);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4};
    t.tree.insert(root, at, 1, a.data(), {});
    uint32_t last = t.tree.insert(root, at, 2, a.data(), {});
    EXPECT_EQ(t.tree.insert(root, at, 3, a.data(), {}), kNone);
    t.tree.unlink(last);
    t.tree.free_node(last);
    EXPECT_EQ(t.tree.insert(root, at, 3, a.data(), {}), last);
    EXPECT_EQ(t.tree.node_count(), 2u);
}

TEST(PrefixTree, publishing_allocates_nothing) {
    Tree t;
    uint32_t root = t.root(1), cat = t.scope(root, 0, 4, 7);
    TreeCursor at = t.tree.root_cursor(root);
    Tokens a = {1, 2, 3, 4};
    uint64_t calls = t.host.calls;
    for (uint64_t hash = 0; hash < 64; ++hash) {
        EXPECT_NE(t.tree.insert(root, at, hash, a.data(), t.tree.extra(cat, 0)), kNone);
    }
    EXPECT_EQ(t.host.calls, calls);
}

}  // namespace
