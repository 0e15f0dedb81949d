// SPDX-License-Identifier: Apache-2.0
//
// Forks: sharing, copy on write, writing in place.

#include "manager.hpp"

namespace {

using namespace quire::test;

TEST(Fork, a_prompt_shared_by_four_beams_is_held_once) {
    Manager m;
    quire_seq first = m.sequence();
    m.compute(first, tokens_from(1, 8));
    std::vector<quire_seq> beams = {first};
    for (int i = 0; i < 3; ++i) beams.push_back(m.fork(first, 8));
    EXPECT_EQ(m.stats().blocks_held, 2u);
    for (quire_seq beam : beams) EXPECT_EQ(m.table(beam), m.table(first));
    m.begin();
    for (quire_token i = 0; i < 4; ++i) m.add(beams[i], {100 + i});
    EXPECT_TRUE(m.copies(m.open()).empty());  // the prompt ends at a block boundary
    m.finish(m.commit());
    EXPECT_EQ(m.stats().blocks_held, 2u + 4u);
}

TEST(Fork, forking_at_any_token_takes_no_block_until_one_writes) {
    for (uint32_t at = 0; at <= 6; ++at) {
        Manager m;
        quire_seq parent = m.sequence();
        m.compute(parent, tokens_from(1, 6));
        quire_seq child = m.fork(parent, at);
        EXPECT_EQ(m.stats().blocks_held, 2u) << at;
        EXPECT_EQ(m.info(child).computed_tokens, at);
        EXPECT_EQ(m.table(child).size(), (at + 3) / 4);
    }
}

TEST(Fork, the_writer_that_is_not_the_owner_copies_once) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    quire_seq child = m.fork(parent, 6);
    int32_t shared = m.table(parent)[1];
    m.begin();
    m.add(child, {100});
    auto copies = m.copies(m.open());
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].kind, uint32_t{QUIRE_COPY_ON_WRITE});
    EXPECT_EQ(copies[0].src, shared);
    EXPECT_EQ(copies[0].dst, m.table(child)[1]);
    EXPECT_NE(copies[0].dst, shared);
    m.finish(m.commit());
    m.begin();
    m.add(child, {101});
    EXPECT_TRUE(m.copies(m.open()).empty());
    m.finish(m.commit());
    EXPECT_EQ(m.stats().copies_on_write, 1u);
    EXPECT_EQ(m.table(parent)[1], shared);
}

TEST(Fork, the_owner_writes_behind_what_others_read_in_place) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    quire_seq child = m.fork(parent, 5);
    Blocks before = m.table(parent);
    m.begin();
    m.add(parent, {7});
    EXPECT_TRUE(m.copies(m.open()).empty());
    m.finish(m.commit());
    EXPECT_EQ(m.table(parent), before);
    EXPECT_EQ(m.table(child), before);
}

TEST(Fork, the_owner_copies_where_others_read) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    m.fork(parent, 6);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), parent, 5, m.error()), QUIRE_OK);
    m.begin();
    m.add(parent, {100});  // token 5, which the child reads
    EXPECT_EQ(m.copies(m.open()).size(), 1u);
}

TEST(Fork, an_unpublished_block_with_one_reference_is_adopted) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    quire_seq child = m.fork(parent, 6);
    Blocks before = m.table(child);
    m.end(parent);
    m.begin();
    m.add(child, {100});
    EXPECT_TRUE(m.copies(m.open()).empty());
    m.finish(m.commit());
    EXPECT_EQ(m.table(child), before);
}

TEST(Fork, a_published_block_is_never_written_in_place) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 6, m.error()), QUIRE_OK);
    m.begin();
    m.add(a, {100});
    EXPECT_EQ(m.copies(m.open()).size(), 1u);
    m.finish(m.commit());
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);  // the published block is intact
}

TEST(Fork, a_fork_of_an_unfinished_step_has_what_it_computes) {
    Manager m;
    quire_seq parent = m.sequence();
    m.begin();
    m.add(parent, tokens_from(1, 6));
    quire_step step = m.commit();
    quire_seq child = m.fork(parent, 6);
    EXPECT_EQ(m.info(child).computed_tokens, 6u);
    m.finish(step);
}

TEST(Fork, a_fork_behind_what_is_computed_knows_the_rest) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 10), {.max_compute = 5});
    quire_seq child = m.fork(parent, 9);
    EXPECT_EQ(m.info(child).known_tokens, 9u);
    EXPECT_EQ(m.info(child).computed_tokens, 5u);
    EXPECT_EQ(m.compute(child, {}).compute_count, 4u);
}

TEST(Fork, a_fork_inherits_keys_and_namespace) {
    Manager m;
    quire_namespace ns = m.name_space();
    quire_seq parent = m.sequence({.ns = ns});
    m.compute(parent, tokens_from(1, 3));
    quire_seq child = m.fork(parent, 3);
    m.compute(child, tokens_from(4, 1));
    EXPECT_EQ(m.probe(tokens_from(1, 5), {.ns = ns}), 4u);
    EXPECT_EQ(m.probe(tokens_from(1, 5)), 0u);
}

TEST(Fork, a_thousand_forks_of_one_are_ended_in_any_order) {
    Manager m({.max_sequences = 1100});
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 10));
    std::vector<quire_seq> forks;
    for (uint32_t i = 0; i < 1000; ++i) forks.push_back(m.fork(parent, i % 11));
    EXPECT_EQ(m.stats().blocks_held, 3u);
    m.end(parent);
    for (uint32_t i = 0; i < 1000; ++i) m.end(forks[(i * 7) % 1000]);
    EXPECT_EQ(m.stats().blocks_held, 0u);
    EXPECT_EQ(m.stats().blocks_free + m.stats().blocks_cached, 32u);
}

}  // namespace
