// SPDX-License-Identifier: Apache-2.0
//
// Giving up blocks: chosen by the caller or the library, by swap or for recomputation.

#include <algorithm>

#include "manager.hpp"

namespace {

using namespace quire::test;

uint32_t preempt(Manager *m, quire_seq seq, uint32_t how) {
    uint32_t freed = 0;
    EXPECT_EQ(m->api().step_preempt(m->cache(), m->open(), seq, how, &freed, m->error()), QUIRE_OK)
        << m->message();
    m->check();
    return freed;
}

TEST(Preemption, swap_moves_the_blocks_out_and_back_with_copies_in_order) {
    Manager m({.blocks = 6, .host_blocks = 6, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    Blocks device = m.table(a);
    m.begin();
    EXPECT_EQ(preempt(&m, a, QUIRE_PREEMPT_SWAP), 3u);
    std::vector<quire_block_copy> out = m.copies(m.open());
    ASSERT_EQ(out.size(), 3u);
    std::vector<int32_t> host(3);
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(out[i].kind, uint32_t{QUIRE_COPY_SWAP_OUT});
        size_t at = static_cast<size_t>(std::find(device.begin(), device.end(), out[i].src) -
                                        device.begin());
        ASSERT_LT(at, 3u);
        host[at] = out[i].dst;
    }
    m.finish(m.commit());
    EXPECT_EQ(m.info(a).flags, uint32_t{QUIRE_SEQ_SWAPPED | QUIRE_SEQ_PREEMPTED});
    EXPECT_EQ(m.info(a).computed_tokens, 10u);
    EXPECT_EQ(m.stats().host_blocks_used, 3u);
    EXPECT_EQ(m.stats().blocks_held, 0u);
    EXPECT_TRUE(m.table(a).empty());
    m.begin();
    quire_step_result back = m.add(a, {11});
    EXPECT_EQ(back.first_position, 10u);
    EXPECT_EQ(back.compute_count, 1u);
    std::vector<quire_block_copy> in = m.copies(m.open());
    Blocks table = m.table(a);
    ASSERT_EQ(in.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(in[i].kind, uint32_t{QUIRE_COPY_SWAP_IN});
        EXPECT_EQ(in[i].src, host[i]);
        EXPECT_EQ(in[i].dst, table[i]);
    }
    m.finish(m.commit());
    EXPECT_EQ(m.stats().host_blocks_used, 0u);
    EXPECT_EQ(m.info(a).flags, 0u);
    EXPECT_EQ(m.info(a).preemptions, 1u);
    EXPECT_EQ(m.stats().blocks_swapped_out, 3u);
    EXPECT_EQ(m.stats().blocks_swapped_in, 3u);
}

TEST(Preemption, a_block_is_swapped_out_before_another_is_copied_into_it) {
    Manager m({.blocks = 3, .host_blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 6));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_SWAP);
    m.finish(m.commit());
    m.compute(b, tokens_from(50, 6));
    m.begin();
    EXPECT_EQ(m.add(a, {7}).outcome, uint32_t{QUIRE_ITEM_WAIT});
    preempt(&m, b, QUIRE_PREEMPT_SWAP);
    EXPECT_EQ(m.add(a, {7}).outcome, uint32_t{QUIRE_ITEM_RUN});
    std::vector<quire_block_copy> copies = m.copies(m.open());
    ASSERT_EQ(copies.size(), 4u);
    for (size_t in = 0; in < 4; ++in) {
        EXPECT_EQ(copies[in].kind, uint32_t{in < 2 ? QUIRE_COPY_SWAP_OUT : QUIRE_COPY_SWAP_IN});
    }
}

TEST(Preemption, recompute_gives_all_up_and_knows_all) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.begin();
    EXPECT_EQ(preempt(&m, a, QUIRE_PREEMPT_RECOMPUTE), 3u);
    EXPECT_TRUE(m.copies(m.open()).empty());
    m.finish(m.commit());
    EXPECT_EQ(m.info(a).known_tokens, 10u);
    EXPECT_EQ(m.info(a).computed_tokens, 0u);
    EXPECT_EQ(m.stats().tokens_preempted, 10u);
    quire_step_result back = m.compute(a, {});
    EXPECT_EQ(back.first_position, 0u);
    EXPECT_EQ(back.compute_count, 10u);
}

TEST(Preemption, a_victims_published_prefix_is_found_again) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_RECOMPUTE);
    m.finish(m.commit());
    quire_step_result back = m.compute(a, {});
    EXPECT_EQ(back.hit_tokens, 8u);
    EXPECT_EQ(back.compute_count, 2u);
}

TEST(Preemption, a_swapped_victim_shares_what_is_still_cached_instead_of_copying) {
    Manager m({.host_blocks = 8});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_SWAP);
    m.finish(m.commit());
    m.begin();
    m.add(a, {11});
    EXPECT_EQ(m.copies(m.open()).size(), 1u) << "only the block that was never published";
}

TEST(Preemption, auto_swaps_while_there_is_room_and_recomputes_after) {
    Manager m({.host_blocks = 3, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.compute(b, tokens_from(1, 10));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_AUTO);
    preempt(&m, b, QUIRE_PREEMPT_AUTO);
    std::vector<quire_preemption> who = m.preempted(m.open());
    ASSERT_EQ(who.size(), 2u);
    EXPECT_EQ(who[0].seq, a);
    EXPECT_EQ(who[0].how, uint32_t{QUIRE_PREEMPT_SWAP});
    EXPECT_EQ(who[1].seq, b);
    EXPECT_EQ(who[1].how, uint32_t{QUIRE_PREEMPT_RECOMPUTE});
    EXPECT_EQ(who[1].computed_tokens, 10u);
    EXPECT_EQ(who[1].blocks, 3u);
    EXPECT_EQ(who[1].chosen_by, 0u);
}

TEST(Preemption, auto_takes_the_cheaper_way_when_it_knows_both_rates) {
    // A block of one layer and one head with one f16 element: 4 tokens * (K + V) * 2 B = 16 B.
    // Swapping three of them out and in moves 96 B; computing ten tokens takes 10 s at 1 token/s.
    for (float bytes_per_second : {100.0F, 9.7F, 9.5F, 1.0F}) {
        Manager m({.host_blocks = 3,
                   .swap_bytes_per_second = bytes_per_second,
                   .prefill_tokens_per_second = 1});
        quire_seq a = m.sequence();
        m.compute(a, tokens_from(1, 10));
        m.begin();
        preempt(&m, a, QUIRE_PREEMPT_AUTO);
        uint32_t expected = bytes_per_second > 9.6F ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_RECOMPUTE;
        EXPECT_EQ(m.preempted(m.open())[0].how, expected);
    }
}

TEST(Preemption, swap_without_room_is_a_result_and_changes_nothing) {
    Manager m({.host_blocks = 2});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.begin();
    std::string before = m.books();
    uint32_t freed = 9;
    EXPECT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(freed, 0u);
    EXPECT_EQ(m.books(), before);
}

TEST(Preemption, a_victim_is_busy_until_its_step_is_over_and_the_words_say_so) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 10));
    m.compute(b, tokens_from(100, 10));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_RECOMPUTE);
    m.add(b, {9});
    uint32_t freed = 0;
    for (quire_seq seq : {a, b}) {
        const char *words = seq == a ? "was preempted in the open step" : "drop its item first";
        EXPECT_EQ(m.api().step_preempt(m.cache(), m.open(), seq, QUIRE_PREEMPT_RECOMPUTE, &freed,
                                       m.error()),
                  QUIRE_E_BUSY);
        EXPECT_NE(m.message().find(words), std::string::npos) << m.message();
        EXPECT_EQ(m.api().seq_end(m.cache(), seq, 0, m.error()), QUIRE_E_BUSY);
        EXPECT_NE(m.message().find(words), std::string::npos) << m.message();
    }
    m.finish(m.commit());
    m.end(a);
}

TEST(Preemption, what_a_quota_lacks_comes_from_the_namespaces_own_sequences) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX});
    quire_namespace ns = m.name_space(6);
    quire_seq oldest = m.sequence({.ns = ns}), middle = m.sequence({.ns = ns}),
              newest = m.sequence({.ns = ns}), other = m.sequence();
    for (quire_seq seq : {oldest, middle, newest, other}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true, .preempt = QUIRE_PREEMPT_RECOMPUTE});
    EXPECT_EQ(m.add(oldest, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
    std::vector<quire_preemption> who = m.preempted(m.open());
    ASSERT_EQ(who.size(), 1u);
    EXPECT_EQ(who[0].seq, newest);
    EXPECT_EQ(who[0].for_seq, oldest);
    EXPECT_EQ(m.add(newest, {9}).reason, uint32_t{QUIRE_WAIT_PREEMPTED});
    EXPECT_EQ(m.add(middle, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.preempted(m.open()).size(), 1u);
    m.finish(m.commit());
}

TEST(Preemption, the_newest_of_a_namespace_waits_for_its_quota_and_preempts_no_one) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX});
    quire_namespace ns = m.name_space(4);
    quire_seq older = m.sequence({.ns = ns}), newer = m.sequence({.ns = ns}), other = m.sequence();
    for (quire_seq seq : {older, newer, other}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true});
    quire_step_result result = m.add(newer, {9});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_QUOTA});
    EXPECT_EQ(result.blocks_short, 1u);
    EXPECT_TRUE(m.preempted(m.open()).empty());
}

// The pool is short too. What the namespace's own sequences give up is enough for both.
TEST(Preemption, no_other_namespace_gives_up_what_the_items_own_must_give_anyway) {
    Manager m({.blocks = 6, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_namespace ns = m.name_space(4);
    quire_seq older = m.sequence({.ns = ns}), newer = m.sequence({.ns = ns}), other = m.sequence();
    for (quire_seq seq : {older, newer, other}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true, .preempt = QUIRE_PREEMPT_RECOMPUTE});
    EXPECT_EQ(m.add(older, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
    std::vector<quire_preemption> who = m.preempted(m.open());
    ASSERT_EQ(who.size(), 1u);
    EXPECT_EQ(who[0].seq, newer);
    m.finish(m.commit());
}

// The pool could give what is short, and the quota cannot: then the other tenant keeps its blocks.
TEST(Preemption, an_item_that_its_quota_stops_takes_nothing_from_the_pool) {
    Manager m({.blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_namespace ns = m.name_space(2);
    quire_seq mine = m.sequence({.ns = ns}), other = m.sequence();
    for (quire_seq seq : {mine, other}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true});
    EXPECT_EQ(m.add(mine, {9}).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_TRUE(m.preempted(m.open()).empty());
}

TEST(Preemption, may_preempt_picks_the_newest) {
    Manager m({.blocks = 6, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq oldest = m.sequence(), middle = m.sequence(), newest = m.sequence();
    for (quire_seq seq : {oldest, middle, newest}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true, .preempt = QUIRE_PREEMPT_RECOMPUTE});
    EXPECT_EQ(m.add(oldest, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
    std::vector<quire_preemption> who = m.preempted(m.open());
    ASSERT_EQ(who.size(), 1u);
    EXPECT_EQ(who[0].seq, newest);
    EXPECT_EQ(who[0].for_seq, oldest);
    EXPECT_EQ(who[0].chosen_by, 1u);
    quire_step_result result = m.add(newest, {9});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_PREEMPTED});
    m.finish(m.commit());
    EXPECT_EQ(m.stats().num_preemptions, 1u);
    EXPECT_EQ(m.stats().preemptions_recompute, 1u);
}

TEST(Preemption, may_preempt_picks_the_lowest_priority_when_the_cache_says_so) {
    Manager m({.blocks = 6, .victim = QUIRE_VICTIM_PRIORITY, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq high = m.sequence({.priority = 5}), low = m.sequence({.priority = -1}),
              newest = m.sequence({.priority = 2});
    for (quire_seq seq : {high, low, newest}) m.compute(seq, tokens_from(1, 8));
    m.begin({.may_preempt = true});
    EXPECT_EQ(m.add(newest, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.preempted(m.open())[0].seq, low);
}

TEST(Preemption, the_newest_never_pushes_an_older_one_out) {
    Manager m({.blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq older = m.sequence(), newer = m.sequence();
    m.compute(older, tokens_from(1, 8));
    m.compute(newer, tokens_from(1, 8));
    m.begin({.may_preempt = true});
    EXPECT_EQ(m.add(newer, {9}).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_TRUE(m.preempted(m.open()).empty());
    EXPECT_EQ(m.add(older, {9}).outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST(Preemption, nobody_is_preempted_when_it_would_not_be_enough) {
    Manager m({.blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq older = m.sequence(), newer = m.sequence();
    m.compute(older, tokens_from(1, 8));
    m.compute(newer, tokens_from(1, 8));
    m.begin({.may_preempt = true});
    std::string before = m.snapshot();
    EXPECT_EQ(m.add(older, tokens_from(9, 16)).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_TRUE(m.preempted(m.open()).empty());
    EXPECT_EQ(m.snapshot(), before);
}

TEST(Preemption, a_newcomer_preempts_nobody) {
    Manager m({.blocks = 2, .flags = QUIRE_CACHE_NO_PREFIX});
    m.compute(m.sequence(), tokens_from(1, 8));
    m.begin({.may_preempt = true});
    EXPECT_EQ(m.add(m.sequence(), {1}).outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_TRUE(m.preempted(m.open()).empty());
}

TEST(Preemption, a_preempted_sequence_still_takes_names_for_its_tokens) {
    for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
        Manager m({.host_blocks = 8});
        quire_seq a = m.sequence();
        m.compute(a, {1, 2, 3, QUIRE_TOKEN_UNKNOWN});
        m.begin();
        preempt(&m, a, how);
        m.finish(m.commit());
        m.set_tokens(a, 3, {4});
        m.compute(a, {5});
        EXPECT_EQ(m.probe(tokens_from(1, 5)), 4u) << how;
    }
}

TEST(Preemption, a_failed_swap_out_is_lost) {
    Manager m({.host_blocks = 8, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 6));
    m.begin();
    preempt(&m, a, QUIRE_PREEMPT_SWAP);
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(a).computed_tokens, 0u);
    EXPECT_EQ(m.stats().host_blocks_used, 0u);
    EXPECT_EQ(m.compute(a, {}).compute_count, 6u);
}

// A block that a fork still holds no longer belongs to its first writer once that sequence has
// given it up: otherwise the next sequence in the writer's slot would write into it in place,
// concurrently with work on another queue.
TEST(Preemption, who_gave_a_shared_block_up_does_not_own_it) {
    for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
        Manager m({.blocks = 40, .host_blocks = 30, .flags = QUIRE_CACHE_NO_PREFIX});
        quire_seq first = m.sequence();
        m.compute(first, tokens_from(1, 21));
        quire_seq kept = m.fork(first, 21);
        m.begin({.queue = 1});
        m.add(first, tokens_from(50, 2));
        quire_step running = m.commit();
        m.begin({.queue = 1});
        uint32_t freed = 0;
        ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), first, how, &freed, m.error()),
                  QUIRE_OK)
            << m.message();
        quire_step given_up = m.commit();
        m.end(first);
        quire_seq second = m.fork(kept, 21);
        m.begin({.queue = 2});
        m.add(second, tokens_from(90, 1));
        EXPECT_NE(m.table(second).back(), m.table(kept).back());
        m.abort();
        m.finish(running);
        m.finish(given_up);
        m.check();
    }
}

TEST(Preemption, who_copied_a_shared_tail_does_not_own_it) {
    Manager m({.blocks = 40, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq first = m.sequence();
    m.compute(first, tokens_from(1, 22));
    quire_seq kept = m.fork(first, 22);
    m.begin({.queue = 1});
    m.add(first, tokens_from(50, 2));
    quire_step running = m.commit();
    ASSERT_EQ(m.api().seq_truncate(m.cache(), first, 21, m.error()), QUIRE_OK) << m.message();
    m.begin({.queue = 1});
    m.add(first, tokens_from(70, 1));
    quire_step copied = m.commit();
    EXPECT_EQ(m.copies(copied).size(), 1u);
    m.end(first);
    quire_seq second = m.fork(kept, 22);
    m.begin({.queue = 2});
    m.add(second, tokens_from(90, 1));
    EXPECT_NE(m.table(second).back(), m.table(kept).back());
    m.abort();
    m.finish(running);
    m.finish(copied);
    m.check();
}

TEST(Preemption, of_many_for_one_item_takes_the_newest_first) {
    for (uint32_t victim : {uint32_t{QUIRE_VICTIM_NEWEST}, uint32_t{QUIRE_VICTIM_PRIORITY}}) {
        Manager m({.blocks = 41, .victim = victim});
        quire_seq old = m.sequence({.priority = 9});
        m.compute(old, tokens_from(1, 4));
        std::vector<quire_seq> seqs;
        for (uint32_t i = 0; i < 40; ++i) {
            seqs.push_back(m.sequence({.priority = static_cast<int32_t>(i % 4)}));
            m.compute(seqs.back(), tokens_from(1000 + 10 * i, 3));
        }
        quire_step step = m.begin({.may_preempt = true, .preempt = QUIRE_PREEMPT_RECOMPUTE});
        ASSERT_EQ(m.add(old, tokens_from(5, 100)).outcome, uint32_t{QUIRE_ITEM_RUN});
        std::vector<quire_preemption> gone = m.preempted(step);
        ASSERT_EQ(gone.size(), 25u);
        std::vector<quire_seq> expected(seqs.rbegin(), seqs.rend());
        if (victim == QUIRE_VICTIM_PRIORITY) {
            auto rank = [&](quire_seq seq) {
                return (std::find(seqs.begin(), seqs.end(), seq) - seqs.begin()) % 4;
            };
            std::stable_sort(expected.begin(), expected.end(),
                             [&](quire_seq a, quire_seq b) { return rank(a) < rank(b); });
        }
        for (size_t i = 0; i < gone.size(); ++i) EXPECT_EQ(gone[i].seq, expected[i]) << i;
        m.finish(m.commit());
    }
}

}  // namespace
