// SPDX-License-Identifier: Apache-2.0
//
// The known and computed tokens of a sequence: truncate, drafts, lookahead, unknown tokens.

#include "manager.hpp"

namespace {

using namespace quire::test;

TEST(Sequence, truncate_gives_back_the_blocks_behind) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 5, m.error()), QUIRE_OK);
    m.check();
    EXPECT_EQ(m.table(a).size(), 2u);
    EXPECT_EQ(m.info(a).known_tokens, 5u);
    EXPECT_EQ(m.info(a).computed_tokens, 5u);
    quire_step_result result = m.compute(a, {100});
    EXPECT_EQ(result.first_position, 5u);
    EXPECT_EQ(result.hit_tokens, 0u);
}

TEST(Sequence, truncate_of_what_is_only_known_takes_no_block) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10), {.max_compute = 4});
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 7, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).computed_tokens, 4u);
    EXPECT_EQ(m.info(a).known_tokens, 7u);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 0, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).computed_tokens, 0u);
    m.check();
}

TEST(Sequence, chunked_prefill_computes_what_it_is_told_and_goes_on) {
    Manager m;
    quire_seq a = m.sequence();
    quire_step_result result = m.compute(a, tokens_from(1, 10), {.max_compute = 4});
    EXPECT_EQ(result.compute_count, 4u);
    EXPECT_EQ(m.table(a).size(), 1u) << "blocks are taken when they are needed";
    result = m.compute(a, {}, {.max_compute = 4});
    EXPECT_EQ(result.first_position, 4u);
    result = m.compute(a, {}, {.max_compute = 4});
    EXPECT_EQ(result.first_position, 8u);
    EXPECT_EQ(result.compute_count, 2u);
}

TEST(Sequence, of_five_drafts_two_are_accepted_and_the_bonus_token_is_next) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 4));
    quire_step_result result = m.compute(a, {10, 11, 12, 13, 14, 15}, {.drafts = 5});
    EXPECT_EQ(result.compute_count, 6u);
    EXPECT_EQ(m.info(a).draft_tokens, 5u);
    ASSERT_EQ(m.api().seq_accept(m.cache(), a, 2, m.error()), QUIRE_OK);
    m.check();
    EXPECT_EQ(m.info(a).known_tokens, 7u);
    EXPECT_EQ(m.info(a).computed_tokens, 7u);
    EXPECT_EQ(m.info(a).draft_tokens, 0u);
    EXPECT_EQ(m.table(a).size(), 2u);
    result = m.compute(a, {99});  // the bonus token
    EXPECT_EQ(result.first_position, 7u);
    EXPECT_EQ(result.compute_count, 1u);
    EXPECT_EQ(m.probe({1, 2, 3, 4, 10, 11, 12, 99, 0}), 8u);
}

TEST(Sequence, a_sequence_is_accepted_before_its_next_item) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6), {.drafts = 2});
    m.begin();
    quire_step_result result{};
    EXPECT_EQ(m.try_add(a, {7}, {}, &result), QUIRE_E_BUSY);
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 0, m.error()), QUIRE_OK);
    EXPECT_EQ(m.try_add(a, {7}, {}, &result), QUIRE_OK);
    EXPECT_EQ(result.first_position, 4u);
}

TEST(Sequence, accept_past_drafts_and_lookahead_is_refused) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6), {.drafts = 2, .lookahead = 3});
    std::string before = m.books();
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 6, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(m.api().seq_accept(m.cache(), a, 5, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).known_tokens, 9u);
}

TEST(Sequence, lookahead_reserves_slots_that_accept_turns_into_computed_tokens) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 3), {.lookahead = 6});
    EXPECT_EQ(m.table(a).size(), 3u);
    EXPECT_EQ(m.info(a).known_tokens, 3u);
    Blocks before = m.table(a);
    ASSERT_EQ(m.api().seq_accept(m.cache(), a, 4, m.error()), QUIRE_OK);
    EXPECT_EQ(m.info(a).known_tokens, 7u);
    EXPECT_EQ(m.info(a).computed_tokens, 7u);
    before.resize(2);
    EXPECT_EQ(m.table(a), before);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 0u);
    m.set_tokens(a, 3, tokens_from(4, 4));
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 4u);
}

TEST(Sequence, tokens_are_named_while_their_step_runs) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 3));
    m.begin();
    m.add(a, {QUIRE_TOKEN_UNKNOWN});
    quire_step first = m.commit();
    m.begin();
    m.add(a, {QUIRE_TOKEN_UNKNOWN});  // planned while the token before it is being sampled
    quire_step second = m.commit();
    m.finish(first);
    m.set_tokens(a, 3, {4});
    m.finish(second);
    m.set_tokens(a, 4, {5});
    EXPECT_EQ(m.info(a).computed_tokens, 5u);
    EXPECT_EQ(m.probe(tokens_from(1, 6)), 4u);
}

TEST(Sequence, a_name_for_a_known_token_is_refused_and_no_span_is_applied) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, {1, 2, QUIRE_TOKEN_UNKNOWN});
    m.compute(b, {1, 2, QUIRE_TOKEN_UNKNOWN, QUIRE_TOKEN_UNKNOWN});
    quire_token names[] = {3, 3, 4, QUIRE_TOKEN_UNKNOWN};
    auto refused = [&](quire_token_span second) {
        quire_token_span spans[] = {{a, 2, 0, 1, 0}, second};
        const quire_status status =
            m.api().seq_set_tokens(m.cache(), spans, 2, sizeof spans[0], names, 4, m.error());
        EXPECT_NE(m.message().find("spans[1]"), std::string::npos) << m.message();
        return status;
    };
    EXPECT_EQ(refused({b, 1, 0, 1, 0}), QUIRE_E_ARG);  // known
    EXPECT_EQ(refused({b, 3, 1, 2, 0}), QUIRE_E_ARG);  // past the end
    EXPECT_EQ(refused({b, 2, 3, 1, 0}), QUIRE_E_ARG);  // to the unknown token
    EXPECT_EQ(refused({b, 2, 3, 2, 0}), QUIRE_E_ARG);  // past the given tokens
    EXPECT_EQ(refused({b, 2, 0, 1, 7}), QUIRE_E_STRUCT);
    EXPECT_EQ(refused({b + 1, 2, 0, 1, 0}), QUIRE_E_STALE);
    m.set_tokens(a, 2, {3});  // still unknown, so none of those calls set it
}

TEST(Sequence, a_name_is_refused_while_the_sequence_is_in_the_open_step) {
    Manager m;
    quire_seq a = m.sequence();
    m.begin();
    m.add(a, {1, QUIRE_TOKEN_UNKNOWN});
    quire_token name = 2;
    quire_token_span span{a, 1, 0, 1, 0};
    EXPECT_EQ(m.api().seq_set_tokens(m.cache(), &span, 1, sizeof span, &name, 1, m.error()),
              QUIRE_E_BUSY);
    m.finish(m.commit());
    m.set_tokens(a, 1, {2});
}

TEST(Sequence, a_conversation_continues_from_its_own_blocks) {
    Manager m;
    quire_seq a = m.sequence();
    for (uint32_t turn = 0; turn < 5; ++turn) {
        quire_step_result result = m.compute(a, tokens_from(1 + 5 * turn, 5));
        EXPECT_EQ(result.first_position, 5 * turn);
        EXPECT_EQ(result.hit_tokens, 0u);
    }
    m.end(a);
    EXPECT_EQ(m.compute(m.sequence(), tokens_from(1, 26)).hit_tokens, 24u);
}

}  // namespace
