// SPDX-License-Identifier: Apache-2.0
//
// scopes by itself: spans are compared where they matter, stored once, and counted exactly.

#include "core/blocks/scopes.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "host.hpp"

namespace {

using namespace quire;

struct Table {
    test::Host host;
    BufferPool buffers{&host.allocator};
    Scopes scopes{&host.allocator, &buffers};

    Table() {
        EXPECT_TRUE(scopes.create(1));
        EXPECT_TRUE(scopes.open_account(0, 1 << 20));
        EXPECT_TRUE(scopes.open_account(1, 1 << 20));
    }
    uint32_t root(uint32_t account, std::vector<uint32_t> words) {
        return scopes.use_root(account, words.data(), static_cast<uint32_t>(words.size()), true);
    }
    uint32_t key(uint32_t account, std::vector<uint32_t> words) {
        return scopes.acquire_key(account, words.data(), static_cast<uint32_t>(words.size()));
    }
};

TEST(Scopes, lists_of_spans_are_the_same_in_a_block_only_when_they_are_the_same_there) {
    Table t;
    uint32_t root = t.root(0, {7});
    std::vector<Span> spans;
    for (uint32_t picture : {1u, 2u}) {
        for (auto [begin, end] : {std::pair{0u, 2u}, {1u, 2u}, {1u, 9u}, {4u, 9u}, {9u, 12u}}) {
            spans.push_back(Span{begin, end, picture});
        }
    }
    std::vector<std::vector<Span>> lists;
    for (const Span &a : spans) {
        lists.push_back({a});
        for (const Span &b : spans) lists.push_back({a, b});
    }
    std::vector<uint32_t> scopes;
    for (std::vector<Span> &list : lists) {
        for (Span &span : list) span.key = t.key(0, {span.key});
        scopes.push_back(t.scopes.use_spans(root, list.data(), static_cast<uint32_t>(list.size())));
    }
    for (auto [begin, end] : {std::pair{0u, 4u}, {4u, 8u}, {8u, 12u}}) {
        auto inside = [&, first = begin, last = end](const std::vector<Span> &list) {
            std::vector<std::vector<uint32_t>> out;
            for (const Span &span : list) {
                if (span.begin < last && span.end > first) {
                    out.push_back({span.begin, span.end, span.key});
                }
            }
            return out;
        };
        for (size_t i = 0; i < lists.size(); ++i) {
            EXPECT_EQ(t.scopes.overlaps(scopes[i], begin, end), !inside(lists[i]).empty());
            for (size_t k = 0; k < lists.size(); ++k) {
                bool same = inside(lists[i]) == inside(lists[k]);
                EXPECT_EQ(t.scopes.same_overlap(scopes[i], scopes[k], begin, end), same);
                if (same) {
                    EXPECT_EQ(t.scopes.hash_overlap(3, scopes[i], begin, end),
                              t.scopes.hash_overlap(3, scopes[k], begin, end));
                }
            }
        }
    }
    EXPECT_TRUE(t.scopes.check().ok());
}

TEST(Scopes, a_key_is_stored_once_and_goes_with_its_last_span) {
    Table t;
    uint32_t root = t.root(0, {7});
    uint64_t before = t.scopes.used_bytes(0);
    EXPECT_EQ(before, 64u + 64u);
    std::vector<uint32_t> picture(1000, 5);
    uint32_t scopes[10];
    for (uint32_t i = 0; i < 10; ++i) {
        Span span{i, i + 1, t.key(0, picture)};
        scopes[i] = t.scopes.use_spans(root, &span, 1);
    }
    EXPECT_EQ(t.scopes.used_bytes(0), before + 32 + 4000 + 10 * (64 + 64));
    for (uint32_t scope : scopes) t.scopes.end_use(scope);
    EXPECT_EQ(t.scopes.used_bytes(0), before);
    t.scopes.end_use(root);
    EXPECT_EQ(t.scopes.used_bytes(0), 0u);
    EXPECT_TRUE(t.scopes.check().ok());
}

TEST(Scopes, namespaces_do_not_share_keys) {
    Table t;
    EXPECT_NE(t.key(0, {1, 2, 3}), t.key(1, {1, 2, 3}));
    EXPECT_EQ(t.scopes.used_bytes(0), t.scopes.used_bytes(1));
}

TEST(Scopes, a_failing_allocator_changes_nothing) {
    Table t;
    std::vector<uint32_t> picture(1000, 5);
    uint32_t root = t.root(0, {7});
    uint64_t used = t.scopes.used_bytes(0);
    for (uint32_t n = 1; n < 200; ++n) {
        picture[0] = n;
        t.host.fail_at = t.host.calls + 1;
        uint32_t key = t.key(0, picture);
        t.host.fail_at = UINT64_MAX;
        if (key == Scopes::kNone) {
            EXPECT_EQ(t.scopes.used_bytes(0), used);
            key = t.key(0, picture);
        }
        ASSERT_NE(key, Scopes::kNone);
        Span span{n, n + 1, key};
        t.host.fail_at = t.host.calls + 1;
        uint32_t scope = t.scopes.use_spans(root, &span, 1);
        t.host.fail_at = UINT64_MAX;
        if (scope == Scopes::kNone) {
            EXPECT_EQ(t.scopes.used_bytes(0), used) << "the span's key was freed with it";
        } else {
            used = t.scopes.used_bytes(0);
        }
        EXPECT_TRUE(t.scopes.check().ok());
    }
}

// Random sequences of two namespaces come and go; some leave nodes, as cached content does.
TEST(Scopes, bytes_are_those_of_what_is_there_through_any_order_of_use) {
    Table t;
    std::mt19937 generator(1);
    auto random = [&] { return static_cast<uint32_t>(generator()); };
    struct Use {
        uint32_t root, scope;
    };
    std::vector<Use> uses;
    std::vector<uint32_t> nodes;  // scopes of nodes
    for (uint32_t i = 0; i < 20000; ++i) {
        uint32_t choice = random() % 5, account = random() % 2;
        if (choice < 2) {
            uint32_t name = random() % 4, size = random() % 40, content = random() % 3;
            Use use{t.root(account, {account, name}), Scopes::kNone};
            if (choice == 1) {
                std::vector<uint32_t> picture(size, content);
                std::vector<Span> spans = {{random() % 3, 5, t.key(account, picture)}};
                if (random() % 2 == 0) spans.push_back(Span{7, 9, t.key(account, {9})});
                use.scope =
                    t.scopes.use_spans(use.root, spans.data(), static_cast<uint32_t>(spans.size()));
            }
            uses.push_back(use);
        } else if (choice < 4 && !uses.empty()) {
            size_t at = random() % uses.size();
            Use use = uses[at];
            uses[at] = uses.back();
            uses.pop_back();
            if (random() % 2 == 0) {
                nodes.push_back(use.scope != Scopes::kNone ? use.scope : use.root);
                t.scopes.add_node(nodes.back());
            }
            if (use.scope != Scopes::kNone) t.scopes.end_use(use.scope);
            t.scopes.end_use(use.root);
        } else if (!nodes.empty()) {
            size_t at = random() % nodes.size();
            t.scopes.remove_node(nodes[at]);
            nodes[at] = nodes.back();
            nodes.pop_back();
        }
        if (i % 100 != 0) continue;
        ASSERT_TRUE(t.scopes.check().ok()) << "after " << i;
    }
    for (uint32_t scope : nodes) t.scopes.remove_node(scope);
    for (const Use &use : uses) {
        if (use.scope != Scopes::kNone) t.scopes.end_use(use.scope);
        t.scopes.end_use(use.root);
    }
    EXPECT_TRUE(t.scopes.check().ok());
}

}  // namespace
