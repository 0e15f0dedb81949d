// SPDX-License-Identifier: Apache-2.0
//
// Groups of sliding-window layers: blocks that fall out of the window are given back.

#include <algorithm>
#include <random>
#include <set>

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
            EXPECT_LE(front, visible) << "a block inside the window is missing";
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
    EXPECT_EQ(m.info(a).computed_tokens, 19u) << "its window is complete";
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

// Computes `count` blocks of four tokens, one block per step, all of them different.
void grow(Manager *m, quire_seq seq, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) m->compute(seq, tokens_from(first + 4 * i, 4));
}

TEST(Window, a_long_sequence_does_not_keep_others_from_being_found) {
    Manager m({.blocks = 15, .groups = {{.window = 8}}});
    quire_seq longest = m.sequence();
    grow(&m, longest, 1000, 200);  // the tree has 80 nodes
    EXPECT_EQ(m.info(longest).flags & QUIRE_SEQ_UNPUBLISHED, uint32_t{QUIRE_SEQ_UNPUBLISHED});
    EXPECT_LT(m.stats().nodes, 40u);
    for (uint32_t i = 0; i < 3; ++i) {
        quire_seq other = m.sequence();
        EXPECT_EQ(m.compute(other, tokens_from(1, 17)).hit_tokens, i == 0 ? 0u : 16u);
        m.end(other);
        grow(&m, longest, 5000 + 100 * i, 2);
    }
}

TEST(Window, a_sequence_four_times_as_long_as_the_pool_is_found) {
    Manager m({.blocks = 15, .groups = {{.window = 8}}});
    quire_seq a = m.sequence();
    grow(&m, a, 1000, 60);
    EXPECT_EQ(m.info(a).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1000, 241)), 240u);
    Tokens other = tokens_from(1000, 241);
    other[0] = 1;  // long out of every window, but still different content
    EXPECT_EQ(m.probe(other), 0u);
}

TEST(Window, the_least_recently_used_prefixes_give_way_when_nodes_run_short) {
    Manager m({.blocks = 31, .groups = {{.window = 8}}});
    // Interleaved, so that each keeps little more than its window in the pool: 120 of 160 nodes.
    std::vector<quire_seq> seqs(6);
    for (quire_seq &s : seqs) s = m.sequence();
    for (uint32_t i = 0; i < 20; ++i) {
        for (uint32_t k = 0; k < 6; ++k) m.compute(seqs[k], tokens_from(1000 * k + 4 * i, 4));
    }
    for (quire_seq s : seqs) m.end(s);
    for (uint32_t k = 0; k < 6; ++k) EXPECT_EQ(m.probe(tokens_from(1000 * k, 81)), 80u);
    quire_seq other = m.sequence();
    grow(&m, other, 9000, 12);
    EXPECT_EQ(m.probe(tokens_from(0, 81)), 0u);
    for (uint32_t k = 1; k < 6; ++k) EXPECT_EQ(m.probe(tokens_from(1000 * k, 81)), 80u);
    EXPECT_EQ(m.info(other).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
}

TEST(Window, live_sequences_give_way_the_longest_first) {
    Manager m({.blocks = 31, .groups = {{.window = 8}}});
    quire_seq seqs[8];
    for (quire_seq &s : seqs) s = m.sequence();
    // None keeps more nodes than the pool has blocks; all together keep more nodes than exist.
    for (uint32_t i = 0; i < 28; ++i) {
        for (uint32_t k = 0; k < 8; ++k) {
            if (k == 0 && i >= 6) continue;
            m.compute(seqs[k], tokens_from(10000 * k + 4 * i, 4));
        }
    }
    EXPECT_EQ(m.info(seqs[0]).flags & QUIRE_SEQ_UNPUBLISHED, 0u) << "it is short";
    uint32_t silent = 0;
    for (quire_seq s : seqs) silent += (m.info(s).flags & QUIRE_SEQ_UNPUBLISHED) != 0 ? 1 : 0;
    EXPECT_GE(silent, 1u);
    quire_seq other = m.sequence();
    m.compute(other, tokens_from(7, 9));
    EXPECT_EQ(m.probe(tokens_from(7, 9)), 8u);
}

TEST(Window, a_fork_of_a_silenced_sequence_stays_consistent) {
    Manager m({.blocks = 31, .groups = {{.window = 8}, {.window = 24}}});
    quire_seq a = m.sequence();
    grow(&m, a, 1000, 30);
    quire_seq b = m.fork(a, 120);
    grow(&m, a, 3000, 120);
    grow(&m, b, 9000, 400);
    m.end(a);
    quire_seq c = m.fork(b, m.info(b).known_tokens);
    EXPECT_NE(m.info(c).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
    grow(&m, c, 20000, 10);
    quire_seq other = m.sequence();
    m.compute(other, tokens_from(7, 9));
    EXPECT_EQ(m.probe(tokens_from(7, 9)), 8u);
}

TEST(Window, an_abort_after_room_was_made_leaves_what_the_commit_left) {
    Manager m({.blocks = 15, .groups = {{.window = 8}}});
    quire_seq a = m.sequence();
    for (uint32_t i = 0; i < 120; ++i) {
        std::string before = m.snapshot();
        m.begin();
        m.add(a, tokens_from(1000 + 4 * i, 4));
        m.abort();
        EXPECT_EQ(m.snapshot(), before);
        m.compute(a, tokens_from(1000 + 4 * i, 4));
    }
}

// Sequences over a vocabulary of two tokens, so that they often begin alike, grow far beyond the
// pool, are forked, truncated, preempted and ended, and steps fail. Whatever is found was computed
// before, token for token.
TEST(Window, long_random_lives_find_nothing_that_was_not_computed) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        std::vector<GroupOptions> groups = {{.window = 6}};
        if (seed % 2 == 0) groups.push_back({.window = 10, .sinks = 3});
        Manager m({.blocks = 21, .host_blocks = seed % 3 == 0 ? 8u : 0u, .groups = groups});
        std::mt19937 generator(seed);
        auto below = [&](uint32_t end) { return static_cast<uint32_t>(generator() % end); };
        struct Life {
            quire_seq seq;
            Tokens tokens;
        };
        std::vector<Life> lives;
        std::set<Tokens> computed;  // whole blocks from the first token on
        uint32_t hits = 0;
        auto run = [&](Life *life, const Tokens &more, bool fails) {
            uint32_t before = m.info(life->seq).computed_tokens;
            m.begin({.may_preempt = below(2) == 0});
            quire_step_result result = m.add(life->seq, more);
            if (result.outcome != QUIRE_ITEM_RUN) return m.abort();
            life->tokens = joined(life->tokens, more);
            auto end = life->tokens.begin();
            if (before == 0 && result.hit_tokens != 0) {
                hits += result.hit_tokens;
                EXPECT_TRUE(computed.contains(Tokens(end, end + result.hit_tokens)));
            }
            m.finish(m.commit(), fails ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
            uint32_t known = m.info(life->seq).computed_tokens;
            for (uint32_t n = 4; n <= known; n += 4) computed.insert(Tokens(end, end + n));
        };
        for (uint32_t i = 0; i < 500; ++i) {
            if (lives.empty() || (lives.size() < 5 && below(8) == 0)) {
                lives.push_back(Life{m.sequence(), {}});
            }
            uint32_t at = below(static_cast<uint32_t>(lives.size()));
            Life &life = lives[at];
            auto length = static_cast<uint32_t>(life.tokens.size());
            switch (below(16)) {
                case 0:
                    m.end(life.seq);
                    lives[at] = lives.back();
                    lives.pop_back();
                    break;
                case 1:
                    if (length == 0 || lives.size() == 6) break;
                    if ((m.info(life.seq).flags & QUIRE_SEQ_SWAPPED) != 0) break;
                    length -= below(length < 9 ? length : 9);
                    lives.push_back(
                        Life{m.fork(life.seq, length),
                             Tokens(life.tokens.begin(), life.tokens.begin() + length)});
                    break;
                case 2:
                    length -= below(length < 9 ? length + 1 : 9);
                    ASSERT_EQ(m.api().seq_truncate(m.cache(), life.seq, length, m.error()),
                              QUIRE_OK);
                    life.tokens.resize(length);
                    break;
                default: {
                    Tokens more(1 + below(12));
                    for (quire_token &token : more) token = below(8) == 0 ? 2 : 1;
                    run(&life, more, below(40) == 0);
                }
            }
            m.check();
        }
        EXPECT_GT(hits, 0u) << "seed " << seed;
    }
}

// A window of two blocks in a pool of three, which a prompt has filled.
class FullPool : public testing::Test {
 protected:
    static CacheOptions options(uint32_t flags = 0) {
        return {.blocks = 3, .host_blocks = 4, .flags = flags, .groups = {{.window = 8}}};
    }

    quire_seq prompt(Manager &m) {
        quire_seq a = m.sequence();
        m.compute(a, tokens_from(1, 12));
        EXPECT_EQ(m.stats().blocks_held, 3u);
        return a;
    }
};

TEST_F(FullPool, an_item_has_the_blocks_that_its_window_has_passed) {
    for (uint32_t flags : {0u, uint32_t{QUIRE_CACHE_NO_PREFIX}}) {
        Manager m(options(flags));
        quire_seq a = prompt(m);
        int32_t passed = m.table(a)[0];
        m.begin();
        ASSERT_EQ(m.add(a, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
        EXPECT_EQ(m.table(a)[0], 0) << "the token at 12 sees 5..12";
        EXPECT_EQ(m.table(a)[3], passed);
        m.finish(m.commit());
        for (uint32_t i = 13; i < 60; ++i) m.compute(a, {1 + i});
        EXPECT_EQ(m.stats().blocks_held, 2u);
    }
}

TEST_F(FullPool, an_abort_and_a_drop_give_the_passed_blocks_back) {
    Manager m(options());
    quire_seq a = prompt(m);
    std::string before = m.snapshot();
    Blocks table = m.table(a);
    m.begin();
    m.add(a, {13});
    EXPECT_EQ(m.stats().evictions, 1u)
        << "the block that the window passed was published and is evicted";
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(m.table(a), table);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
    m.begin();
    m.add(a, {13});
    EXPECT_EQ(m.drop(a), std::vector<quire_seq>{a});
    EXPECT_EQ(m.table(a), table);
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST_F(FullPool, what_earlier_tokens_of_the_item_see_is_not_reused) {
    Manager m(options());
    quire_seq a = prompt(m);
    std::string before = m.snapshot();
    m.begin();
    // 12..20 need 3 more blocks. The token at 20 sees nothing of the second one; that at 12 does.
    quire_step_result result = m.add(a, tokens_from(13, 9));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_POOL});
    EXPECT_EQ(result.blocks_short, 2u);
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_NE(m.table(a)[0], 0) << "it waits, and gave nothing back";
    result = m.add(a, tokens_from(13, 9), {.max_compute = 4});
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
    m.finish(m.commit());
    m.compute(a, {}, {.max_compute = 4});
    EXPECT_EQ(m.compute(a, {}).compute_count, 1u);
}

TEST_F(FullPool, a_passed_block_that_another_sequence_holds_is_not_reused) {
    Manager m(options());
    quire_seq a = prompt(m), b = m.fork(a, 12);
    m.begin();
    quire_step_result result = m.add(a, {13});
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.blocks_short, 1u);
    m.abort();
    m.end(b);
    m.compute(a, {13});
}

TEST_F(FullPool, a_passed_block_that_work_elsewhere_reads_is_not_reused) {
    Manager m({.blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX, .groups = {{.window = 8}}});
    quire_seq a = prompt(m), b = m.fork(a, 4);
    m.begin({.queue = 2});
    ASSERT_EQ(m.add(b, {50}).outcome, uint32_t{QUIRE_ITEM_RUN});
    quire_step running = m.commit();
    m.end(b);  // its last step may still read the first block and write to its own
    m.begin({.queue = 1});
    quire_step_result result = m.add(a, {13});
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.blocks_short, 1u);
    m.abort();
    m.finish(running);
    m.compute(a, {13});
}

TEST_F(FullPool, a_quota_counts_what_an_item_gives_back) {
    Manager m({.blocks = 16, .groups = {{.window = 8}}});
    quire_namespace ns = m.name_space(3);
    quire_seq a = m.sequence({.ns = ns});
    m.compute(a, tokens_from(1, 12));
    for (uint32_t i = 12; i < 40; ++i) m.compute(a, {1 + i});
    m.begin();
    quire_step_result result = m.add(a, tokens_from(41, 9));
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_QUOTA});
    EXPECT_EQ(result.blocks_short, 2u);
}

// A namespace with this quota in blocks, three of them held by a prompt; the window of its next
// token has passed two of the three. That token needs one block and, once the quota is used up,
// reuses one of the two.
struct FullQuota {
    explicit FullQuota(uint32_t quota_blocks) : ns(m.name_space(quota_blocks)) {
        m.compute(prompt, tokens_from(1, 12));
    }
    void expect_waits(quire_step_result result) {
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
        EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_QUOTA});
        EXPECT_EQ(result.blocks_short, 1u);
    }

    Manager m{{.blocks = 16, .groups = {{.window = 4}}}};
    quire_namespace ns;
    quire_seq prompt = m.sequence({.ns = ns}), other = m.sequence({.ns = ns});
};

TEST(QuotaOfAStep, what_an_item_gave_back_is_for_others_once_it_is_committed) {
    FullQuota t(3);
    t.m.begin();
    ASSERT_EQ(t.m.add(t.prompt, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(t.m.info_of(t.ns).blocks_held, 2u);
    t.expect_waits(t.m.add(t.other, {50}));
    t.m.finish(t.m.commit());
    t.m.compute(t.other, {50});
    EXPECT_EQ(t.m.info_of(t.ns).blocks_held, 3u);
}

TEST(QuotaOfAStep, a_drop_finds_room_for_what_the_item_gave_back) {
    FullQuota t(3);
    t.m.begin();
    ASSERT_EQ(t.m.add(t.prompt, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    t.m.add(t.other, {50});
    EXPECT_EQ(t.m.drop(t.prompt), std::vector<quire_seq>{t.prompt});
    EXPECT_LE(t.m.info_of(t.ns).blocks_held, 3u);
    ASSERT_EQ(t.m.add(t.prompt, {13}).outcome, uint32_t{QUIRE_ITEM_RUN}) << "as before";
    t.m.finish(t.m.commit());
    EXPECT_LE(t.m.info_of(t.ns).blocks_held, 3u);
    t.m.compute(t.other, {50});
}

TEST(QuotaOfAStep, what_does_not_need_that_room_is_not_kept_from_it) {
    FullQuota t(4);
    t.m.begin();
    t.m.add(t.prompt, {13});  // needs no room: it takes a block, and gives back at commit
    EXPECT_EQ(t.m.info_of(t.ns).blocks_held, 4u);
    t.m.drop(t.prompt);
    ASSERT_EQ(t.m.add(t.other, {50}).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(t.m.add(t.prompt, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(t.m.info_of(t.ns).blocks_held, 3u) << "two given back, one taken";
    quire_seq third = t.m.sequence({.ns = t.ns});
    t.expect_waits(t.m.add(third, {60}));
    t.m.drop(t.other);
    EXPECT_EQ(t.m.add(third, {60}).outcome, uint32_t{QUIRE_ITEM_RUN})
        << "the dropped item made room";
    t.m.abort();
    EXPECT_EQ(t.m.info_of(t.ns).blocks_held, 3u);
}

TEST(QuotaOfAStep, a_fork_leaves_room_for_what_an_abort_brings_back) {
    FullQuota t(4);
    t.m.compute(t.other, {50});
    t.m.begin();
    ASSERT_EQ(t.m.add(t.prompt, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    quire_seq out = 0;
    EXPECT_EQ(t.m.api().seq_fork(t.m.cache(), t.other, 1, &out, t.m.error()), QUIRE_E_LIMIT);
    t.m.abort();
    EXPECT_LE(t.m.info_of(t.ns).blocks_held, 4u);
}

TEST_F(FullPool, a_swapped_sequence_leaves_what_it_has_passed_behind) {
    Manager m(options(QUIRE_CACHE_NO_PREFIX));
    quire_seq a = prompt(m);
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    m.finish(m.commit());
    std::string before = m.snapshot();
    m.begin();
    ASSERT_EQ(m.add(a, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.copies(m.open()).size(), 2u);
    EXPECT_EQ(null_front(m.table(a)), 1u);
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    m.compute(a, {13});
    EXPECT_EQ(m.stats().host_blocks_used, 0u);
}

TEST_F(FullPool, a_block_that_is_reused_is_written_in_place) {
    Manager m(options(QUIRE_CACHE_NO_PREFIX));
    quire_seq a = prompt(m);
    m.compute(a, {13});
    quire_seq b = m.fork(a, 13);  // shares one slot of the block, so only the owner continues in it
    m.begin();
    ASSERT_EQ(m.add(a, {14}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_TRUE(m.copies(m.open()).empty());
    m.finish(m.commit());
    m.end(b);
}

TEST_F(FullPool, a_failed_step_that_reused_a_block_is_computed_again) {
    Manager m(options());
    quire_seq a = prompt(m);
    m.begin();
    m.add(a, {13});
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(a).computed_tokens, 12u);
    quire_step_result again = m.compute(a, {});
    EXPECT_EQ(again.first_position, 12u);
    EXPECT_EQ(again.compute_count, 1u);
}

TEST_F(FullPool, passed_blocks_go_before_victims) {
    Manager m({.blocks = 4, .groups = {{.window = 8}}});
    quire_seq a = prompt(m), b = m.sequence();
    m.compute(b, {99});
    m.begin({.may_preempt = true});
    ASSERT_EQ(m.add(a, {13}).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_TRUE(m.preempted(m.open()).empty());
    m.finish(m.commit());
    EXPECT_EQ(m.info(b).computed_tokens, 1u);
}

// Once the victim gives up the tail, the item no longer needs the copy that it lacked a block for.
TEST_F(FullPool, an_item_whose_tail_a_victim_leaves_to_it_passes_blocks_and_takes_none) {
    Manager m({.blocks = 5, .groups = {{.window = 4}}});
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 18));
    quire_seq first = m.fork(parent, 18), second = m.fork(parent, 18);
    m.end(parent);
    Blocks table = m.table(first);
    m.begin({.may_preempt = true});
    ASSERT_EQ(m.add(first, {19}).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(m.preempted(m.open()).size(), 1u);
    EXPECT_EQ(m.table(first)[4], table[4]) << "written in place";
    m.abort();
    EXPECT_EQ(m.table(first), table);
    EXPECT_EQ(m.table(second), table);
    m.begin({.may_preempt = true});
    m.add(first, {19});
    m.finish(m.commit());
    EXPECT_EQ(null_front(m.table(first)), 3u);
}

TEST_F(FullPool, a_chunk_that_has_passed_is_reused) {
    Manager m({.blocks = 2, .groups = {{.window = 8, .kind = QUIRE_GROUP_CHUNKED}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    for (uint32_t i = 8; i < 30; ++i) m.compute(a, {1 + i});
    EXPECT_LE(m.stats().blocks_held, 2u);
}

}  // namespace
