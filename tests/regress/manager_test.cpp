// SPDX-License-Identifier: Apache-2.0
//
// Bugs of the manager that were found through the C ABI, each in a cache without memory.

#include "tests/unit/manager.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace quire::test {

namespace {

constexpr uint32_t kBlock = 16;

// A cache of blocks of kBlock tokens, with as many sequences as the library chooses.
CacheOptions with(const std::vector<GroupOptions> &groups = {{0, 15}}) {
    CacheOptions options;
    options.block_tokens = kBlock;
    options.max_sequences = 0;
    options.groups = groups;
    return options;
}

CacheOptions with_host_blocks(uint32_t count) {
    CacheOptions options = with();
    options.host_blocks = count;
    return options;
}

}  // namespace

TEST(Manager, a_window_near_the_largest_integer_has_a_size) {
    Manager m(with({{0xFFFFFFFF - 2 * kBlock + 1, 15}}));
    auto info = described<quire_cache_info>();
    ASSERT_EQ(m.api().cache_get_info(m.cache(), &info, nullptr), QUIRE_OK);
    EXPECT_EQ(info.max_sequences, 0u);
}

TEST(Manager, two_spans_cannot_name_one_position) {
    Manager m(with());
    quire_seq seq = m.sequence();
    m.compute(seq, Tokens(kBlock, QUIRE_TOKEN_UNKNOWN));
    quire_token_span spans[2] = {{seq, 0, 0, kBlock, 0}, {seq, 3, 5, 1, 0}};
    auto tokens = tokens_from(0, kBlock);
    EXPECT_EQ(m.api().seq_set_tokens(m.cache(), spans, 2, sizeof spans[0], tokens.data(), kBlock,
                                     nullptr),
              QUIRE_E_ARG);
    // The refused call left nothing.
    EXPECT_EQ(m.api().seq_set_tokens(m.cache(), spans, 1, sizeof spans[0], tokens.data(), kBlock,
                                     nullptr),
              QUIRE_OK);
    m.check();
}

TEST(Manager, a_prefix_dropped_while_the_step_evicts_it_survives_abort) {
    for (bool abort : {true, false}) {
        Manager m(with({{0, 15}, {16, 5}}));
        quire_seq seq = m.sequence();
        for (uint32_t i = 0; i < 4; ++i)
            m.compute(seq, tokens_from(i * kBlock, kBlock));  // the window passes blocks
        m.begin();
        quire_seq other = m.sequence();
        ASSERT_EQ(m.add(other, tokens_from(1000, 3 * kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
        m.end(seq, QUIRE_END_DROP_PREFIX);
        if (abort) {
            m.abort();
        } else {
            m.finish(m.commit());
        }
        quire_seq last = m.sequence();
        if (abort) m.compute(last, tokens_from(2000, 5 * kBlock));
    }
}

TEST(Manager, a_dropped_item_does_not_bring_back_half_a_node) {
    // Two full-attention groups of one size: one item evicts a node's block in the first group, the
    // other item evicts one in both.
    Manager m(with({{0, 5}, {0, 6}}));
    quire_seq old = m.sequence();
    m.compute(old, tokens_from(0, 2 * kBlock));
    m.end(old);
    m.begin();
    quire_seq a = m.sequence(), b = m.sequence();
    ASSERT_EQ(m.add(a, tokens_from(1000, 4 * kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(m.add(b, tokens_from(2000, kBlock)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.drop(a);
    m.finish(m.commit());
}

TEST(Manager, a_failed_step_withdraws_blocks_that_a_later_step_filled) {
    Manager m(with());
    quire_seq writer = m.sequence(), taker = m.sequence();
    quire_step first = m.begin();
    m.add(writer, tokens_from(0, 8));
    m.commit();
    quire_step second = m.begin();
    m.add(writer, tokens_from(8, 8));
    m.commit();
    m.end(writer);
    quire_step third = m.begin();
    EXPECT_EQ(m.add(taker, tokens_from(0, kBlock + 1)).hit_tokens, kBlock);
    m.commit();
    m.finish(first, QUIRE_STEP_FAILED);
    m.finish(second);
    m.finish(third);
    EXPECT_EQ(m.info(taker).computed_tokens, 0u);
    EXPECT_NE(m.info(taker).flags & QUIRE_SEQ_LOST, 0u);
    quire_seq late = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(late, tokens_from(0, kBlock + 1)).hit_tokens, 0u);
    m.abort();
}

TEST(Manager, a_failed_swap_out_is_not_believed_after_the_swap_in) {
    Manager m(with_host_blocks(8));
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(0, 8));
    quire_step out = m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), out, seq, QUIRE_PREEMPT_SWAP, &freed, nullptr),
              QUIRE_OK);
    m.commit();
    quire_step in = m.begin();
    ASSERT_EQ(m.add(seq, tokens_from(8, 1)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.commit();
    m.finish(out, QUIRE_STEP_FAILED);
    m.finish(in);
    EXPECT_EQ(m.info(seq).computed_tokens, 0u);
}

TEST(Manager, what_another_queue_still_writes_is_not_swapped_out) {
    Manager m(with_host_blocks(8));
    quire_seq seq = m.sequence();
    quire_step first = m.begin({.queue = 1});
    m.add(seq, tokens_from(0, 8));
    m.commit();
    quire_step second = m.begin({.queue = 2});
    uint32_t freed = 0;
    EXPECT_EQ(m.api().step_preempt(m.cache(), second, seq, QUIRE_PREEMPT_SWAP, &freed, nullptr),
              QUIRE_E_BUSY);
    m.abort();
    m.finish(first);
}

TEST(Manager, a_quota_does_not_count_blocks_that_a_window_has_passed) {
    Manager m(with({{0, 31}, {16, 31}}));
    quire_namespace ns = m.name_space(9);
    quire_seq seq = m.sequence({.ns = ns});
    for (uint32_t i = 0; i < 5; ++i) m.compute(seq, tokens_from(i * kBlock, kBlock));
    m.end(seq);
    seq = m.sequence({.ns = ns});
    m.compute(seq, tokens_from(0, 5 * kBlock + 1));  // 6 blocks of the first group, 2 of the second
}

TEST(Manager, a_sequence_that_starts_over_after_a_reset_is_published_again) {
    Manager m(with());
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(0, kBlock));
    ASSERT_EQ(m.api().cache_reset(m.cache(), nullptr), QUIRE_OK);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), seq, 0, nullptr), QUIRE_OK);
    EXPECT_EQ(m.info(seq).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
}

}  // namespace quire::test
