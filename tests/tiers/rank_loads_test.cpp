// SPDX-License-Identifier: Apache-2.0
//
// Loads of three ranks: in any order, short on one of them, late, dropped, and while ranks move.

#include "tests/tiers/rank_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSize = Rank::kBlockTokens;

// Three ranks of one KV head each.
class ThreeRanks : public testing::Test {
 protected:
    ThreeRanks() {
        r.attach_all();
        r.compute(prompt);
        r.settle();
        r.evict_all();
        r.settle();
    }
    ~ThreeRanks() override { EXPECT_EQ(r.wrong_rows(), 0u); }

    // Begins to load the prompt, up to where the followers know.
    quire_seq begin_load() {
        quire_seq seq = r.create();
        EXPECT_EQ(r.run(seq, prompt).outcome, uint32_t{QUIRE_ITEM_LOADING});
        return seq;
    }
    void take(const Bytes &report, quire_status expected = QUIRE_OK) {
        EXPECT_EQ(r.api.cache_take_report(r.leader().cache, report.data(), report.size(), &r.error),
                  expected)
            << r.error.message;
        r.check();
    }
    // The follower's report, once its store has answered all.
    Bytes report_of(size_t follower) {
        while (r.follower(follower).poll().loads_running != 0) {
        }
        return r.follower(follower).report();
    }

    static constexpr uint32_t kBlocks = 6;
    const Tokens prompt = rank_prompt(3, kBlocks *kSize + 2);
    Ranks r{{.ranks = {{{0, 0, 0, 1}}, {{0, 0, 1, 1}}, {{0, 0, 2, 1}}}, .heads = 3}};
};

TEST_F(ThreeRanks, answers_and_reports_may_come_in_any_order) {
    for (uint32_t order = 0; order < 6; ++order) {
        SCOPED_TRACE(order);
        for (const auto &rank : r.ranks) {
            rank->stub->holds = true;
            rank->stub->reverses = order % 2 == 1;
        }
        quire_seq seq = begin_load();
        for (uint32_t i = 0; i < 3; ++i) {
            Rank &rank = *r.ranks[(order + (order < 3 ? i : 3 - i)) % 3];
            EXPECT_EQ(r.leader().poll().loads_ready, 0u);
            rank.stub->holds = false;
            if (rank.number != 0) take(report_of(rank.number - 1));
        }
        while (r.leader().poll().loads_running != 0) {
        }
        EXPECT_EQ(r.leader().poll().loads_ready, 1u);
        EXPECT_EQ(r.run(seq, prompt).hit_tokens, kBlocks * kSize);
        r.end(seq);
        r.evict_all();
    }
}

// A store of a follower lacks a block, or has a wrong one.
TEST_F(ThreeRanks, a_load_is_as_long_as_on_the_rank_that_has_least) {
    std::atomic<bool> StubControl::*const faults[] = {&StubControl::forgets, &StubControl::spoils,
                                                      &StubControl::cuts, &StubControl::fails_gets};
    uint32_t which = 0;
    for (uint32_t block = 0; block < kBlocks; ++block, ++which) {
        for (size_t i = 0; i < 2; ++i) {
            SCOPED_TRACE(testing::Message() << "block " << block << " of follower " << i);
            Rank &f = r.follower(i);
            f.stub->reset();
            auto fault = faults[which % 4];
            f.stub->*fault = true;
            f.stub->gets = 0;
            f.stub->picks = uint64_t{1} << block;
            r.expect_found(prompt, block);
            f.stub->reset();
            r.settle();
            r.evict_all();
        }
    }
    EXPECT_GT(r.follower(0).stats().blocks_lost, 0u);
}

TEST_F(ThreeRanks, a_foreign_or_damaged_value_of_each_block_is_not_used) {
    for (uint32_t block = 0; block < kBlocks; ++block) {
        for (uint32_t at : {32u, 68u, 72u, 80u, 84u, 96u, 140u, 180u, 256u}) {
            SCOPED_TRACE(testing::Message() << "block " << block << ", word at " << at);
            Rank &f = r.follower(block % 2);
            f.stub->reset();
            f.stub->gets = 0;
            f.stub->picks = uint64_t{1} << block;
            f.stub->tampers_to = 77;
            f.stub->tampers_at = at;
            r.expect_found(prompt, block);
            f.stub->reset();
            r.settle();
            r.evict_all();
        }
    }
}

TEST_F(ThreeRanks, a_follower_without_a_store_has_nothing) {
    EXPECT_EQ(r.follower(1).detach(), QUIRE_OK);
    quire_seq seq = begin_load();
    const Bytes report = r.follower(1).report();  // at once, though the others still load
    ASSERT_FALSE(report.empty());
    take(report);
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.leader().stats().loads_missed, 1u);
    EXPECT_EQ(r.run(seq, prompt).hit_tokens, 0u);
    r.end(seq);
    r.deliver_reports();
}

TEST_F(ThreeRanks, a_detach_during_a_load_is_a_miss) {
    r.follower(0).stub->holds = true;
    quire_seq seq = begin_load();
    EXPECT_EQ(r.api.cache_detach_tier_wait(r.follower(0).cache, 0, &r.error), QUIRE_S_TIMEOUT);
    take(report_of(1));
    take(r.follower(0).report());
    EXPECT_EQ(r.leader().stats().loads_missed, 1u);
    r.follower(0).stub->holds = false;
    EXPECT_EQ(r.follower(0).detach(), QUIRE_OK);
    r.end(seq);
}

TEST_F(ThreeRanks, a_load_that_comes_during_a_detach_begins_and_ends) {
    Rank &f = r.follower(0);
    f.stub->holds = true;
    quire_seq first = begin_load();
    EXPECT_EQ(r.api.cache_detach_tier_wait(f.cache, 0, &r.error), QUIRE_S_TIMEOUT);
    quire_seq second = begin_load();
    const quire_cache_tier_progress progress = f.poll();
    EXPECT_EQ(f.stats().loads_begun, 2u);
    EXPECT_EQ(f.stats().loads_missed, 2u);
    EXPECT_EQ(progress.loads_running, 0u);
    EXPECT_EQ(progress.loads_ended, 2u);
    f.stub->holds = false;
    EXPECT_EQ(f.detach(), QUIRE_OK);
    r.end(first);
    r.end(second);
}

TEST_F(ThreeRanks, a_lost_report_is_a_late_load) {
    EXPECT_EQ(r.leader().detach(), QUIRE_OK);
    r.leader().load_timeout_ns = 20'000'000;
    EXPECT_EQ(r.leader().attach(), QUIRE_OK);
    quire_seq seq = begin_load();
    take(report_of(0));
    const Bytes lost = report_of(1);
    EXPECT_FALSE(lost.empty());
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.leader().stats().loads_late, 1u);
    EXPECT_EQ(r.run(seq, prompt).hit_tokens, 0u);
    // It comes after all, and says nothing new.
    take(lost);
    take(lost, QUIRE_E_ARG);
    r.end(seq);
}

TEST_F(ThreeRanks, what_arrives_after_a_load_was_dropped_is_thrown_away) {
    Rank &f = r.follower(0);
    f.stub->holds = true;
    quire_seq seq = begin_load();
    EXPECT_EQ(r.api.cache_cancel_load(r.leader().cache, seq, &r.error), QUIRE_OK);
    // Swap sequences out into the host tier, and let the answers come then.
    std::vector<quire_seq> seqs;
    std::vector<Tokens> prompts;
    for (uint32_t i = 0; i < 4; ++i) {
        seqs.push_back(r.create());
        prompts.push_back(rank_prompt(40 + i, 7 * kSize));
        EXPECT_EQ(r.run(seqs[i], prompts[i], 0).outcome, uint32_t{QUIRE_ITEM_RUN});
    }
    ASSERT_EQ(r.begin({}), QUIRE_OK);
    for (quire_seq one : seqs) {
        uint32_t freed = 0;
        EXPECT_EQ(
            r.api.step_preempt(r.leader().cache, r.step, one, QUIRE_PREEMPT_SWAP, &freed, &r.error),
            QUIRE_OK)
            << r.error.message;
    }
    r.commit();
    r.finish();
    r.deliver_logs();
    f.stub->holds = false;
    for (uint32_t i = 0; i < 100; ++i) f.poll();
    r.check();
    for (uint32_t i = 0; i < 4; ++i) {
        Tokens more = prompts[i];
        more.push_back(5);
        EXPECT_EQ(r.run(seqs[i], more, 0).outcome, uint32_t{QUIRE_ITEM_RUN});
        EXPECT_EQ(r.wrong_rows(), 0u);
    }
    EXPECT_EQ(f.stats().loads_cancelled, 1u);
    for (quire_seq one : seqs) r.end(one);
    r.end(seq);
}

// The leader cuts a load that one follower still fills; what it gave back takes a swapped sequence.
TEST_F(ThreeRanks, blocks_that_a_load_gave_back_are_not_filled) {
    Rank &slow = r.follower(0), &lacks = r.follower(1);
    slow.stub->holds = true;
    lacks.stub->forgets = true;
    lacks.stub->gets = 0;
    lacks.stub->picks = uint64_t{1} << 2;
    quire_seq seq = begin_load();
    take(report_of(1));
    EXPECT_EQ(r.leader().poll().loads_running, 1u);
    std::vector<quire_seq> seqs;
    std::vector<Tokens> prompts;
    for (uint32_t i = 0; i < 4; ++i) {
        seqs.push_back(r.create());
        prompts.push_back(rank_prompt(60 + i, 7 * kSize));
        r.run(seqs[i], prompts[i], 0);
    }
    ASSERT_EQ(r.begin({}), QUIRE_OK);
    for (quire_seq one : seqs) {
        uint32_t freed = 0;
        EXPECT_EQ(
            r.api.step_preempt(r.leader().cache, r.step, one, QUIRE_PREEMPT_SWAP, &freed, &r.error),
            QUIRE_OK)
            << r.error.message;
    }
    r.commit();
    r.finish();
    r.deliver_logs();
    slow.stub->holds = false;
    take(report_of(0));
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.leader().poll().loads_ready, 1u);
    EXPECT_EQ(r.run(seq, prompt).hit_tokens, 2 * kSize);
    r.end(seq);
    for (uint32_t i = 0; i < 4; ++i) {
        Tokens more = prompts[i];
        more.push_back(5);
        EXPECT_EQ(r.run(seqs[i], more, 0).outcome, uint32_t{QUIRE_ITEM_RUN});
        EXPECT_EQ(r.wrong_rows(), 0u);
        r.end(seqs[i]);
    }
}

// A follower moves while a load lies in its host tier; a leader's move ends its loads.
TEST_F(ThreeRanks, ranks_migrate_during_a_load) {
    quire_seq seq = begin_load();
    for (size_t i = 0; i < 2; ++i) {
        if (i == 1) r.follower(1).stub->holds = true;
        const Bytes report = i == 0 ? report_of(0) : Bytes{};
        r.follower(i).migrate(QUIRE_MIGRATE_COPY_HOST_TIER);
        r.follower(1).stub->holds = false;
        take(i == 0 ? report : report_of(1));
    }
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.run(seq, prompt).hit_tokens, kBlocks * kSize);
    EXPECT_EQ(r.wrong_rows(), 0u);
    r.end(seq);
    r.evict_all();

    seq = begin_load();
    r.leader().migrate(0);
    EXPECT_EQ(r.leader().poll().loads_running + r.leader().poll().loads_ready, 0u);
    r.empty_step();
    r.deliver_logs();
    EXPECT_EQ(r.follower(0).poll().loads_ready + r.follower(0).poll().loads_running, 0u);
    r.deliver_reports();
    EXPECT_EQ(r.run_to_the_end(seq, prompt).hit_tokens, kBlocks * kSize);
    EXPECT_EQ(r.wrong_rows(), 0u);
    r.end(seq);
}

}  // namespace
