// SPDX-License-Identifier: Apache-2.0
//
// Recurrent groups with a state_interval: one state, at the end of the last item, and blocks for
// drafts after it.

#include <algorithm>

#include "leased.hpp"
#include "random_walk.hpp"
#include "recurrent_states.hpp"

namespace {

using namespace quire::test;

// A group of full attention and a recurrent one that keeps one state, with blocks of 4 tokens.
CacheOptions with_state(uint32_t drafts = 0, uint32_t interval = 4, uint32_t blocks = 24) {
    CacheOptions options;
    options.blocks = blocks;
    options.groups = {
        {}, {.kind = QUIRE_GROUP_RECURRENT, .state_interval = interval, .draft_states = drafts}};
    return options;
}

quire_step_result compute(Manager &m, quire_seq seq, const Tokens &tokens, uint32_t lookahead = 0) {
    m.begin();
    const quire_step_result result = m.add(seq, tokens, {.lookahead = lookahead});
    m.check();
    m.finish(m.commit());
    m.check();
    return result;
}

TEST(StateInterval, an_item_leaves_one_state_at_its_end) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    EXPECT_EQ(states(m, a), (Entries{2}));
    const int32_t block = m.table(a, 1)[2];
    m.compute(a, tokens_from(11, 2));
    EXPECT_EQ(states(m, a), (Entries{2}));
    EXPECT_EQ(m.table(a, 1)[2], block) << "in place within its block";
    m.compute(a, {13});
    EXPECT_EQ(states(m, a), (Entries{3}));
    m.compute(a, tokens_from(14, 12));
    EXPECT_EQ(states(m, a), (Entries{6}));
    EXPECT_EQ(m.table(a, 0).size(), 7u);
    EXPECT_EQ(m.stats().blocks_held, 7u + 1u);
}

TEST(StateInterval, the_state_is_copied_to_its_next_block) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    const int32_t older = m.table(a, 1)[1];
    m.begin();
    m.add(a, tokens_from(7, 8));
    const quire_step step = m.commit();
    const std::vector<quire_block_copy> copies = m.copies(step);
    ASSERT_EQ(copies.size(), 1u);
    EXPECT_EQ(copies[0].kind, uint32_t{QUIRE_COPY_ON_WRITE});
    EXPECT_EQ(copies[0].group, 1u);
    EXPECT_EQ(copies[0].src, older);
    EXPECT_EQ(copies[0].dst, m.table(a, 1)[3]);
    m.finish(step);
}

TEST(StateInterval, hits_end_where_items_ended_on_a_border) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.compute(a, tokens_from(9, 6));
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 14)), 8u) << "no item ended at 12";
    EXPECT_EQ(m.probe(tokens_from(1, 8)), 0u) << "one token is always computed";
    quire_seq b = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(b, tokens_from(1, 11)).hit_tokens, 8u);
    m.check();
    const quire_step step = m.commit();
    EXPECT_EQ(states(m, b), (Entries{2}));
    ASSERT_EQ(m.copies(step).size(), 1u) << "from the snapshot";
    EXPECT_EQ(m.copies(step)[0].dst, m.table(b, 1)[2]);
    m.finish(step);
    EXPECT_EQ(m.probe(tokens_from(1, 14)), 8u) << "the snapshot stays cached";
}

TEST(StateInterval, only_multiples_of_the_interval_are_snapshots) {
    Manager m(with_state(0, 8));
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 5; ++i) m.compute(a, tokens_from(1 + 4 * i, 4));
    EXPECT_EQ(m.probe(tokens_from(1, 20)), 16u);
    EXPECT_EQ(m.probe(tokens_from(1, 15)), 8u);
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 5u + 2u);
}

TEST(StateInterval, drafts_have_blocks_after_the_state) {
    Manager m(with_state(2));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    EXPECT_EQ(states(m, a), (Entries{1, 2, 3}));
    const Blocks before = m.table(a, 1);
    m.compute(a, tokens_from(7, 3));
    const Blocks after = m.table(a, 1);
    EXPECT_EQ(states(m, a), (Entries{2, 3, 4}));
    EXPECT_EQ(after[2], before[2]) << "the first block for drafts has the state now";
    EXPECT_EQ(after[3], before[3]);
    m.compute(a, tokens_from(10, 12));
    const Blocks far = m.table(a, 1);
    EXPECT_EQ(states(m, a), (Entries{5, 6, 7}));
    EXPECT_EQ(far[5], after[3]) << "passed ones move to the end";
    EXPECT_EQ(far[6], after[4]);
    EXPECT_EQ(m.stats().blocks_held, 6u + 3u);
}

TEST(StateInterval, lookahead_reserves_blocks_for_states) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    compute(m, a, tokens_from(1, 6), 7);
    EXPECT_EQ(states(m, a), (Entries{1, 2, 3}));
    const Blocks before = m.table(a, 1);
    compute(m, a, tokens_from(7, 1));
    EXPECT_EQ(m.table(a, 1), before) << "what was reserved stays";
    compute(m, a, tokens_from(8, 1));
    compute(m, a, tokens_from(9, 1));
    EXPECT_EQ(states(m, a), (Entries{2, 3}));
    EXPECT_EQ(m.table(a, 1)[2], before[2]);
}

TEST(StateInterval, a_fork_shares_the_state_and_copies_it_before_either_goes_on) {
    Manager m(with_state(1));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    quire_seq b = m.fork(a, 6);
    EXPECT_EQ(states(m, b), (Entries{1})) << "not the blocks for drafts";
    const int32_t shared = m.table(a, 1)[1];
    m.compute(a, {7});
    EXPECT_NE(m.table(a, 1)[1], shared);
    m.compute(b, {70});
    EXPECT_EQ(m.table(b, 1)[1], shared) << "it has the state alone now";
    EXPECT_EQ(states(m, b), (Entries{1, 2}));
    quire_seq c = m.fork(a, 5);
    EXPECT_EQ(m.info(c).computed_tokens, 0u) << "the state of that token is not kept";
}

TEST(StateInterval, a_fork_that_crosses_leaves_the_state_to_the_other) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    quire_seq b = m.fork(a, 6);
    const int32_t shared = m.table(a, 1)[1];
    m.compute(b, tokens_from(70, 8));
    EXPECT_EQ(m.table(a, 1)[1], shared);
    EXPECT_EQ(m.compute(a, {7}).first_position, 6u);
    EXPECT_EQ(m.table(a, 1)[1], shared);
}

TEST(StateInterval, a_truncation_recomputes_from_a_hit) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.compute(a, tokens_from(9, 5));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 13, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).computed_tokens, 13u) << "nothing was taken away";
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 12, m.error()), QUIRE_OK);
    m.check();
    EXPECT_EQ(m.info(a).computed_tokens, 0u);
    EXPECT_EQ(m.compute(a, {}).hit_tokens, 8u);
}

TEST(StateInterval, abort_and_drop_leave_the_state) {
    Manager m(with_state(1));
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 6));
    const std::string before = m.snapshot();
    m.begin();
    m.add(a, tokens_from(7, 10));
    m.check();
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    m.begin();
    m.add(a, tokens_from(7, 6));
    m.add(b, tokens_from(90, 2));
    m.drop(a);
    m.check();
    m.finish(m.commit());
    EXPECT_EQ(m.compute(a, tokens_from(7, 6)).first_position, 6u);
}

TEST(StateInterval, a_swap_brings_the_state_back) {
    for (const uint32_t more : {1u, 9u}) {
        CacheOptions options = with_state(1);
        options.host_blocks = 8;
        Manager m(options);
        quire_seq a = m.sequence();
        m.compute(a, tokens_from(1, 6));
        m.begin();
        uint32_t freed = 0;
        ASSERT_EQ(
            m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
            QUIRE_OK);
        m.finish(m.commit());
        EXPECT_EQ(m.compute(a, tokens_from(7, more)).first_position, 6u);
        const uint32_t at = (6 + more - 1) / 4;
        EXPECT_EQ(states(m, a), (Entries{at, at + 1}));
    }
}

TEST(StateInterval, a_recompute_and_a_failed_step_begin_at_the_longest_hit) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.compute(a, tokens_from(9, 2));
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    m.finish(m.commit());
    EXPECT_EQ(m.compute(a, {11}).first_position, 8u);
    m.begin();
    m.add(a, {12});
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(a).computed_tokens, 0u) << "the state was overwritten";
    EXPECT_EQ(m.compute(a, {}).hit_tokens, 8u);
}

TEST(StateInterval, a_migration_moves_the_state) {
    Manager m(with_state(1));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.blocks = 4 + 1;
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(m.compute(a, {11}).first_position, 10u);
}

TEST(StateInterval, lookahead_is_not_accepted) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    compute(m, a, tokens_from(1, 6), 7);
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 2, m.error()), QUIRE_E_UNSUPPORTED);
    EXPECT_NE(m.message().find("recurrent"), std::string::npos);
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 0, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).computed_tokens, 6u);
}

TEST(StateInterval, states_alone_publish_nothing_between_snapshots) {
    CacheOptions options;
    options.blocks = 12;
    options.groups = {{.kind = QUIRE_GROUP_RECURRENT, .state_interval = 8}};
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 4));
    m.check();
    m.compute(a, tokens_from(5, 4));
    m.compute(a, tokens_from(9, 4));
    m.check();
    m.end(a);
    m.check();
    EXPECT_EQ(m.probe(tokens_from(1, 20)), 8u);
}

TEST(StateInterval, forgetting_a_state_leaves_the_blocks_of_other_groups) {
    Manager m(with_state());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 4));
    m.compute(a, tokens_from(5, 4));
    const int32_t state = m.table(a, 1)[1];
    Leased lease(&m);
    uint32_t forgotten = 7;
    EXPECT_EQ(lease.forget({state}, &forgotten, 1), QUIRE_OK);
    EXPECT_EQ(forgotten, 0u) << "the sequence holds it";
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
    EXPECT_EQ(lease.forget({state}, &forgotten, 1), QUIRE_OK);
    EXPECT_EQ(forgotten, 1u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 4u);
    EXPECT_EQ(m.stats().blocks_cached, 3u);
}

TEST(StateInterval, what_a_group_cannot_have_is_refused) {
    const auto refused = [](const CacheOptions &options) {
        auto desc = described<quire_cache_desc>();
        auto instance = described<quire_instance_desc>();
        auto error = described<quire_error>();
        quire_instance *made = nullptr;
        quire_cache *cache = nullptr;
        EXPECT_EQ(library().instance_create(&instance, &made, &error), QUIRE_OK);
        auto group = described<quire_group_desc>();
        group.kind = options.groups[0].kind;
        group.state_interval = options.groups[0].state_interval;
        group.draft_states = options.groups[0].draft_states;
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        desc.groups = &group;
        desc.group_count = 1;
        desc.group_stride = sizeof group;
        desc.block_tokens = 4;
        desc.blocks = 8;
        const quire_status status = library().cache_create(made, &desc, &cache, &error);
        EXPECT_EQ(cache, nullptr);
        library().instance_destroy(made, &error);
        return status;
    };
    CacheOptions options;
    const auto with = [&](uint32_t kind, uint32_t interval, uint32_t drafts) {
        options.groups = {{.kind = kind, .state_interval = interval, .draft_states = drafts}};
        return refused(options);
    };
    EXPECT_EQ(with(QUIRE_GROUP_FULL, 4, 0), QUIRE_E_ARG);
    EXPECT_EQ(with(QUIRE_GROUP_RECURRENT, 6, 0), QUIRE_E_ARG);
    EXPECT_EQ(with(QUIRE_GROUP_RECURRENT, 0, 1), QUIRE_E_ARG);
    EXPECT_EQ(with(QUIRE_GROUP_RECURRENT, 4, 65), QUIRE_E_ARG);
    Manager m(with_state());
    m.begin();
    quire_step_result result{};
    EXPECT_EQ(m.try_add(m.sequence(), tokens_from(1, 3), {.drafts = 1}, &result),
              QUIRE_E_UNSUPPORTED);
    m.abort();
}

TEST(StateInterval, larger_blocks_and_one_pool_serve_it_too) {
    CacheOptions options = with_state(1, 12, 16);
    options.flags = QUIRE_CACHE_ONE_POOL;
    options.groups[1].block_tokens = 12;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 12));
    m.compute(a, tokens_from(13, 14));
    EXPECT_EQ(states(m, a), (Entries{2, 3}));
    m.end(a);
    quire_seq b = m.sequence();
    EXPECT_EQ(m.compute(b, tokens_from(1, 26)).hit_tokens, 12u);
}

TEST(StateInterval, a_cache_of_states_alone_finds_its_snapshots) {
    CacheOptions options;
    options.blocks = 12;
    options.groups = {{.kind = QUIRE_GROUP_RECURRENT, .state_interval = 4}};
    Manager m(options);
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 30; ++i) m.compute(a, tokens_from(1 + i, 1));
    EXPECT_EQ(m.stats().blocks_held, 1u);
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 30)), 28u);
    EXPECT_EQ(m.probe(tokens_from(1, 14)), 12u);
}

// Random items, forks, truncations and ends; the library checks itself after each.
TEST(StateInterval, any_order_of_operations_keeps_its_books) {
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        CacheOptions options = with_state(seed % 3, 4 * (1 + seed % 2), 20);
        options.groups.push_back({.window = 9});
        options.host_blocks = 20;
        if (seed % 2 == 0) options.flags = QUIRE_CACHE_ONE_POOL;
        if (seed % 2 == 0) options.blocks = 40;
        if (seed % 4 == 3) options.groups[1].block_tokens = options.groups[1].state_interval = 8;
        Manager m(options);
        walk_randomly(m, seed,
                      {.most_tokens = 11, .forks_whole = true, .most_lookahead = seed % 5});
    }
}

}  // namespace
