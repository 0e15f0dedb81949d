// SPDX-License-Identifier: Apache-2.0
//
// A store below a cache: what was computed is found again, by the same cache, by another one and
// after a restart, and only by the tenant that it belongs to.

#include <filesystem>

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRun = QUIRE_ITEM_RUN, kLoading = QUIRE_ITEM_LOADING;

class CacheTier : public TierRig {};

TEST_F(CacheTier, finds_what_was_evicted_with_the_same_bits) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const Tokens tokens = prompt(1, 100);
    rig.compute(tokens);
    rig.settle();
    EXPECT_EQ(rig.stats().blocks_written, 12u);
    rig.evict_all();
    rig.settle();
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run(seq, tokens).outcome, kLoading);
    ASSERT_EQ(api.cache_load_wait(rig.cache, UINT64_MAX, nullptr, &error), QUIRE_OK);
    EXPECT_EQ(rig.poll().loads_ready, 1u);
    rig.check();
    const quire_step_result result = rig.run(seq, tokens);
    EXPECT_EQ(result.outcome, kRun);
    EXPECT_EQ(result.hit_tokens, 96u);
    EXPECT_EQ(result.first_position, 96u);
    EXPECT_EQ(rig.stats().loads_used, 1u);
    EXPECT_EQ(rig.stats().tokens_loaded, 96u);
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    rig.check();
}

TEST_F(CacheTier, without_may_load_nothing_changes) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const Tokens tokens = prompt(1, 100);
    rig.compute(tokens);
    rig.settle();
    rig.evict_all();
    rig.settle();
    quire_seq seq = rig.create();
    const quire_step_result result = rig.run(seq, tokens, 0);
    EXPECT_EQ(result.outcome, kRun);
    EXPECT_EQ(result.hit_tokens, 0u);
    EXPECT_EQ(rig.stats().loads_begun, 0u);
    rig.end(seq);
    EXPECT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(CacheTier, on_disk_outlives_the_process_that_wrote_it) {
    std::string folder = (std::filesystem::temp_directory_path() / "quire-tier-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    const std::vector<quire_store_option> options = {{"directory", folder.c_str()},
                                                     {"capacity", "64MiB"}};
    constexpr uint32_t kPrompts = 6;
    ASSERT_EQ(open("disk", options), QUIRE_OK) << error.message;
    {
        RigCache rig(instance);
        ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        for (uint32_t i = 0; i < kPrompts; ++i) {
            rig.compute(prompt(i, 40 + 16 * i));
            rig.settle();
        }
        ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    }
    close();
    ASSERT_EQ(open("disk", options, QUIRE_STORE_OPEN_EXISTING), QUIRE_OK) << error.message;
    {
        RigCache rig(instance);
        ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        for (uint32_t i = 0; i < kPrompts; ++i) {
            quire_seq seq = rig.create();
            const uint32_t count = 40 + 16 * i;
            EXPECT_EQ(rig.run_to_the_end(seq, prompt(i, count)).hit_tokens, (count - 1) / 8 * 8);
            rig.end(seq);
        }
        EXPECT_EQ(rig.stats().loads_used, kPrompts);
        ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    }
    close();
    std::filesystem::remove_all(folder);
}

TEST_F(CacheTier, keeps_tenants_models_and_keys_apart) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    const Tokens tokens = prompt(3, 64);
    {
        RigCache rig(instance);
        ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        rig.compute(tokens, rig.tenant("blue"));
        rig.compute(tokens, rig.tenant(nullptr));  // it has no name, so nothing of it is written
        rig.settle();
        EXPECT_EQ(rig.stats().blocks_written, 8u);
        ASSERT_EQ(rig.detach(), QUIRE_OK);
    }
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const quire_namespace blue = rig.tenant("blue"), red = rig.tenant("red"),
                          unnamed = rig.tenant(nullptr);
    for (quire_namespace ns : {quire_namespace{0}, red, unnamed}) {
        quire_seq seq = rig.create(ns);
        EXPECT_EQ(rig.run(seq, tokens).hit_tokens, 0u);
        rig.end(seq);
    }
    quire_seq salted = rig.create(blue, "salt");
    EXPECT_EQ(rig.run(salted, tokens).hit_tokens, 0u);
    rig.end(salted);
    EXPECT_EQ(rig.stats().loads_begun, 0u);
    quire_seq seq = rig.create(blue);
    EXPECT_EQ(rig.run_to_the_end(seq, tokens).hit_tokens, 56u);
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
    rig.evict_all();
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_NONE, 2), QUIRE_OK) << rig.error.message;
    seq = rig.create(blue);
    EXPECT_EQ(rig.run(seq, tokens).outcome, kRun) << "another model finds nothing";
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(CacheTier, loads_only_what_the_device_lacks) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const Tokens tokens = prompt(1, 129);
    rig.compute(tokens);
    rig.settle();
    rig.evict_all();
    rig.compute(Tokens(tokens.begin(), tokens.begin() + 64));
    rig.settle();
    const uint64_t before = rig.stats().bytes_loaded;
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run_to_the_end(seq, tokens).hit_tokens, 128u);
    EXPECT_EQ(rig.stats().tokens_loaded, 64u);
    rig.end(seq);
    rig.evict_all();
    const uint64_t half = rig.stats().bytes_loaded - before;
    seq = rig.create();
    EXPECT_EQ(rig.run_to_the_end(seq, tokens).hit_tokens, 128u);
    rig.end(seq);
    EXPECT_EQ(rig.stats().bytes_loaded - before, 3 * half);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

// Between the load and its use, the device loses the blocks that the load continues.
TEST_F(CacheTier, a_load_whose_front_was_evicted_begins_again) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const Tokens tokens = prompt(1, 129);
    rig.compute(tokens);
    rig.settle();
    rig.evict_all();
    rig.compute(Tokens(tokens.begin(), tokens.begin() + 64));
    rig.settle();
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run(seq, tokens).outcome, kLoading);
    ASSERT_EQ(api.cache_load_wait(rig.cache, UINT64_MAX, nullptr, &error), QUIRE_OK);
    rig.evict_all();
    EXPECT_EQ(rig.run(seq, tokens).outcome, kLoading);
    EXPECT_EQ(rig.run_to_the_end(seq, tokens).hit_tokens, 128u);
    EXPECT_EQ(rig.stats().loads_begun, 2u);
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(CacheTier, selective_writes_what_was_found_once) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigCache rig(instance);
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_SELECTIVE), QUIRE_OK) << rig.error.message;
    rig.compute(prompt(1, 64));
    rig.compute(prompt(2, 64));
    rig.settle();
    EXPECT_EQ(rig.stats().blocks_written, 0u);
    rig.compute(prompt(2, 40));
    rig.settle();
    EXPECT_EQ(rig.stats().blocks_written, 4u);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(CacheTier, spans_shards_of_any_number) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigShape two;
    two.shards = 2;
    const Tokens tokens = prompt(5, 90);
    {
        RigCache rig(instance, two);
        ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
        rig.compute(tokens);
        rig.settle();
        ASSERT_EQ(rig.detach(), QUIRE_OK);
    }
    RigCache rig(instance, two);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run_to_the_end(seq, tokens).hit_tokens, 88u);
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

TEST_F(CacheTier, loads_of_a_window_group_only_what_the_hit_needs) {
    ASSERT_EQ(open("memory"), QUIRE_OK) << error.message;
    RigShape shape;
    shape.window = 20;
    const Tokens tokens = prompt(6, 120);
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    quire_seq first = rig.create();
    for (uint32_t end = 24; end <= 120; end += 24) {
        rig.run(first, Tokens(tokens.begin(), tokens.begin() + end));
        rig.settle();
    }
    rig.end(first);
    rig.evict_all();
    rig.settle();
    quire_seq seq = rig.create();
    const quire_step_result result = rig.run_to_the_end(seq, tokens);
    EXPECT_EQ(result.hit_tokens, 112u);
    const quire_cache_tier_stats stats = rig.stats();
    EXPECT_EQ(stats.loads_used, 1u);
    const uint64_t value = stats.bytes_written / stats.blocks_written;
    EXPECT_EQ(stats.bytes_loaded / value, 14u + 3u) << "the window covers three blocks";
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK);
}

}  // namespace
