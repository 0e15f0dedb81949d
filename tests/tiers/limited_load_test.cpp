// SPDX-License-Identifier: Apache-2.0
//
// Loads for items that may find less than the load brings, because of a max_hit_tokens or because
// they are sent with fewer tokens.

#include "tests/tiers/rank_rig.hpp"
#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRun = QUIRE_ITEM_RUN, kLoading = QUIRE_ITEM_LOADING;
constexpr uint32_t kBlocks = 6, kSize = RigCache::kBlockTokens;

class LimitedLoad : public TierRig {
 protected:
    // A cache whose device has lost the prompt, and a store that has it.
    void stock(const RigShape &shape = {}) {
        open_stub();
        rig = std::make_unique<RigCache>(instance, shape);
        ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
        rig->compute(tokens);
        rig->settle();
        rig->evict_all();
        rig->settle();
    }
    ~LimitedLoad() override {
        if (rig == nullptr) return;
        EXPECT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
        EXPECT_EQ(host_blocks(), 0u);
        rig->check();
        rig.reset();
    }
    uint64_t host_blocks() {
        auto stats = described<quire_cache_stats>();
        EXPECT_EQ(api.cache_get_stats(rig->cache, &stats, &error), QUIRE_OK);
        return stats.host_blocks_used;
    }
    quire_seq begin_load() {
        quire_seq seq = rig->create();
        EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
        return seq;
    }
    void wait() {
        ASSERT_EQ(api.cache_load_wait(rig->cache, UINT64_MAX, nullptr, &rig->error), QUIRE_OK)
            << rig->error.message;
        rig->check();
    }
    // The item with a limit, in a step of its own.
    quire_step_result run(quire_seq seq, uint32_t limit) {
        EXPECT_EQ(rig->begin({{seq, tokens, QUIRE_ITEM_MAY_LOAD, 0, limit}}), QUIRE_OK)
            << rig->error.message;
        rig->check();
        rig->commit_and_compute();
        rig->finish();
        rig->check();
        return rig->results[0];
    }
    void begin_and_abort(quire_seq seq, uint32_t limit, uint32_t found) {
        ASSERT_EQ(rig->begin({{seq, tokens, QUIRE_ITEM_MAY_LOAD, 0, limit}}), QUIRE_OK)
            << rig->error.message;
        EXPECT_EQ(rig->results[0].outcome, kRun);
        EXPECT_EQ(rig->results[0].hit_tokens, found);
        rig->check();
        rig->abort();
        rig->check();
    }
    void end(quire_seq seq) {
        rig->end(seq);
        rig->evict_all();
        rig->settle();
        EXPECT_EQ(host_blocks(), 0u);
        EXPECT_EQ(rig->wrong_rows, 0u);
    }

    const Tokens tokens = prompt(1, kBlocks *kSize + 1);
    std::unique_ptr<RigCache> rig;
};

TEST_F(LimitedLoad, is_used_as_far_as_the_limit_goes) {
    for (uint32_t groups : {1u, 2u}) {
        RigShape shape;
        shape.groups = groups;
        stock(shape);
        for (uint32_t limit = 1; limit <= kBlocks * kSize; ++limit) {
            SCOPED_TRACE(testing::Message() << groups << " groups, limit " << limit);
            const quire_cache_tier_stats before = rig->stats();
            const quire_seq seq = begin_load();
            wait();
            EXPECT_EQ(host_blocks(), groups * kBlocks);
            const uint32_t blocks = limit / kSize;
            begin_and_abort(seq, limit, blocks * kSize);
            EXPECT_EQ(host_blocks(), groups * kBlocks) << "an abort changes nothing";
            const quire_step_result result = run(seq, limit);
            EXPECT_EQ(result.outcome, kRun);
            EXPECT_EQ(result.hit_tokens, blocks * kSize);
            EXPECT_EQ(host_blocks(), 0u);
            const quire_cache_tier_stats after = rig->stats();
            EXPECT_EQ(after.loads_begun - before.loads_begun, 1u);
            EXPECT_EQ(after.loads_used - before.loads_used, blocks != 0 ? 1u : 0u);
            EXPECT_EQ(after.loads_cancelled - before.loads_cancelled, blocks != 0 ? 0u : 1u);
            EXPECT_EQ(after.tokens_loaded - before.tokens_loaded, blocks * kSize);
            end(seq);
            if (HasFailure()) return;
        }
        EXPECT_EQ(rig->detach(), QUIRE_OK);
        rig.reset();
        close();
    }
}

TEST_F(LimitedLoad, stays_whole_when_a_step_with_a_limit_is_aborted) {
    stock();
    const quire_seq seq = begin_load();
    wait();
    for (uint32_t limit : {QUIRE_NO_HITS, 1u, kSize, 3 * kSize + 2})
        begin_and_abort(seq, limit, limit == QUIRE_NO_HITS ? 0 : limit / kSize * kSize);
    EXPECT_EQ(run(seq, 0).hit_tokens, kBlocks * kSize);
    EXPECT_EQ(rig->stats().loads_begun, 1u);
    end(seq);
}

TEST_F(LimitedLoad, is_given_up_by_an_item_that_may_find_nothing) {
    stock();
    const quire_seq seq = begin_load();
    wait();
    EXPECT_EQ(run(seq, QUIRE_NO_HITS).hit_tokens, 0u);
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    EXPECT_EQ(rig->stats().loads_used, 0u);
    end(seq);
}

// The item waits for a load of which it may use a part, and for no other.
TEST_F(LimitedLoad, that_runs_is_waited_for_if_it_brings_more_than_the_device_has) {
    stock();
    stub->holds = true;
    rig->compute(Tokens(tokens.begin(), tokens.begin() + 2 * kSize));
    const quire_seq seq = begin_load();
    EXPECT_EQ(run(seq, 3 * kSize).outcome, kLoading);
    begin_and_abort(seq, 2 * kSize, 2 * kSize);
    EXPECT_EQ(rig->poll().loads_running, 1u);
    stub->holds = false;
    wait();
    EXPECT_EQ(run(seq, 3 * kSize + 1).hit_tokens, 3 * kSize);
    EXPECT_EQ(rig->stats().tokens_loaded, kSize);
    EXPECT_EQ(rig->stats().loads_begun, 1u);
    end(seq);
}

TEST_F(LimitedLoad, is_used_by_an_item_with_fewer_of_the_tokens) {
    stock();
    const quire_seq seq = begin_load();
    wait();
    const Tokens front(tokens.begin(), tokens.begin() + 4 * kSize + 3);
    EXPECT_EQ(rig->run(seq, front).hit_tokens, 4 * kSize);
    EXPECT_EQ(rig->stats().loads_used, 1u);
    end(seq);
}

TEST_F(LimitedLoad, begins_with_what_the_device_has_and_the_limit_is_within_that) {
    stock();
    for (uint32_t blocks = 0; blocks <= 3; ++blocks) {
        SCOPED_TRACE(blocks);
        rig->compute(Tokens(tokens.begin(), tokens.begin() + 3 * kSize));
        const quire_seq seq = begin_load();
        wait();
        EXPECT_EQ(run(seq, blocks != 0 ? blocks * kSize : 1).hit_tokens, blocks * kSize);
        EXPECT_EQ(rig->stats().loads_cancelled, blocks + 1);
        end(seq);
    }
    EXPECT_EQ(rig->stats().tokens_loaded, 0u);
}

// The blocks of a window are those that the whole load needs.
TEST_F(LimitedLoad, begins_again_where_a_group_has_a_window) {
    RigShape shape;
    shape.window = 20;
    stock(shape);
    const quire_seq seq = begin_load();
    wait();
    EXPECT_EQ(run(seq, 4 * kSize).outcome, kLoading);
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    wait();
    EXPECT_EQ(run(seq, 4 * kSize).hit_tokens, 4 * kSize);
    EXPECT_EQ(rig->stats().loads_begun, 2u);
    end(seq);
}

TEST(LimitedRankLoad, every_rank_has_the_blocks_within_the_limit) {
    Ranks r{{.ranks = {{{0, 0, 0, 1}}, {{0, 0, 1, 1}}, {{0, 0, 2, 1}}}, .heads = 3}};
    const Tokens prompt = rank_prompt(3, kBlocks * Rank::kBlockTokens + 2);
    r.attach_all();
    r.compute(prompt);
    r.settle();
    for (uint32_t blocks = 0; blocks <= kBlocks; ++blocks) {
        SCOPED_TRACE(blocks);
        r.evict_all();
        r.settle();
        const quire_seq seq = r.create();
        EXPECT_EQ(r.run(seq, prompt).outcome, kLoading);
        while (r.leader().poll().loads_running != 0) {
            for (const auto &rank : r.ranks) rank->poll();
            r.deliver_reports();
        }
        const uint32_t limit = blocks != 0 ? blocks * Rank::kBlockTokens + 1 : QUIRE_NO_HITS;
        ASSERT_EQ(r.begin({{seq, prompt, QUIRE_ITEM_MAY_LOAD, 0, limit}}), QUIRE_OK);
        EXPECT_EQ(r.results[0].hit_tokens, blocks * Rank::kBlockTokens);
        r.check();
        r.commit();
        r.finish();
        r.deliver_logs();
        r.deliver_reports();
        r.check();
        r.end(seq);
        EXPECT_EQ(r.wrong_rows(), 0u);
    }
    EXPECT_EQ(r.leader().stats().loads_used, kBlocks);
    EXPECT_EQ(r.leader().stats().loads_cancelled, 1u);
    r.detach_all();
}

}  // namespace
