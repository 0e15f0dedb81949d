// SPDX-License-Identifier: Apache-2.0
//
// Recurrent groups: one running state per sequence, snapshots at the ends of blocks.

#include <algorithm>

#include "leased.hpp"
#include "random_walk.hpp"
#include "recurrent_states.hpp"

namespace {

using namespace quire::test;

// A group of full attention and a recurrent one, with blocks of 4 tokens.
CacheOptions with_states(uint32_t blocks = 24) {
    CacheOptions options;
    options.blocks = blocks;
    options.groups = {{}, {.kind = QUIRE_GROUP_RECURRENT}};
    return options;
}

TEST(Recurrent, a_sequence_keeps_its_newest_state) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    EXPECT_EQ(states(m, a), (Entries{0, 1, 2})) << "the item that crossed borders left snapshots";
    m.compute(a, {11});
    EXPECT_EQ(states(m, a), (Entries{2})) << "the item began in the third block";
    m.compute(a, tokens_from(12, 2));
    EXPECT_EQ(states(m, a), (Entries{2, 3}));
    m.compute(a, {14});
    EXPECT_EQ(states(m, a), (Entries{3}));
    EXPECT_EQ(m.table(a, 0).size(), 4u);
}

TEST(Recurrent, a_hit_needs_the_snapshot_that_ends_there) {
    CacheOptions options = with_states();
    options.groups[1].blocks = 4;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.compute(a, {11});
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
    quire_seq b = m.sequence();
    const quire_step_result result = m.compute(b, tokens_from(1, 9));
    EXPECT_EQ(result.hit_tokens, 8u);
    EXPECT_EQ(states(m, b), (Entries{1, 2})) << "the snapshot, and the running state";
    // The older snapshot leaves when its block is needed, and with it the shorter hit.
    quire_seq c = m.sequence();
    m.compute(c, tokens_from(500, 5));
    EXPECT_EQ(m.probe(tokens_from(1, 6)), 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST(Recurrent, a_state_of_the_open_step_is_not_found) {
    Manager m(with_states());
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 8));
    EXPECT_EQ(m.add(b, tokens_from(1, 9)).hit_tokens, 0u);
    m.finish(m.commit());
    quire_seq c = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(c, tokens_from(1, 9)).hit_tokens, 8u);
    m.finish(m.commit());
}

TEST(Recurrent, a_fork_copies_the_running_state_before_either_goes_on) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    quire_seq b = m.fork(a, 6);
    EXPECT_EQ(m.info(b).computed_tokens, 6u);
    EXPECT_EQ(m.table(a, 1)[1], m.table(b, 1)[1]);
    const int32_t shared = m.table(a, 1)[1];
    m.begin();
    m.add(a, {7});
    const quire_step step = m.commit();
    bool copied = false;
    for (const quire_block_copy &copy : m.copies(step))
        copied |= copy.group == 1 && copy.kind == QUIRE_COPY_ON_WRITE && copy.src == shared &&
                  copy.dst == m.table(a, 1)[1];
    EXPECT_TRUE(copied) << "the owner, too, would overwrite what the fork reads";
    m.finish(step);
    m.begin();
    m.add(b, {70});
    const quire_step next = m.commit();
    for (const quire_block_copy &copy : m.copies(next)) EXPECT_EQ(copy.group, 0u);
    EXPECT_EQ(m.table(b, 1)[1], shared) << "it has the state alone now";
    m.finish(next);
}

TEST(Recurrent, an_item_that_has_the_state_alone_goes_with_the_one_that_copied_it) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    quire_seq b = m.fork(a, 6);
    const std::string before = m.snapshot();
    m.begin();
    m.add(b, {70});  // copies the state
    m.add(a, {7});   // has it alone then
    m.check();
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    m.begin();
    m.add(b, {70});
    m.add(a, {7});
    EXPECT_EQ(m.drop(b), (std::vector<quire_seq>{b, a}));
    m.check();
    m.add(a, {7});
    m.check();
    m.finish(m.commit());
    EXPECT_NE(m.table(a, 1)[1], m.table(b, 1)[1]);
}

TEST(Recurrent, a_fork_of_fewer_tokens_begins_at_a_snapshot) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 11));
    quire_seq b = m.fork(a, 10);
    EXPECT_EQ(m.info(b).computed_tokens, 8u);
    EXPECT_EQ(m.compute(b, {}).first_position, 8u);
    m.compute(a, {12});  // lets the snapshots go
    quire_seq c = m.fork(a, 11);
    EXPECT_EQ(m.info(c).computed_tokens, 0u);
    EXPECT_EQ(m.compute(c, {}).hit_tokens, 8u) << "a snapshot is still found";
}

TEST(Recurrent, a_truncation_recomputes_from_the_newest_snapshot_that_is_left) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 11));
    auto truncate = [&](uint32_t count) {
        EXPECT_EQ(m.api().seq_truncate(m.cache(), a, count, m.error()), QUIRE_OK) << m.message();
        m.check();
        return m.info(a).computed_tokens;
    };
    EXPECT_EQ(truncate(11), 11u) << "nothing was taken away";
    EXPECT_EQ(truncate(10), 8u);
    EXPECT_EQ(truncate(7), 4u);
    EXPECT_EQ(m.compute(a, tokens_from(50, 6)).first_position, 4u);
    m.compute(a, {56});
    EXPECT_EQ(truncate(9), 0u) << "its window of one state has passed the snapshots";
}

TEST(Recurrent, abort_and_drop_leave_the_state) {
    Manager m(with_states());
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 6));
    const std::string before = m.snapshot();
    m.begin();
    m.add(a, tokens_from(7, 6));
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    m.begin();
    m.add(a, tokens_from(7, 6));
    m.add(b, tokens_from(90, 2));
    m.drop(a);
    m.finish(m.commit());
    EXPECT_EQ(m.compute(a, tokens_from(7, 6)).first_position, 6u);
}

TEST(Recurrent, a_swap_brings_the_running_state_back) {
    CacheOptions options = with_states();
    options.host_blocks = 8;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    m.compute(a, {7});
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    m.finish(m.commit());
    EXPECT_EQ(m.compute(a, {8}).first_position, 7u);
    EXPECT_EQ(states(m, a), (Entries{1}));
}

TEST(Recurrent, a_recompute_begins_at_the_longest_hit) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    m.finish(m.commit());
    EXPECT_EQ(m.compute(a, {11}).first_position, 8u);
}

TEST(Recurrent, a_failed_step_takes_the_state_back_to_a_snapshot) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));  // leaves the snapshot at 4
    m.begin();
    m.add(a, {7});
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(a).computed_tokens, 0u) << "the commit gave the snapshot back";
    EXPECT_EQ(m.info(a).known_tokens, 7u);
    EXPECT_EQ(m.compute(a, {}).hit_tokens, 4u) << "but it can be found";
}

TEST(Recurrent, a_migration_moves_states) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.compute(a, {11});
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.blocks = 4 + 1;
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(m.compute(a, {12}).first_position, 11u);
}

TEST(Recurrent, items_that_would_go_back_are_refused) {
    Manager m(with_states());
    quire_seq a = m.sequence();
    m.begin();
    quire_step_result result{};
    EXPECT_EQ(m.try_add(a, tokens_from(1, 3), {.drafts = 1}, &result), QUIRE_E_UNSUPPORTED);
    EXPECT_NE(m.message().find("recurrent"), std::string::npos);
    EXPECT_EQ(m.try_add(a, tokens_from(1, 3), {.lookahead = 1}, &result), QUIRE_E_UNSUPPORTED);
    m.abort();
}

TEST(Recurrent, larger_blocks_and_one_pool_serve_states_too) {
    CacheOptions options = with_states(12);
    options.flags = QUIRE_CACHE_ONE_POOL;
    options.groups[1].block_tokens = 12;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    EXPECT_EQ(states(m, a), (Entries{0, 1}));
    m.end(a);
    quire_seq b = m.sequence();
    EXPECT_EQ(m.compute(b, tokens_from(1, 15)).hit_tokens, 12u);
}

TEST(Recurrent, a_cache_of_states_alone_finds_its_snapshots) {
    CacheOptions options;
    options.blocks = 12;
    options.groups = {{.kind = QUIRE_GROUP_RECURRENT}};
    Manager m(options);
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 30; ++i) m.compute(a, tokens_from(1 + i, 1));
    EXPECT_EQ(m.stats().blocks_held, 1u);
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 30)), 28u);
    EXPECT_EQ(m.probe(tokens_from(1, 14)), 12u);
}

// Random items, forks, truncations and ends; the library checks itself after each.
TEST(Recurrent, any_order_of_operations_keeps_its_books) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        CacheOptions options = with_states(20);
        options.groups.push_back({.window = 9});
        options.host_blocks = 20;
        if (seed % 2 == 0) options.flags = QUIRE_CACHE_ONE_POOL;
        if (seed % 2 == 0) options.blocks = 40;
        if (seed % 3 == 0) options.groups[1].block_tokens = 8;
        Manager m(options);
        walk_randomly(m, seed, {.most_tokens = 7, .forks_whole = true});
    }
}

}  // namespace
