// SPDX-License-Identifier: Apache-2.0
//
// A store that does not know from memory what it has is asked first: the item waits for the
// answers, and then for what the store does have. Until then no host block is taken.

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRun = QUIRE_ITEM_RUN, kLoading = QUIRE_ITEM_LOADING;
constexpr uint32_t kBlocks = 6, kTokens = RigCache::kBlockTokens;

class AskingLoad : public TierRig {
 protected:
    // A cache over the stub, which has the prompt and doubts it; the device has lost it.
    void stock(const RigShape &shape = {}) {
        open_stub();
        groups = shape.groups;
        rig = std::make_unique<RigCache>(instance, shape);
        ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
        rig->compute(tokens);
        rig->settle();
        rig->evict_all();
        ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
        attach();
        stub->doubts = true;
        stub->finds = stub->gets = 0;
    }
    void attach(uint32_t min_load_tokens = 0, uint64_t timeout_ns = UINT64_MAX / 4) {
        auto desc = described<quire_cache_tier_desc>();
        desc.fingerprint[0] = 1;
        desc.load_timeout_ns = timeout_ns;
        desc.min_load_tokens = min_load_tokens;
        ASSERT_EQ(api.cache_attach_tier(rig->cache, tier, &desc, &rig->error), QUIRE_OK)
            << rig->error.message;
    }
    ~AskingLoad() override {
        if (rig == nullptr) return;
        stub->reset();
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
    // The item waits; the store answers from now on, unless it is held.
    quire_seq begin() {
        const bool held = stub->holds;
        stub->holds = true;
        stub->finds = stub->gets = 0;
        const quire_seq seq = rig->create();
        EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
        EXPECT_EQ(host_blocks(), 0u) << "taken before the store has answered";
        rig->check();
        stub->holds = held;
        return seq;
    }
    void wait() {
        ASSERT_EQ(api.cache_load_wait(rig->cache, UINT64_MAX, nullptr, &rig->error), QUIRE_OK)
            << rig->error.message;
        rig->check();
    }
    // The item runs and finds so many blocks.
    void use(quire_seq seq, uint32_t blocks) {
        const quire_step_result result = rig->run(seq, tokens);
        EXPECT_EQ(result.outcome, kRun);
        EXPECT_EQ(result.hit_tokens, blocks * kTokens);
        EXPECT_EQ(rig->wrong_rows, 0u);
        rig->end(seq);
        EXPECT_EQ(host_blocks(), 0u);
        rig->evict_all();
    }

    const Tokens tokens = prompt(1, kBlocks *kTokens + 1);
    uint32_t groups = 1;
    std::unique_ptr<RigCache> rig;
};

TEST_F(AskingLoad, brings_the_blocks_before_the_first_that_is_not_there) {
    stock();
    for (uint64_t denied = 0; denied < 1u << kBlocks && !HasFailure(); ++denied) {
        SCOPED_TRACE(denied);
        const uint32_t blocks = static_cast<uint32_t>(__builtin_ctzll(denied | 1u << kBlocks));
        const quire_cache_tier_stats before = rig->stats();
        const quire_seq seq = begin();
        stub->denies = denied;
        stub->reverses = denied % 2 == 1;
        wait();
        EXPECT_EQ(host_blocks(), blocks);
        EXPECT_EQ(stub->finds, kBlocks);
        use(seq, blocks);
        EXPECT_EQ(stub->gets, blocks);
        const quire_cache_tier_stats after = rig->stats();
        EXPECT_EQ(after.loads_begun - before.loads_begun, 1u);
        EXPECT_EQ(after.loads_used - before.loads_used, blocks != 0 ? 1u : 0u);
        EXPECT_EQ(after.loads_missed - before.loads_missed, blocks != 0 ? 0u : 1u);
        EXPECT_EQ(after.blocks_lost - before.blocks_lost, 0u);
        EXPECT_EQ(after.tokens_loaded - before.tokens_loaded, blocks * kTokens);
    }
}

TEST_F(AskingLoad, needs_a_block_in_every_group) {
    RigShape shape;
    shape.groups = 2;
    stock(shape);
    for (uint32_t denied = 0; denied < 2 * kBlocks; ++denied) {
        SCOPED_TRACE(denied);
        const quire_seq seq = begin();
        stub->denies = uint64_t{1} << denied;
        wait();
        EXPECT_EQ(host_blocks(), 2 * (denied / 2)) << "block by block, each in both groups";
        use(seq, denied / 2);
    }
}

TEST_F(AskingLoad, asks_only_for_what_the_device_lacks) {
    stock();
    stub->doubts = false;
    rig->compute(Tokens(tokens.begin(), tokens.begin() + 2 * kTokens));
    stub->doubts = true;
    const quire_seq seq = begin();
    wait();
    EXPECT_EQ(stub->finds, kBlocks - 2);
    use(seq, kBlocks);
    EXPECT_EQ(stub->gets, kBlocks - 2);
}

TEST_F(AskingLoad, is_no_load_if_that_brings_too_little) {
    stock();
    ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
    attach(4 * kTokens);
    for (uint32_t denied : {3u, 4u}) {
        const quire_seq seq = begin();
        stub->denies = uint64_t{1} << denied;
        wait();
        use(seq, denied < 4 ? 0 : denied);
        EXPECT_EQ(rig->stats().loads_missed, 1u);
    }
}

TEST_F(AskingLoad, asks_for_all_that_a_window_may_need) {
    RigShape shape;
    shape.window = 20;
    stock(shape);
    const quire_seq seq = begin();
    wait();
    EXPECT_EQ(stub->finds, 2 * kBlocks);
    EXPECT_EQ(host_blocks(), kBlocks + 3u) << "all, and three of the window";
    use(seq, kBlocks);
    // Without the window's last block, a shorter hit is whole.
    const quire_seq other = begin();
    stub->denies = uint64_t{1} << (2 * kBlocks - 1);
    wait();
    use(other, kBlocks - 1);
}

TEST_F(AskingLoad, ends_at_its_deadline) {
    stock();
    ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
    attach(0, 1);
    stub->holds = true;
    const quire_seq seq = begin();
    wait();
    EXPECT_EQ(rig->stats().loads_late, 1u);
    use(seq, 0);
    EXPECT_EQ(stub->cancels, kBlocks);
    stub->cancels = 0;
}

TEST_F(AskingLoad, brings_what_comes_before_a_block_that_the_store_fails_to_find) {
    stock();
    stub->fails_finds = true;
    for (uint32_t bad : {0u, 1u, 4u}) {
        const quire_seq seq = begin();
        stub->denies = uint64_t{1} << bad;
        wait();
        use(seq, bad);
        EXPECT_EQ(rig->stats().loads_failed, 1u) << "the first alone was left with nothing";
    }
    EXPECT_EQ(rig->stats().loads_missed, 0u);
}

TEST_F(AskingLoad, ends_as_soon_as_too_little_can_be_left) {
    RigShape shape;
    shape.window = 20;
    stock(shape);
    stub->doubts = false;
    rig->compute(Tokens(tokens.begin(), tokens.begin() + kTokens));
    stub->doubts = true;
    const quire_seq seq = begin();
    stub->denies = UINT64_MAX;
    stub->lets = 3;
    for (int i = 0; i < 3; ++i) rig->poll();
    rig->check();
    EXPECT_EQ(rig->stats().loads_missed, 1u);
    EXPECT_EQ(rig->poll().loads_running, 0u);
    stub->lets = UINT32_MAX;
    EXPECT_EQ(rig->run(seq, tokens).outcome, kRun);
    rig->end(seq);
    rig->evict_all();
}

TEST_F(AskingLoad, is_not_written_back) {
    stock();
    ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
    ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
    const quire_seq seq = rig->create();
    EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, kBlocks * kTokens);
    rig->settle();
    EXPECT_EQ(rig->stats().loads_used, 1u);
    EXPECT_EQ(rig->stats().blocks_written + rig->stats().blocks_known, 0u);
    rig->end(seq);
}

TEST_F(AskingLoad, a_store_that_others_use_is_given_again_what_is_computed_again) {
    open_stub();
    stub->is_remote = true;
    rig = std::make_unique<RigCache>(instance);
    ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
    for (uint32_t i = 0; i < 3; ++i) {
        const uint64_t before = rig->stats().blocks_written;
        rig->compute(tokens);
        rig->settle();
        EXPECT_EQ(rig->stats().blocks_written - before, kBlocks);
        EXPECT_EQ(rig->stats().blocks_known, 0u);
        rig->evict_all();
        rig->settle();
    }
}

TEST_F(AskingLoad, ends_with_its_sequence_and_with_other_tokens) {
    stock();
    stub->holds = true;
    rig->end(begin());
    rig->check();
    EXPECT_EQ(rig->stats().loads_cancelled, 1u);
    const quire_seq seq = begin();
    Tokens other = tokens;
    other[0] ^= 1;
    EXPECT_EQ(rig->run(seq, other).outcome, kLoading) << "asked about the other tokens";
    EXPECT_EQ(rig->stats().loads_cancelled, 2u);
    stub->holds = false;
    wait();
    EXPECT_EQ(rig->run(seq, other).hit_tokens, 0u);
    rig->end(seq);
    rig->evict_all();
}

TEST_F(AskingLoad, waits_for_the_store_to_take_its_questions) {
    stock();
    stub->takes_none = true;
    const quire_seq seq = begin();
    EXPECT_EQ(rig->poll().loads_running, 1u);
    EXPECT_EQ(stub->finds, 0u);
    stub->takes_none = false;
    wait();
    use(seq, kBlocks);
}

TEST_F(AskingLoad, of_many_blocks_asks_for_some_at_once) {
    open_stub();
    RigShape shape;
    shape.blocks = 340;
    shape.host_blocks = 340;
    rig = std::make_unique<RigCache>(instance, shape);
    ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
    const Tokens text = prompt(3, 300 * kTokens + 1);
    rig->compute(text);
    rig->settle();
    rig->evict_all();
    stub->doubts = stub->holds = true;
    stub->finds = 0;
    const quire_seq seq = rig->create();
    EXPECT_EQ(rig->run(seq, text).outcome, kLoading);
    for (int i = 0; i < 10; ++i) rig->poll();
    EXPECT_EQ(stub->finds, 128u);
    stub->holds = false;
    EXPECT_EQ(rig->run_to_the_end(seq, text).hit_tokens, 300 * kTokens);
    EXPECT_EQ(stub->finds, 300u);
    EXPECT_EQ(rig->wrong_rows, 0u);
    rig->end(seq);
}

}  // namespace
