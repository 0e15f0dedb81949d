// SPDX-License-Identifier: Apache-2.0
//
// A failed step takes back everything that depends on it, directly or indirectly, and nothing else.

#include "manager.hpp"

namespace {

using namespace quire::test;

quire_step commit_item(Manager &m, quire_seq seq, const Tokens &tokens,
                       quire_step_result *result = nullptr) {
    m.begin();
    quire_step_result ran = m.add(seq, tokens);
    EXPECT_EQ(ran.outcome, uint32_t{QUIRE_ITEM_RUN});
    if (result != nullptr) *result = ran;
    return m.commit();
}

void expect_computed(Manager &m, quire_seq seq, uint32_t tokens, bool lost) {
    EXPECT_EQ(m.info(seq).computed_tokens, tokens);
    EXPECT_EQ((m.info(seq).flags & QUIRE_SEQ_LOST) != 0, lost);
}

// B computes privately what A's block in the tree already holds. The blocks that B publishes after
// it depend on that private block, and so does every sequence that hits them.
TEST(Failure, takes_what_was_found_on_top_of_a_private_block) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence(), c = m.sequence(), d = m.sequence();
    m.compute(a, tokens_from(1, 4));
    quire_step private_block = commit_item(m, b, tokens_from(1, 4));
    quire_step second = commit_item(m, b, tokens_from(5, 4));
    quire_step_result result{};
    quire_step third = commit_item(m, c, tokens_from(1, 13), &result);
    ASSERT_EQ(result.hit_tokens, 8u);
    quire_step fourth = commit_item(m, d, joined(tokens_from(1, 12), {99}), &result);
    ASSERT_EQ(result.hit_tokens, 12u) << "found at C, which found it at B";
    m.finish(private_block, QUIRE_STEP_FAILED);
    expect_computed(m, a, 4, false);
    expect_computed(m, b, 0, true);
    expect_computed(m, c, 4, true);
    expect_computed(m, d, 4, true);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 4u);
    for (quire_step step : {second, third, fourth}) m.finish(step);
}

// The failed step wrote these positions first; they were truncated and computed again.
TEST(Failure, leaves_what_was_computed_anew_after_a_truncate) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 5));
    quire_step first = commit_item(m, a, tokens_from(6, 4));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 5, m.error()), QUIRE_OK);
    quire_step second = commit_item(m, a, tokens_from(106, 4));
    m.finish(first, QUIRE_STEP_FAILED);
    expect_computed(m, a, 9, false);
    EXPECT_EQ(m.probe(joined(tokens_from(1, 5), tokens_from(106, 4))), 8u);
    m.finish(second);
    expect_computed(m, a, 9, false);
}

TEST(Failure, leaves_what_was_computed_anew_after_a_recompute) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    quire_step first = commit_item(m, a, tokens_from(1, 9));
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    quire_step second = m.commit();
    quire_step third = commit_item(m, a, {10});
    m.finish(first, QUIRE_STEP_FAILED);
    expect_computed(m, a, 10, false);
    m.finish(second, QUIRE_STEP_FAILED);
    expect_computed(m, a, 10, false);
    m.finish(third, QUIRE_STEP_FAILED);
    expect_computed(m, a, 0, true);
}

// Every block of a swapped sequence except the last is found on the device, so a failed copy, out
// or in, affects only that last block.
TEST(Failure, of_a_swap_leaves_the_blocks_that_were_found_instead) {
    for (int failing = 0; failing < 2; ++failing) {
        Manager m({.host_blocks = 8});
        quire_seq a = m.sequence();
        m.compute(a, tokens_from(1, 10));
        m.begin();
        uint32_t freed = 0;
        ASSERT_EQ(
            m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
            QUIRE_OK);
        quire_step out = m.commit(), in = commit_item(m, a, {11});
        m.finish(failing == 0 ? out : in, QUIRE_STEP_FAILED);
        expect_computed(m, a, 8, true);
        m.finish(failing == 0 ? in : out);
        expect_computed(m, a, 8, true);
    }
}

TEST(Failure, of_a_swap_leaves_a_sequence_that_was_found_whole) {
    Manager m({.host_blocks = 8});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    quire_step out = m.commit(), in = commit_item(m, a, {9});
    m.finish(out, QUIRE_STEP_FAILED);
    expect_computed(m, a, 9, false);
    m.finish(in);
}

// A block whose tokens were set late depends on the steps that wrote it, not on later ones.
TEST(Failure, of_a_later_step_leaves_a_block_that_was_named_behind_it) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    quire_step first = commit_item(m, a, joined(tokens_from(1, 3), {QUIRE_TOKEN_UNKNOWN}));
    quire_step second = commit_item(m, a, {5});
    m.set_tokens(a, 3, {4});
    quire_step_result result{};
    quire_step third = commit_item(m, b, tokens_from(1, 6), &result);
    ASSERT_EQ(result.hit_tokens, 4u);
    m.finish(second, QUIRE_STEP_FAILED);
    expect_computed(m, a, 4, true);
    expect_computed(m, b, 6, false);
    EXPECT_EQ(m.probe(tokens_from(1, 6)), 4u);
    m.finish(first, QUIRE_STEP_FAILED);
    expect_computed(m, a, 0, true);
    expect_computed(m, b, 0, true);
    m.finish(third);
}

// A failed step is forgotten in time: a block that outlives many more steps loses nothing to a step
// whose number has the same low bits.
TEST(Failure, of_a_step_of_the_same_bit_64_steps_later_leaves_a_block) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 9));
    for (int i = 0; i < 63; ++i) {
        m.begin();
        m.finish(m.commit());
    }
    m.finish(commit_item(m, b, tokens_from(100, 3)), QUIRE_STEP_FAILED);
    expect_computed(m, a, 9, false);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

// Accepted out of a tree that begins at position 0, so that a swap has nothing to keep.
TEST(Failure, leaves_no_cross_rows_of_a_sequence_that_keeps_no_token) {
    Manager m(
        {.host_blocks = 8, .groups = {GroupOptions{}, GroupOptions{.kind = QUIRE_GROUP_CROSS}}});
    quire_seq a = m.sequence({.cross_tokens = 6});
    m.begin();
    m.add(a, tokens_from(1, 3), {.drafts = 3, .parents = {QUIRE_MASK_ROOT, QUIRE_MASK_ROOT, 1}});
    quire_step first = m.commit();
    const uint32_t path[] = {1, 2};
    ASSERT_EQ(m.api().seq_accept_path(m.cache(), a, path, 2, m.error()), QUIRE_OK) << m.message();
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    quire_step second = m.commit();
    m.finish(first, QUIRE_STEP_FAILED);
    m.finish(second);
    EXPECT_EQ(m.compute(a, {}).cross_tokens, 6u) << "they are written again";
}

}  // namespace
