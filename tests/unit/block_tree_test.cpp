// SPDX-License-Identifier: Apache-2.0
//
// block_tree by itself, beside a list of paths: every block that is found holds the tokens that it
// was added with, after the blocks that were found before it.

#include "core/blocks/block_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "inside.hpp"

namespace {

using namespace quire;

using Tokens = std::vector<uint32_t>;
using Blocks = std::vector<uint32_t>;

struct Tree {
    test::Host host;
    Timeline timeline;
    BufferPool buffers{&host.allocator};
    Scopes scopes{&host.allocator, &buffers};
    BlockPool pool{&host.allocator, &timeline};
    BlockTree tree{&host.allocator};
    uint32_t size;

    Tree(uint32_t blocks, uint32_t block_tokens) : size(block_tokens) {
        EXPECT_TRUE(scopes.create(1) && pool.create(blocks + 1, false));
        EXPECT_TRUE(scopes.open_account(0, UINT64_MAX));
        EXPECT_TRUE(tree.create(blocks + 1, block_tokens, 1, &scopes).ok());
    }
    uint32_t root(uint32_t name) {
        uint32_t words[] = {name, 0};
        return scopes.use_root(0, words, 2, true);
    }
    void insert(uint32_t root, uint32_t before, const Tokens &tokens, const Blocks &blocks) {
        tree.insert(root, before, tokens.data(), blocks.data(),
                    static_cast<uint32_t>(blocks.size()));
        for (uint32_t b : blocks) pool[b].node = b;
        check();
    }
    void remove(uint32_t block) {
        tree.remove(block);
        pool[block].node = kNone;
        check();
    }
    Blocks find(uint32_t root, const Tokens &tokens) {
        Blocks found(tokens.size() / size + 1);
        found.resize(tree.find(root, tokens.data(), static_cast<uint32_t>(tokens.size()) / size,
                               found.data()));
        return found;
    }
    Blocks all_of(uint32_t root) {
        Blocks all;
        for (uint32_t b = tree.first_of(root); b != kNone; b = tree.next_of(b)) all.push_back(b);
        std::sort(all.begin(), all.end());
        return all;
    }
    void check() { EXPECT_TRUE(tree.check(pool).ok()) << tree.check(pool).text; }
};

TEST(BlockTree, a_path_is_found_as_far_as_its_tokens_are_equal) {
    Tree t(8, 2);
    const uint32_t root = t.root(1);
    t.insert(root, kNullBlock, {1, 2, 3, 4, 5, 6}, {4, 2, 7});
    EXPECT_EQ(t.find(root, {1, 2, 3, 4, 5, 6, 7, 8}), (Blocks{4, 2, 7}));
    EXPECT_EQ(t.find(root, {1, 2, 3, 9}), Blocks{4});
    EXPECT_EQ(t.find(root, {1, 9}), Blocks{});
    EXPECT_EQ(t.find(root, {}), Blocks{});
    EXPECT_EQ(t.find(t.root(2), {1, 2}), Blocks{}) << "another root";
}

TEST(BlockTree, branches_are_found_and_take_the_place_of_one_that_leaves) {
    Tree t(8, 1);
    const uint32_t root = t.root(1);
    t.insert(root, kNullBlock, {1, 2}, {1, 2});
    t.insert(root, 1, {3}, {3});
    t.insert(root, 1, {4}, {4});
    t.insert(root, kNullBlock, {9}, {5});
    EXPECT_EQ(t.find(root, {1, 3}), (Blocks{1, 3}));
    EXPECT_EQ(t.find(root, {1, 4}), (Blocks{1, 4}));
    EXPECT_EQ(t.find(root, {9}), Blocks{5});
    t.remove(2);
    EXPECT_EQ(t.find(root, {1, 2}), Blocks{1});
    EXPECT_EQ(t.find(root, {1, 3}), (Blocks{1, 3}));
    t.remove(4);
    EXPECT_EQ(t.find(root, {1, 4}), Blocks{1});
    EXPECT_EQ(t.find(root, {1, 3}), (Blocks{1, 3}));
}

TEST(BlockTree, what_follows_a_block_that_left_is_lost_until_it_leaves) {
    Tree t(8, 1);
    const uint32_t root = t.root(1);
    t.insert(root, kNullBlock, {1, 2, 3}, {1, 2, 3});
    t.insert(root, 1, {4}, {4});
    t.remove(1);
    EXPECT_EQ(t.find(root, {1, 2}), Blocks{});
    EXPECT_EQ(t.find(root, {2, 3}), Blocks{}) << "a lost block is no first one";
    EXPECT_EQ(t.tree.count(), 3u);
    EXPECT_EQ(t.all_of(root), (Blocks{2, 3, 4}));
    t.insert(root, kNullBlock, {1, 2}, {1, 5});
    EXPECT_EQ(t.find(root, {1, 2, 3}), (Blocks{1, 5}));
    for (uint32_t b : {3, 2, 4}) t.remove(b);
    EXPECT_EQ(t.find(root, {1, 2, 3}), (Blocks{1, 5}));
}

TEST(BlockTree, a_root_lives_as_long_as_its_blocks) {
    Tree t(8, 1);
    const uint32_t root = t.root(1);
    t.insert(root, kNullBlock, {1, 2}, {1, 2});
    t.scopes.end_use(root);
    EXPECT_EQ(t.scopes.node_count(root), 2u);
    t.remove(2);
    EXPECT_EQ(t.root(1), root) << "the same one";
    EXPECT_EQ(t.find(root, {1}), Blocks{1});
    t.scopes.end_use(root);
    t.remove(1);
    EXPECT_EQ(t.scopes.references(root), 0u);
}

TEST(BlockTree, check_finds_what_is_broken) {
    Tree t(8, 1);
    const uint32_t root = t.root(1);
    t.insert(root, kNullBlock, {1, 2}, {1, 2});
    t.insert(root, 1, {3}, {3});
    auto broken = [&](auto change, auto undo) {
        change();
        EXPECT_FALSE(t.tree.check(t.pool).ok());
        undo();
        t.check();
    };
    auto *tokens = const_cast<uint32_t *>(t.tree.tokens(0));
    broken([&] { tokens[3] = 2; }, [&] { tokens[3] = 3; });
    broken([&] { tokens[1] = 7; }, [&] { tokens[1] = 1; });
    broken([&] { t.pool[2].node = kNone; }, [&] { t.pool[2].node = 2; });
    broken([&] { t.pool[5].node = 5; }, [&] { t.pool[5].node = kNone; });
    broken([&] { Inside::next(t.tree)[1] = 3; }, [&] { Inside::next(t.tree)[1] = 2; });
    broken([&] { Inside::next(t.tree)[5] = 3; }, [&] { Inside::next(t.tree)[5] = 0; });
    broken([&] { t.scopes.set_first_node(root, kNone); },
           [&] { t.scopes.set_first_node(root, 1); });
}

// A model: each block with its root, the block before it, its tokens, and whether it is lost.
struct Model {
    struct Place {
        uint32_t root, before;
        Tokens tokens;
        bool is_lost = false;
    };
    std::map<uint32_t, Place> places;

    Blocks find(uint32_t root, const Tokens &tokens, uint32_t size) const {
        Blocks found;
        for (size_t at = 0; at + size <= tokens.size(); at += size) {
            const uint32_t before = found.empty() ? kNullBlock : found.back();
            const Tokens wanted(tokens.begin() + static_cast<long>(at),
                                tokens.begin() + static_cast<long>(at + size));
            auto one = std::find_if(places.begin(), places.end(), [&](const auto &each) {
                const Place &p = each.second;
                return !p.is_lost && p.root == root && p.before == before && p.tokens == wanted;
            });
            if (one == places.end()) break;
            found.push_back(one->first);
        }
        return found;
    }
    void remove(uint32_t block) {
        places.erase(block);
        for (auto &[number, place] : places) place.is_lost |= place.before == block;
    }
};

void walk(uint32_t seed, uint32_t size) {
    constexpr uint32_t most = 40;
    Tree t(most, size);
    Model model;
    std::mt19937 random(seed);
    auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    const uint32_t roots[] = {t.root(1), t.root(2)};
    for (uint32_t i = 0; i < 3000; ++i) {
        const uint32_t root = roots[below(2)];
        Tokens tokens;
        for (uint32_t place = 0, n = 1 + below(8); place < n; ++place)
            for (uint32_t k = 0, first = below(3); k < size; ++k) tokens.push_back(first + k);
        const Blocks found = t.find(root, tokens);
        ASSERT_EQ(found, model.find(root, tokens, size));
        Blocks fresh;
        for (uint32_t b = 1 + below(most), n = 0; n < most; ++n, b = b % most + 1)
            if (!t.tree.names(b) && found.size() + fresh.size() < tokens.size() / size)
                fresh.push_back(b);
        if (below(2) == 0 && found.size() + fresh.size() == tokens.size() / size &&
            !fresh.empty()) {
            const uint32_t before = found.empty() ? kNullBlock : found.back();
            const Tokens rest(tokens.begin() + static_cast<long>(found.size() * size),
                              tokens.end());
            t.insert(root, before, rest, fresh);
            for (size_t k = 0; k < fresh.size(); ++k)
                model.places[fresh[k]] = {root, k == 0 ? before : fresh[k - 1],
                                          Tokens(rest.begin() + static_cast<long>(k * size),
                                                 rest.begin() + static_cast<long>((k + 1) * size)),
                                          false};
        } else {
            for (uint32_t n = below(3), b = 1 + below(most); n > 0; --n, b = b % most + 1) {
                if (!t.tree.names(b)) continue;
                t.remove(b);
                model.remove(b);
            }
        }
        Blocks all;
        for (const auto &[number, place] : model.places)
            if (place.root == root) all.push_back(number);
        ASSERT_EQ(t.all_of(root), all);
    }
}

TEST(BlockTree, random_paths_are_those_of_the_model) {
    for (uint32_t size : {1u, 3u})
        for (uint32_t seed = 1; seed <= 4; ++seed) walk(seed, size);
}

}  // namespace
