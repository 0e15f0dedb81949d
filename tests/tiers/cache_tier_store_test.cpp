// SPDX-License-Identifier: Apache-2.0
//
// A store that is slow, full, damaged, foreign or wrong costs a cache hits, and nothing else.

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRun = QUIRE_ITEM_RUN, kLoading = QUIRE_ITEM_LOADING;

class CacheTierStore : public TierRig {
 protected:
    // A cache over the stub, which has the prompt; the device has lost it.
    void stock(const RigShape &shape = {}) {
        open_stub();
        rig = std::make_unique<RigCache>(instance, shape);
        ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
        rig->compute(prompt(77, 9));  // the first value, of another prompt
        rig->compute(tokens);
        rig->settle();
        rig->evict_all();
        rig->settle();
    }
    void drop_cache() {
        if (rig == nullptr) return;
        EXPECT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
        rig->check();
        rig.reset();
    }
    ~CacheTierStore() override { drop_cache(); }
    void wait() {
        ASSERT_EQ(api.cache_load_wait(rig->cache, UINT64_MAX, nullptr, &rig->error), QUIRE_OK)
            << rig->error.message;
        rig->check();
    }
    // Loads with a fault; the item is a plain miss, and the next sequence finds the blocks.
    quire_cache_tier_stats load_with(std::atomic<bool> StubControl::*fault) {
        stock();
        quire_seq seq = rig->create();
        stub->*fault = true;
        EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
        wait();
        const quire_step_result result = rig->run(seq, tokens);
        EXPECT_EQ(result.outcome, kRun);
        EXPECT_EQ(result.hit_tokens, 0u);
        stub->*fault = false;
        rig->end(seq);
        EXPECT_EQ(rig->stats().loads_ready, 0u);
        rig->evict_all();
        seq = rig->create();
        EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, 96u);
        rig->end(seq);
        return rig->stats();
    }

    const Tokens tokens = prompt(1, 100);
    std::unique_ptr<RigCache> rig;
};

TEST_F(CacheTierStore, that_is_slow_makes_the_item_wait_and_no_other) {
    stock();
    stub->holds = true;
    quire_seq slow = rig->create(), other = rig->create();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(rig->begin({{slow, tokens}, {other, prompt(5 + i, 9)}}), QUIRE_OK);
        EXPECT_EQ(rig->results[0].outcome, kLoading);
        EXPECT_EQ(rig->results[1].outcome, kRun);
        rig->commit_and_compute();
        rig->finish();
        rig->check();
        rig->end(other);
        other = rig->create();
    }
    EXPECT_EQ(rig->stats().loads_begun, 1u) << "one load per sequence";
    auto info = described<quire_seq_info>();
    ASSERT_EQ(api.seq_get_info(rig->cache, slow, &info, &error), QUIRE_OK);
    EXPECT_EQ(info.known_tokens, 0u);
    EXPECT_EQ(api.cache_load_wait(rig->cache, 1, nullptr, &error), QUIRE_S_TIMEOUT);
    stub->holds = false;
    EXPECT_EQ(rig->run_to_the_end(slow, tokens).hit_tokens, 96u);
    rig->end(slow);
    rig->end(other);
}

TEST_F(CacheTierStore, that_answers_out_of_order_is_as_good) {
    stock();
    stub->reverses = true;
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, 96u);
    rig->end(seq);
}

TEST_F(CacheTierStore, that_fails_is_a_miss) {
    EXPECT_EQ(load_with(&StubControl::fails_gets).loads_failed, 1u);
}

TEST_F(CacheTierStore, that_has_lost_a_value_is_a_miss) {
    EXPECT_EQ(load_with(&StubControl::forgets).loads_missed, 1u);
}

TEST_F(CacheTierStore, that_damages_a_value_is_a_miss) {
    const quire_cache_tier_stats stats = load_with(&StubControl::spoils);
    EXPECT_EQ(stats.loads_missed, 1u);
    EXPECT_EQ(stats.values_damaged, 1u);
}

TEST_F(CacheTierStore, that_gives_another_value_is_a_miss) {
    const quire_cache_tier_stats stats = load_with(&StubControl::swaps);
    EXPECT_EQ(stats.loads_missed, 1u);
    EXPECT_EQ(stats.values_foreign, 1u) << "its checksum is right, and it names other tokens";
}

TEST_F(CacheTierStore, that_cuts_a_value_is_a_miss) {
    const quire_cache_tier_stats stats = load_with(&StubControl::cuts);
    EXPECT_EQ(stats.loads_missed, 1u);
    EXPECT_EQ(stats.values_foreign, 1u);
}

TEST_F(CacheTierStore, that_takes_no_request_is_late) {
    stock();
    drop_cache();
    rig = std::make_unique<RigCache>(instance);
    auto desc = described<quire_cache_tier_desc>();
    desc.fingerprint[0] = 1;
    desc.load_timeout_ns = 1'000'000;
    ASSERT_EQ(api.cache_attach_tier(rig->cache, tier, &desc, &error), QUIRE_OK);
    for (std::atomic<bool> *fault : {&stub->takes_none, &stub->holds}) {
        const uint64_t late = rig->stats().loads_late;
        *fault = true;
        quire_seq seq = rig->create();
        EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
        wait();  // until its deadline
        EXPECT_EQ(rig->stats().loads_late, late + 1);
        EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 0u);
        *fault = false;
        rig->end(seq);
        rig->evict_all();
    }
    EXPECT_GT(stub->cancels, 0u);
    while (stub->holds || rig->poll().loads_running != 0) {
    }
    // The answers that came late are for no load.
    EXPECT_EQ(rig->stats().bytes_loaded, 0u);
}

TEST_F(CacheTierStore, whose_answer_comes_after_the_detach_has_its_memory_until_then) {
    stock();
    stub->holds = true;
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    EXPECT_EQ(rig->detach(1'000), QUIRE_S_TIMEOUT);
    EXPECT_EQ(api.cache_destroy(rig->cache, &error), QUIRE_E_BUSY);
    EXPECT_EQ(api.tier_close_wait(tier, 0, &error), QUIRE_E_BUSY);
    rig->check();
    EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 0u) << "it loads nothing any more";
    rig->end(seq);
    stub->holds = false;
    EXPECT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
    rig.reset();
}

TEST_F(CacheTierStore, that_breaks_its_contract_is_an_error_and_serves_no_more) {
    stock();
    stub->holds = true;
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    stub->lies = true;
    stub->holds = false;
    EXPECT_EQ(api.cache_load_wait(rig->cache, UINT64_MAX, nullptr, &rig->error), QUIRE_E_BACKEND);
    EXPECT_TRUE(rig->says("contract")) << rig->error.message;
    rig->check();
    EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 0u) << "steps go on";
    rig->end(seq);
    auto progress = described<quire_cache_tier_progress>();
    EXPECT_EQ(api.cache_poll_tier(rig->cache, &progress, &rig->error), QUIRE_E_BACKEND);
    EXPECT_EQ(rig->detach(1'000'000'000), QUIRE_OK) << rig->error.message;
    rig.reset();
}

// It may have them all, so their memory stays: the sanitizers see whether it does.
TEST_F(CacheTierStore, that_took_more_than_it_was_given_keeps_the_memory_of_all) {
    stock();
    stub->holds = true;
    stub->overcounts = true;
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    auto progress = described<quire_cache_tier_progress>();
    EXPECT_EQ(api.cache_poll_tier(rig->cache, &progress, &rig->error), QUIRE_E_BACKEND);
    EXPECT_TRUE(rig->says("submit took more requests")) << rig->error.message;
    rig->check();
    EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 0u) << "steps go on";
    rig->end(seq);
    EXPECT_EQ(rig->detach(1'000'000'000), QUIRE_OK) << rig->error.message;
    stub->overcounts = stub->holds = false;
    rig.reset();
}

TEST_F(CacheTierStore, that_refuses_values_costs_hits) {
    open_stub();
    rig = std::make_unique<RigCache>(instance);
    ASSERT_EQ(rig->attach(tier), QUIRE_OK);
    stub->fails_puts = true;
    rig->compute(tokens);
    rig->settle();
    EXPECT_EQ(rig->stats().blocks_refused, 12u);
    EXPECT_EQ(rig->stats().blocks_written, 0u);
    stub->fails_puts = false;
}

// Bounds below a block let one value through at a time.
TEST_F(CacheTierStore, is_asked_for_no_more_than_the_bounds_say) {
    open_stub();
    RigCache own(instance);
    auto desc = described<quire_cache_tier_desc>();
    desc.write = QUIRE_TIER_WRITE_THROUGH;
    desc.max_load_bytes = desc.max_write_bytes = 1;
    desc.min_load_tokens = 41;
    ASSERT_EQ(api.cache_attach_tier(own.cache, tier, &desc, &own.error), QUIRE_OK);
    own.compute(tokens);
    own.settle();
    own.evict_all();
    own.settle();
    quire_seq seq = own.create();
    EXPECT_EQ(own.run_to_the_end(seq, tokens).hit_tokens, 96u);
    own.end(seq);
    const uint64_t before = own.stats().loads_begun;
    const Tokens front(tokens.begin(), tokens.begin() + 41);
    own.evict_all();
    seq = own.create();
    EXPECT_EQ(own.run(seq, front).outcome, kRun) << "40 tokens are too few for a load";
    own.end(seq);
    EXPECT_EQ(own.stats().loads_begun, before);
    EXPECT_EQ(own.detach(), QUIRE_OK);
}

TEST_F(CacheTierStore, loads_end_with_their_sequence) {
    stock();
    stub->holds = true;
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    rig->end(seq);
    rig->check();
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    EXPECT_EQ(rig->poll().loads_running, 0u);
    seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    EXPECT_EQ(api.cache_cancel_load(rig->cache, seq, &error), QUIRE_OK);
    rig->check();
    EXPECT_EQ(rig->poll().loads_running, 0u);
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading) << "a new one";
    ASSERT_EQ(api.cache_reset(rig->cache, &error), QUIRE_OK);
    rig->check();
    EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 0u) << "the weights are others now";
    stub->holds = false;
    rig->end(seq);
}

TEST_F(CacheTierStore, an_item_with_other_tokens_drops_the_load) {
    stock();
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    wait();
    Tokens other = tokens;
    other[30] ^= 1;
    // The store has the three blocks before the token that differs.
    EXPECT_EQ(rig->run(seq, other).outcome, kLoading);
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    EXPECT_EQ(rig->run_to_the_end(seq, other).hit_tokens, 24u);
    rig->end(seq);
}

TEST_F(CacheTierStore, a_load_that_no_item_fetches_expires) {
    stock();
    drop_cache();
    rig = std::make_unique<RigCache>(instance);
    auto desc = described<quire_cache_tier_desc>();
    desc.fingerprint[0] = 1;
    desc.load_timeout_ns = UINT64_MAX;
    desc.load_expiry_ns = 1;
    ASSERT_EQ(api.cache_attach_tier(rig->cache, tier, &desc, &error), QUIRE_OK);
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    wait();
    rig->poll();
    rig->check();
    EXPECT_EQ(rig->stats().loads_expired, 1u);
    auto stats = described<quire_cache_stats>();
    ASSERT_EQ(api.cache_get_stats(rig->cache, &stats, &error), QUIRE_OK);
    EXPECT_EQ(stats.host_blocks_used, 0u);
    rig->end(seq);
}

TEST_F(CacheTierStore, a_host_tier_that_is_too_small_is_a_miss) {
    RigShape shape;
    shape.host_blocks = 8;
    stock(shape);
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kRun);
    EXPECT_EQ(rig->stats().loads_short, 1u);
    rig->end(seq);
}

TEST_F(CacheTierStore, a_load_comes_back_when_the_step_is_undone) {
    stock();
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    wait();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(rig->begin({{seq, tokens}}), QUIRE_OK) << rig->error.message;
        EXPECT_EQ(rig->results[0].hit_tokens, 96u);
        EXPECT_EQ(api.cache_cancel_load(rig->cache, seq, &error), QUIRE_E_BUSY);
        rig->check();
        if (i == 0) {
            rig->abort();
        } else {
            quire_seq dropped = 0;
            uint32_t count = 0;
            ASSERT_EQ(api.step_drop(rig->cache, rig->step, seq, &dropped, 1, &count, &rig->error),
                      QUIRE_OK);
            rig->check();
            EXPECT_EQ(rig->poll().loads_ready, 1u);
            rig->results[0].outcome = QUIRE_ITEM_WAIT;
            rig->commit_and_compute();
            rig->finish();
        }
        rig->check();
        EXPECT_EQ(rig->poll().loads_ready, 1u);
    }
    EXPECT_EQ(rig->run(seq, tokens).hit_tokens, 96u);
    EXPECT_EQ(rig->stats().loads_begun, 1u);
    rig->end(seq);
}

TEST_F(CacheTierStore, a_failed_step_takes_back_what_it_swapped_in) {
    stock();
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    wait();
    ASSERT_EQ(rig->begin({{seq, tokens}}), QUIRE_OK) << rig->error.message;
    rig->commit_and_compute();
    rig->finish(QUIRE_STEP_FAILED);
    rig->check();
    auto info = described<quire_seq_info>();
    ASSERT_EQ(api.seq_get_info(rig->cache, seq, &info, &error), QUIRE_OK);
    EXPECT_EQ(info.computed_tokens, 0u);
    EXPECT_EQ(info.known_tokens, 100u);
    EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, 96u) << "it loads again";
    rig->end(seq);
}

TEST_F(CacheTierStore, what_was_loaded_is_published_and_preempted_like_the_rest) {
    stock();
    quire_seq seq = rig->create(), second = rig->create();
    EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, 96u);
    EXPECT_EQ(rig->run(second, tokens, 0).hit_tokens, 96u) << "from the device";
    rig->end(second);
    for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
        ASSERT_EQ(rig->begin({}), QUIRE_OK);
        uint32_t freed = 0;
        ASSERT_EQ(api.step_preempt(rig->cache, rig->step, seq, how, &freed, &error), QUIRE_OK)
            << error.message;
        rig->check();
        rig->commit_and_compute();
        rig->finish();
        rig->evict_all();
        Tokens more = tokens;
        more.resize(how == QUIRE_PREEMPT_SWAP ? 101 : 102, 7);
        EXPECT_EQ(rig->run_to_the_end(seq, more).outcome, kRun);
        rig->check();
    }
    rig->end(seq);
}

TEST_F(CacheTierStore, loads_are_cancelled_by_a_migration) {
    stock();
    quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
    wait();
    auto desc = described<quire_migrate_desc>();
    auto shard = described<quire_shard_desc>();
    shard.device = rig->devices[0];
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    desc.blocks = 40;
    auto info = described<quire_migrate_info>();
    ASSERT_EQ(api.cache_migrate(rig->cache, &desc, &info, &error), QUIRE_OK) << error.message;
    rig->check();
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    EXPECT_EQ(api.queue_destroy(rig->queues[0], &error), QUIRE_OK);
    ASSERT_EQ(api.queue_create(rig->devices[0], nullptr, &rig->queues[0], &error), QUIRE_OK);
    EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, 96u);
    rig->compute(prompt(50, 30));
    rig->settle();
    rig->end(seq);
}

TEST_F(CacheTierStore, that_does_not_fit_is_refused_in_words) {
    open_stub();
    auto desc = described<quire_cache_tier_desc>();
    auto refused = [&](const RigShape &shape, quire_status wanted, const char *words) {
        RigCache cache(instance, shape);
        EXPECT_EQ(api.cache_attach_tier(cache.cache, tier, &desc, &cache.error), wanted);
        EXPECT_TRUE(cache.says(words)) << cache.error.message;
        auto progress = described<quire_cache_tier_progress>();
        EXPECT_EQ(api.cache_poll_tier(cache.cache, &progress, &cache.error), QUIRE_E_ARG);
        EXPECT_TRUE(cache.says("no tier")) << cache.error.message;
        EXPECT_EQ(api.cache_detach_tier_wait(cache.cache, 0, &cache.error), QUIRE_E_ARG);
    };
    RigShape shape;
    shape.host_blocks = 0;
    refused(shape, QUIRE_E_UNSUPPORTED, "host_bytes");
    shape = {};
    shape.flags = QUIRE_CACHE_NO_PREFIX;
    refused(shape, QUIRE_E_UNSUPPORTED, "NO_PREFIX");
    shape.flags = QUIRE_CACHE_LOG;
    refused(shape, QUIRE_E_ARG, "desc.followers");
    desc.write = 9;
    refused({}, QUIRE_E_ARG, "desc.write");
    desc.write = QUIRE_TIER_WRITE_NONE;
    RigCache one(instance), two(instance);
    ASSERT_EQ(one.attach(tier), QUIRE_OK);
    EXPECT_EQ(one.attach(tier), QUIRE_E_BUSY);
    EXPECT_EQ(two.attach(tier), QUIRE_E_BUSY);
    quire_store_request request{};
    request.kind = QUIRE_STORE_FLUSH;
    quire_store_answer answer{};
    EXPECT_EQ(api.tier_request_wait(tier, &request, &answer, 0, &error), QUIRE_E_BUSY);
    EXPECT_EQ(one.detach(), QUIRE_OK);
    EXPECT_EQ(api.tier_request_wait(tier, &request, &answer, UINT64_MAX, &error), QUIRE_OK);
    EXPECT_EQ(two.attach(tier), QUIRE_OK) << two.error.message;
    EXPECT_EQ(two.detach(), QUIRE_OK);
}

}  // namespace
