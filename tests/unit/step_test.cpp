// SPDX-License-Identifier: Apache-2.0
//
// Steps: abort, drop, several in flight, failure, and queues that do not wait for each other.

#include "manager.hpp"

namespace {

using namespace quire::test;

// A cache with cached prefixes, running sequences and few free blocks.
struct Scene {
    Manager m{CacheOptions{.blocks = 10, .host_blocks = 8}};
    Tokens cached = tokens_from(100, 9);
    quire_seq a = 0, b = 0, fork = 0, fresh = 0;

    Scene() {
        quire_seq gone = m.sequence();
        m.compute(gone, cached);
        m.end(gone);
        a = m.sequence();
        b = m.sequence();
        fresh = m.sequence();
        m.compute(a, tokens_from(1, 9));
        m.compute(b, joined(tokens_from(1, 4), tokens_from(50, 3)));
        fork = m.fork(b, 6);
    }
    std::string state() {
        return m.snapshot() + "/ " + std::to_string(m.probe(cached)) + " " +
               std::to_string(m.probe(tokens_from(1, 10)));
    }
};

TEST(Step, abort_leaves_counts_tables_and_probes_as_they_were) {
    Scene s;
    std::string before = s.state();
    for (int i = 0; i < 3; ++i) {
        s.m.begin({.may_preempt = true});
        s.m.add(s.a, tokens_from(10, 6));
        s.m.add(s.fresh, s.cached);
        s.m.add(s.b, {60, 61, 62});
        s.m.add(s.fork, {70});  // copies the tail that it shares
        EXPECT_FALSE(s.m.copies(s.m.open()).empty());
        s.m.abort();
        EXPECT_EQ(s.state(), before);
    }
}

TEST(Step, abort_takes_back_preemption_and_eviction) {
    for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
        Scene s;
        std::string before = s.state();
        s.m.begin();
        uint32_t freed = 0;
        ASSERT_EQ(s.m.api().step_preempt(s.m.cache(), s.m.open(), s.a, how, &freed, s.m.error()),
                  QUIRE_OK);
        EXPECT_GE(freed, 1u);
        EXPECT_EQ(s.m.add(s.fresh, tokens_from(900, 24)).outcome, uint32_t{QUIRE_ITEM_RUN});
        EXPECT_GT(s.m.stats().evictions, 0u);
        s.m.abort();
        EXPECT_EQ(s.m.probe(s.cached), 8u);
        EXPECT_EQ(s.m.table(s.a).size(), 3u);
        EXPECT_EQ(s.m.info(s.a).flags, 0u);
        EXPECT_EQ(s.m.stats().num_preemptions, 0u);
        EXPECT_EQ(s.state(), before);
    }
}

TEST(Step, begin_with_a_wrong_item_opens_no_step) {
    Scene s;
    std::string before = s.state();
    quire_step_item items[2] = {};
    items[0].seq = s.a;
    items[0].token_count = 1;
    items[1].seq = 12345;
    quire_token token = 7;
    quire_step_result results[2];
    quire_step step = 0;
    auto desc = described<quire_step_desc>();
    EXPECT_EQ(s.m.api().step_begin(s.m.cache(), &desc, items, 2, sizeof items[0], &token, 1,
                                   results, sizeof results[0], &step, s.m.error()),
              QUIRE_E_STALE);
    EXPECT_EQ(step, 0u);
    EXPECT_EQ(s.state(), before);
    s.m.begin();  // no step is open
}

TEST(Step, drop_undoes_one_item_and_lists_those_that_hit_its_blocks) {
    Manager m;
    quire_seq writer = m.sequence(), reader = m.sequence(), other = m.sequence();
    m.compute(other, tokens_from(200, 2));
    std::string before = m.snapshot();
    m.begin();
    m.add(writer, tokens_from(1, 9));
    EXPECT_EQ(m.add(other, {202}).row, 1u);
    EXPECT_EQ(m.add(reader, tokens_from(1, 10)).hit_tokens, 8u);
    std::vector<quire_seq> dropped = m.drop(writer);
    EXPECT_EQ(dropped, (std::vector<quire_seq>{writer, reader}));
    EXPECT_EQ(m.info(writer).known_tokens, 0u);
    EXPECT_EQ(m.info(reader).known_tokens, 0u);
    EXPECT_EQ(m.info(other).known_tokens, 3u);
    EXPECT_EQ(m.add(writer, {1}).row, 1u) << "rows after it move up";
    m.drop(writer);
    m.drop(other);
    EXPECT_EQ(m.snapshot(), before);
}

TEST(Step, drop_with_too_little_room_for_the_list_changes_nothing) {
    Manager m;
    quire_seq writer = m.sequence(), reader = m.sequence();
    m.begin();
    m.add(writer, tokens_from(1, 9));
    m.add(reader, tokens_from(1, 9));
    std::string before = m.books();
    quire_seq dropped = 0;
    uint32_t count = 0;
    EXPECT_EQ(m.api().step_drop(m.cache(), m.open(), writer, &dropped, 1, &count, m.error()),
              QUIRE_S_INCOMPLETE);
    EXPECT_EQ(count, 2u);
    EXPECT_EQ(m.books(), before);
}

TEST(Step, drop_of_a_sequence_without_an_item_is_an_error) {
    Manager m;
    quire_seq a = m.sequence(), dropped = 0;
    uint32_t count = 0;
    m.begin();
    EXPECT_EQ(m.api().step_drop(m.cache(), m.open(), a, &dropped, 1, &count, m.error()),
              QUIRE_E_ARG);
}

TEST(Step, two_unfinished_steps_of_one_sequence_follow_each_other) {
    Manager m;
    quire_seq a = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 4));
    quire_step first = m.commit();
    m.begin();
    EXPECT_EQ(m.add(a, {5}).first_position, 4u);
    quire_step second = m.commit();
    m.finish(first);
    m.finish(second);
    EXPECT_EQ(m.info(a).computed_tokens, 5u);
}

TEST(Step, steps_may_finish_out_of_order) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin({.queue = 1});
    m.add(a, tokens_from(1, 4));
    quire_step first = m.commit();
    m.begin({.queue = 2});
    m.add(b, tokens_from(50, 4));
    quire_step second = m.commit();
    m.finish(second);
    m.finish(first);
    EXPECT_EQ(m.stats().steps, 2u);
}

TEST(Step, a_failed_step_rolls_computed_back_and_known_stays) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 5));
    m.begin();
    m.add(a, tokens_from(6, 5));
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(a).computed_tokens, 5u);
    EXPECT_EQ(m.info(a).known_tokens, 10u);
    EXPECT_NE(m.info(a).flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 11)), 4u) << "its published blocks are withdrawn";
    quire_step_result again = m.compute(a, {});
    EXPECT_EQ(again.first_position, 5u);
    EXPECT_EQ(again.compute_count, 5u);
    EXPECT_EQ(m.info(a).flags, 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 11)), 8u);
}

TEST(Step, who_took_blocks_of_a_failed_step_is_lost) {
    Manager m;
    quire_seq writer = m.sequence(), taker = m.sequence(), bystander = m.sequence();
    m.begin();
    m.add(writer, tokens_from(1, 9));
    m.add(bystander, tokens_from(300, 5));
    quire_step first = m.commit();
    m.begin();
    EXPECT_EQ(m.add(taker, tokens_from(1, 9)).hit_tokens, 8u);
    quire_step second = m.commit();
    quire_seq fork = m.fork(writer, 6);
    m.finish(first, QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(writer).computed_tokens, 0u);
    EXPECT_EQ(m.info(taker).computed_tokens, 0u);
    EXPECT_EQ(m.info(fork).computed_tokens, 0u);
    EXPECT_NE(m.info(taker).flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_NE(m.info(fork).flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_EQ(m.stats().sequences_lost, 2u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 0u);
    m.finish(second);
    EXPECT_EQ(m.stats().nodes, 0u);
    EXPECT_EQ(m.compute(taker, {}).compute_count, 9u);
}

TEST(Step, a_failure_spares_who_took_nothing_of_the_step) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 9));
    m.begin();
    m.add(a, {10});
    quire_step failing = m.commit();
    m.compute(b, tokens_from(1, 9));
    m.finish(failing, QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(b).computed_tokens, 9u);
    EXPECT_EQ(m.info(b).flags, 0u);
    EXPECT_EQ(m.info(a).computed_tokens, 9u);
    EXPECT_EQ(m.stats().sequences_lost, 0u);
}

TEST(Step, a_failure_while_a_step_is_open_is_busy) {
    Manager m;
    m.begin();
    m.add(m.sequence(), {1});
    quire_step step = m.commit();
    m.begin();
    EXPECT_EQ(m.api().step_finish(m.cache(), step, nullptr, QUIRE_STEP_FAILED, m.error()),
              QUIRE_E_BUSY);
    m.abort();
    m.finish(step, QUIRE_STEP_FAILED);
}

TEST(Queue, a_block_that_unfinished_work_may_touch_goes_only_to_the_same_queue) {
    Manager m({.blocks = 1});
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin({.queue = 1});
    m.add(a, {1, 2});
    quire_step running = m.commit();
    int32_t block = m.table(a)[0];
    m.end(a);
    m.begin({.queue = 2});
    quire_step_result result = m.add(b, {3});
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.blocks_short, 1u);
    m.abort();
    m.begin({.queue = 1});  // after it on the same queue
    EXPECT_EQ(m.add(b, {3}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.table(b)[0], block);
    m.abort();
    m.finish(running);
    m.begin({.queue = 2});  // after it ended
    EXPECT_EQ(m.add(b, {3}).outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST(Queue, a_cached_block_that_unfinished_work_touches_is_not_evicted_for_another_queue) {
    Manager m({.blocks = 1});
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin({.queue = 1});
    m.add(a, tokens_from(1, 4));
    quire_step running = m.commit();
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 1u);
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(b, {3}).outcome, uint32_t{QUIRE_ITEM_WAIT});
    m.abort();
    m.finish(running);
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(b, {3}).outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST(Queue, published_blocks_are_found_on_their_queue_at_commit_and_on_others_behind_the_fence) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence(), c = m.sequence();
    m.begin({.queue = 1});
    m.add(a, tokens_from(1, 9));
    quire_step running = m.commit();
    m.begin({.queue = 1});
    EXPECT_EQ(m.add(b, tokens_from(1, 9)).hit_tokens, 8u);
    m.abort();
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(c, tokens_from(1, 9)).hit_tokens, 0u);
    m.abort();
    m.finish(running);
    m.begin({.queue = 2});
    EXPECT_EQ(m.add(c, tokens_from(1, 9)).hit_tokens, 8u);
}

TEST(Queue, a_sequence_moves_to_another_queue_when_its_step_is_finished) {
    Manager m;
    quire_seq a = m.sequence();
    m.begin({.queue = 1});
    m.add(a, {1});
    quire_step running = m.commit();
    m.begin({.queue = 2});
    quire_step_result result{};
    EXPECT_EQ(m.try_add(a, {2}, {}, &result), QUIRE_E_BUSY);
    m.finish(running);
    EXPECT_EQ(m.try_add(a, {2}, {}, &result), QUIRE_OK);
}

TEST(Step, more_items_than_sequences_are_refused_before_they_are_read) {
    Manager m;
    const quire_token token = 1;
    quire_step_item item{};
    item.seq = m.sequence();
    item.token_count = 1;
    quire_step_result result{};
    m.begin();
    EXPECT_EQ(m.api().step_add(m.cache(), m.open(), &item, 0xFFFFFFFF, sizeof item, &token, 1,
                               &result, sizeof result, m.error()),
              QUIRE_E_ARG);
    EXPECT_NE(m.message().find("4294967295 items"), std::string::npos) << m.message();
    EXPECT_EQ(m.api().step_add(m.cache(), m.open(), &item, 1, sizeof item, &token, 1, &result,
                               sizeof result, m.error()),
              QUIRE_OK);
    m.abort();
}

}  // namespace
