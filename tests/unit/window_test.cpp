// SPDX-License-Identifier: Apache-2.0
//
// Groups of sliding-window layers: what falls out of the window is given back.

#include <algorithm>

#include "manager.hpp"

namespace {

using namespace quire::test;

uint32_t null_front(const Blocks &ids) {
    return static_cast<uint32_t>(
        std::find_if(ids.begin(), ids.end(), [](int32_t id) { return id != 0; }) - ids.begin());
}

TEST(Window, blocks_in_front_of_the_window_become_null_and_come_back) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_NO_PREFIX, .groups = {{}, {.window = 4}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    EXPECT_EQ(null_front(m.table(a, 1)), 0u) << "the prompt's own tokens see them";
    m.compute(a, {9});  // its first position, 8, sees 5..8
    EXPECT_EQ(null_front(m.table(a, 1)), 1u);
    EXPECT_EQ(null_front(m.table(a, 0)), 0u);
    EXPECT_EQ(m.stats().blocks_held, 3u + 2u);
    EXPECT_EQ(m.stats().blocks_free, 16u - 5u);
    m.compute(a, tokens_from(10, 4));  // 9 sees 6..9
    m.compute(a, tokens_from(14, 1));  // 13 sees 10..13
    EXPECT_EQ(null_front(m.table(a, 1)), 2u);
}

TEST(Window, fewer_than_a_block_of_dead_slots_stand_in_front) {
    for (uint32_t window : {1u, 3u, 4u, 7u, 12u}) {
        Manager m({.blocks = 64, .groups = {{}, {.window = window}}});
        quire_seq a = m.sequence();
        for (uint32_t position = 0; position < 60;) {
            uint32_t count = 1 + position % 3;
            m.compute(a, tokens_from(position, count));
            uint32_t visible = position + 1 > window ? position + 1 - window : 0;
            uint32_t front = null_front(m.table(a, 1)) * 4;
            EXPECT_LE(front, visible) << "a block that is still seen is gone";
            EXPECT_LT(visible - front, 4u);
            position += count;
        }
    }
}

TEST(Window, an_open_step_gives_nothing_back_and_its_abort_leaves_all) {
    Manager m({.groups = {{}, {.window = 4}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    std::string before = m.snapshot();
    m.begin();
    m.add(a, {9});
    EXPECT_EQ(null_front(m.table(a, 1)), 0u);
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
}

TEST(Window, a_hit_is_as_long_as_its_windows_are_whole) {
    Manager m({.blocks = 6, .groups = {{.blocks = 16}, {.window = 4}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    for (uint32_t i = 8; i < 17; ++i) m.compute(a, tokens_from(1 + i, 1));
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
    // The oldest window blocks are evicted; the newest still serve the longest hit.
    quire_seq other = m.sequence();
    m.compute(other, tokens_from(500, 12));
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
    EXPECT_EQ(m.probe(tokens_from(1, 5)), 0u) << "its window block was evicted";
    quire_seq b = m.sequence();
    EXPECT_EQ(m.compute(b, tokens_from(1, 17)).hit_tokens, 16u);
    EXPECT_EQ(null_front(m.table(b, 1)), 3u);
    EXPECT_EQ(null_front(m.table(b, 0)), 0u);
}

TEST(Window, a_truncate_into_a_window_that_is_gone_computes_again) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX, .groups = {{}, {.window = 4}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 12));
    for (uint32_t i = 12; i < 20; ++i) m.compute(a, tokens_from(1 + i, 1));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 19, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).computed_tokens, 19u) << "its window is whole";
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 9, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).known_tokens, 9u);
    EXPECT_EQ(m.info(a).computed_tokens, 0u);
    m.check();
    EXPECT_EQ(m.compute(a, {}).compute_count, 9u);
}

TEST(Window, a_cache_of_window_groups_alone_holds_long_sequences) {
    Manager m({.blocks = 4, .groups = {{.window = 6}}});
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 200; ++i) m.compute(a, {i % 50});
    EXPECT_EQ(m.info(a).computed_tokens, 200u);
    EXPECT_LE(m.stats().blocks_held, 3u);
}

}  // namespace
