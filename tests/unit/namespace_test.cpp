// SPDX-License-Identifier: Apache-2.0
//
// Destroying a namespace: all that it holds goes, and nothing that others hold.

#include "manager.hpp"

namespace {

using namespace quire::test;

quire_status destroy(Manager *m, quire_namespace ns) {
    quire_status status = m->api().namespace_destroy(m->cache(), ns, m->error());
    m->check();
    return status;
}

TEST(Namespace, its_cached_content_goes_with_it_and_that_of_others_stays) {
    for (bool has_window : {false, true}) {
        Manager m(
            {.blocks = 200, .groups = {has_window ? GroupOptions{.window = 8} : GroupOptions{}}});
        std::string salt = "s";
        quire_key keyed[] = {{QUIRE_KEY_SALT, 1, salt.data(), 0, 0},
                             {QUIRE_KEY_MEDIA, 1, salt.data(), 3, 30}};
        std::vector<quire_namespace> spaces = {m.name_space(), m.name_space(), 0};
        for (quire_namespace ns : spaces) {
            for (uint32_t keys : {0u, 1u, 2u}) {
                quire_seq a = m.sequence({.ns = ns, .keys = {keyed, keyed + keys}});
                m.compute(a, tokens_from(1, 41));
                m.compute(a, tokens_from(50, 1));
                m.end(a);
            }
        }
        uint64_t cached = m.stats().blocks_cached, nodes = m.stats().nodes;
        EXPECT_EQ(destroy(&m, spaces[0]), QUIRE_OK);
        EXPECT_EQ(m.stats().blocks_cached, cached / 3 * 2);
        EXPECT_EQ(m.stats().nodes, nodes / 3 * 2);
        EXPECT_EQ(destroy(&m, spaces[0]), QUIRE_E_STALE);
        EXPECT_EQ(m.probe(tokens_from(1, 41), {.ns = spaces[1]}), 40u);
        EXPECT_EQ(m.probe(tokens_from(1, 41)), 40u);
        EXPECT_EQ(destroy(&m, spaces[1]), QUIRE_OK);
        EXPECT_EQ(m.stats().nodes, nodes / 3);
        EXPECT_EQ(m.probe(tokens_from(1, 41)), 40u);
    }
}

TEST(Namespace, what_eviction_left_of_it_goes_too) {
    Manager m({.blocks = 8});
    quire_namespace ns = m.name_space();
    quire_seq a = m.sequence({.ns = ns});
    m.compute(a, tokens_from(1, 24));
    m.end(a);
    quire_seq other = m.sequence();
    m.compute(other, tokens_from(100, 20));
    EXPECT_EQ(m.stats().blocks_cached, 3u);
    EXPECT_EQ(destroy(&m, ns), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_cached, 0u);
}

TEST(Namespace, its_number_and_place_serve_the_next_one) {
    Manager m;
    for (uint32_t i = 0; i < 100; ++i) {
        quire_namespace ns = m.name_space(0, 1000 + i);
        EXPECT_EQ(m.info_of(ns).key_bytes, 0u);
        EXPECT_EQ(m.info_of(ns).key_bytes_limit, 1000 + i);
        quire_seq a = m.sequence({.ns = ns});
        EXPECT_EQ(m.compute(a, tokens_from(1, 9)).hit_tokens, 0u);
        EXPECT_EQ(m.info_of(ns).key_bytes, 128u);
        m.end(a);
        ASSERT_EQ(destroy(&m, ns), QUIRE_OK);
    }
}

}  // namespace
