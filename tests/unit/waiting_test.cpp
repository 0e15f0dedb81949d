// SPDX-License-Identifier: Apache-2.0
//
// An item that had to wait is tried again, as a scheduler does at every step. The cache remembers
// its hashes meanwhile, and changes in between must not mislead it.

#include "manager.hpp"

namespace {

using namespace quire::test;

struct Waiting : testing::Test {
    Manager m{{.blocks = 8}};  // of 4 tokens
    quire_seq other = m.sequence();
    quire_seq seq = m.sequence();
    const Tokens prompt = tokens_from(100, 22);  // 6 blocks

    void SetUp() override { m.compute(other, tokens_from(500, 16)); }  // 4 of 8 blocks are left

    uint64_t waits(const Tokens &tokens) {
        uint64_t before = m.stats().bytes_hashed;
        m.begin();
        EXPECT_EQ(m.add(seq, tokens).outcome, uint32_t{QUIRE_ITEM_WAIT});
        m.finish(m.commit());
        return m.stats().bytes_hashed - before;
    }
    // The prefix that a new sequence finds is exactly what `seq` computed.
    void expect_published(const Tokens &tokens) {
        EXPECT_EQ(m.probe(joined(tokens, {1})), tokens.size() / 4 * 4);
    }
};

TEST_F(Waiting, item_is_hashed_once_however_often_it_is_tried) {
    EXPECT_EQ(waits(prompt), 20u * 4);
    for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(waits(prompt), 0u);
    m.end(other);
    m.compute(seq, prompt);
    expect_published(prompt);
}

TEST_F(Waiting, other_tokens_are_hashed_anew) {
    waits(prompt);
    Tokens changed = prompt;
    changed[2] = 7;
    EXPECT_EQ(waits(changed), 20u * 4);
    m.end(other);
    m.compute(seq, changed);
    expect_published(changed);
    EXPECT_EQ(m.probe(prompt), 0u);
}

TEST_F(Waiting, hits_that_came_meanwhile_are_found) {
    waits(prompt);
    quire_seq twin = m.sequence();
    m.compute(twin, Tokens(prompt.begin(), prompt.begin() + 16));
    m.end(other);
    EXPECT_EQ(m.compute(seq, prompt).hit_tokens, 16u);
}

TEST_F(Waiting, item_of_another_sequence_in_between_does_no_harm) {
    waits(prompt);
    quire_seq third = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(third, tokens_from(900, 22)).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(m.add(seq, prompt).outcome, uint32_t{QUIRE_ITEM_WAIT});
    m.abort();
    m.end(other);
    m.compute(seq, prompt);
    expect_published(prompt);
}

TEST_F(Waiting, probe_in_between_does_no_harm) {
    waits(prompt);
    m.probe(tokens_from(700, 22));
    uint32_t hits = 0;
    Tokens foreign = tokens_from(800, 22);
    EXPECT_EQ(m.api().prefix_probe(m.cache(), seq, foreign.data(), 22, &hits, m.error()), QUIRE_OK);
    EXPECT_EQ(waits(prompt), 20u * 4);
    m.end(other);
    m.compute(seq, prompt);
    expect_published(prompt);
}

TEST_F(Waiting, sequence_in_the_place_of_an_ended_one_is_hashed_by_its_own_keys) {
    waits(prompt);
    m.end(seq);
    quire_key salt{};
    salt.type = QUIRE_KEY_SALT;
    salt.bytes = "pepper";
    salt.size_bytes = 6;
    seq = m.sequence({.keys = {salt}});
    EXPECT_EQ(waits(prompt), 20u * 4);
    m.end(other);
    m.compute(seq, prompt);
    EXPECT_EQ(m.probe(prompt), 0u);
    EXPECT_EQ(m.probe(prompt, {.keys = {salt}}), 20u);
}

TEST(WaitingAlone, sequence_truncated_into_its_published_tail_goes_on_in_it) {
    Manager m({.blocks = 2});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    Blocks table = m.table(a);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 6, m.error()), QUIRE_OK);
    m.check();
    m.compute(a, {50});
    EXPECT_EQ(m.table(a), table);
    m.compute(a, {51});
    EXPECT_EQ(m.probe({1, 2, 3, 4, 5, 6, 50, 51, 1}), 8u);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 4u);
}

TEST_F(Waiting, tokens_named_in_between_count) {
    Tokens unsure = prompt;
    unsure[9] = QUIRE_TOKEN_UNKNOWN;
    m.compute(seq, Tokens(unsure.begin(), unsure.begin() + 12));
    // After preemption it is added again with its tokens, one of which is still unknown.
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), seq, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    m.finish(m.commit());
    quire_seq third = m.sequence();
    m.compute(third, tokens_from(300, 16));
    EXPECT_EQ(waits(Tokens(prompt.begin() + 12, prompt.end())), 2u * 4 * 4);
    m.set_tokens(seq, 9, {prompt[9]});
    EXPECT_EQ(waits(Tokens(prompt.begin() + 12, prompt.end())), 20u * 4);
    m.end(other);
    m.end(third);
    m.compute(seq, Tokens(prompt.begin() + 12, prompt.end()));
    expect_published(prompt);
}

}  // namespace
