// SPDX-License-Identifier: Apache-2.0
//
// QUIRE_TIER_WRITE_BACK: what is about to be lost is written before it is, from the level that it
// is on, and all that is cached at the detach.

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

class WriteBack : public TierRig {
 protected:
    void SetUp() override { ASSERT_EQ(open("memory"), QUIRE_OK) << error.message; }

    // A load of the whole prompt, by a sequence of its own.
    static uint32_t hit(RigCache &rig, const Tokens &tokens) {
        quire_seq seq = rig.create();
        const uint32_t found = rig.run_to_the_end(seq, tokens).hit_tokens;
        rig.end(seq);
        return found;
    }
};

// Twelve blocks each: a pool of 200 has room for 16 of these.
constexpr uint32_t kLength = 97;
constexpr uint32_t kBlocks = 201;

TEST_F(WriteBack, writes_nothing_while_there_is_room) {
    RigShape shape;
    shape.blocks = kBlocks;
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK), QUIRE_OK) << rig.error.message;
    for (uint32_t i = 0; i < 10; ++i) rig.compute(prompt(i, kLength));
    rig.settle();
    EXPECT_EQ(rig.stats().blocks_written, 0u);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    // What is cached is written at the detach.
    rig.evict_all();
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_NONE), QUIRE_OK) << rig.error.message;
    for (uint32_t i = 0; i < 10; ++i) EXPECT_EQ(hit(rig, prompt(i, kLength)), 96u);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    rig.check();
}

TEST_F(WriteBack, loses_nothing_that_was_old_before_it_was_evicted) {
    RigShape shape;
    shape.blocks = kBlocks;
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK), QUIRE_OK) << rig.error.message;
    for (uint32_t i = 0; i < 60; ++i) {
        rig.compute(prompt(i, kLength));
        rig.settle();
    }
    EXPECT_GE(rig.stats().blocks_written, 44u * 12);
    EXPECT_LT(rig.stats().blocks_written, 60u * 12) << "the youngest are not written yet";
    EXPECT_EQ(rig.stats().blocks_evicted, 0u);
    for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(hit(rig, prompt(i, kLength)), 96u) << i;
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    rig.check();
}

TEST_F(WriteBack, writes_from_the_host_tier_what_it_is_about_to_lose) {
    RigShape shape;
    shape.blocks = 33;
    shape.host_blocks = kBlocks;
    shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
    for (uint32_t shards : {1u, 2u}) {
        shape.shards = shards;
        RigCache rig(instance, shape);
        ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK, static_cast<uint8_t>(shards)), QUIRE_OK)
            << rig.error.message;
        for (uint32_t i = 0; i < 10; ++i) {
            rig.compute(prompt(i, kLength));
            rig.settle();
        }
        EXPECT_EQ(rig.stats().blocks_written, 0u) << "both levels have room for these";
        for (uint32_t i = 10; i < 60; ++i) {
            rig.compute(prompt(i, kLength));
            rig.settle();
        }
        EXPECT_EQ(rig.stats().blocks_evicted, 0u);
        EXPECT_GE(rig.stats().blocks_written, 40u * 12);
        for (uint32_t i = 0; i < 60; ++i) EXPECT_EQ(hit(rig, prompt(i, kLength)), 96u) << i;
        ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
        rig.check();
    }
}

TEST_F(WriteBack, counts_what_a_burst_evicted_before_it_was_queued) {
    RigShape shape;
    shape.blocks = kBlocks;
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK), QUIRE_OK) << rig.error.message;
    for (uint32_t i = 0; i < 10; ++i) rig.compute(prompt(i, kLength));
    quire_seq seq = rig.create();
    ASSERT_EQ(rig.begin({{seq, prompt(99, (kBlocks - 1) * 8)}}), QUIRE_OK) << rig.error.message;
    rig.abort();
    rig.end(seq);
    EXPECT_EQ(rig.stats().blocks_evicted, 0u) << "they are back";
    rig.evict_all();
    EXPECT_EQ(rig.stats().blocks_evicted, 120u);
    EXPECT_EQ(rig.stats().blocks_written, 0u);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
}

// Each block of each group was written, or is counted.
TEST_F(WriteBack, accounts_for_every_block) {
    uint8_t model = 0;
    auto records = [&] {
        auto stats = described<quire_store_stats>();
        EXPECT_EQ(api.tier_get_stats(tier, &stats, &error), QUIRE_OK) << error.message;
        return stats.records;
    };
    for (uint32_t groups : {1u, 2u}) {
        for (bool has_host : {false, true}) {
            RigShape shape;
            shape.groups = groups;
            shape.blocks = has_host ? 161 : kBlocks;
            shape.host_blocks = kBlocks;
            if (has_host) shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
            RigCache rig(instance, shape);
            ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK, ++model), QUIRE_OK);
            const uint64_t before = records();
            uint64_t published = 0;
            for (uint32_t i = 0; i < 120; ++i) {
                const uint32_t blocks = 1 + i * 17 % 139;
                rig.compute(prompt(i, blocks * 8 + 1));
                published += groups * blocks;
                if (i % 5 == 0) rig.poll();
            }
            rig.settle();  // of a block that is being copied it is not known before
            const uint64_t evicted = rig.stats().blocks_evicted;
            EXPECT_NE(evicted, 0u);
            ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
            EXPECT_EQ(published, records() - before + evicted) << groups << has_host;
        }
    }
}

// A store that takes nothing, so that each block that is evicted is lost; also by a load, which
// takes room in the host tier.
class MuteStore : public TierRig {};

TEST_F(MuteStore, loses_all_that_write_back_evicts) {
    open_stub();
    RigShape shape;
    shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    rig.compute(prompt(1, kLength));
    rig.settle();
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    for (uint32_t i = 0; i < 6; ++i) rig.compute(prompt(100 + i, kLength));
    auto evictions = [&] {
        auto stats = described<quire_cache_stats>();
        EXPECT_EQ(api.cache_get_stats(rig.cache, &stats, &error), QUIRE_OK) << error.message;
        return stats.evictions;
    };
    stub->takes_none = true;
    ASSERT_EQ(rig.attach(tier, QUIRE_TIER_WRITE_BACK), QUIRE_OK) << rig.error.message;
    const uint64_t before = evictions();
    quire_seq seq = rig.create();
    EXPECT_EQ(rig.run(seq, prompt(1, kLength)).outcome, uint32_t{QUIRE_ITEM_LOADING});
    EXPECT_GE(evictions() - before, 10u);
    EXPECT_EQ(rig.stats().blocks_evicted, evictions() - before);
    for (uint32_t i = 0; i < 9; ++i) {
        rig.compute(prompt(200 + i, kLength));
        EXPECT_EQ(rig.stats().blocks_evicted, evictions() - before) << i;
    }
    EXPECT_EQ(rig.stats().blocks_written, 0u);
    stub->takes_none = false;
    rig.end(seq);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    rig.check();
}

// Each policy writes what the host tier has by the time its turn comes.
TEST_F(WriteBack, every_policy_writes_blocks_that_were_demoted_meanwhile) {
    RigShape shape;
    shape.host_blocks = kBlocks;
    shape.flags |= QUIRE_CACHE_HOST_PREFIXES;
    RigCache rig(instance, shape);
    ASSERT_EQ(rig.attach(tier), QUIRE_OK) << rig.error.message;
    const Tokens tokens = prompt(1, kLength);
    rig.compute(tokens);
    rig.evict_all();
    rig.settle();
    EXPECT_EQ(rig.stats().blocks_evicted, 0u);
    ASSERT_EQ(rig.detach(), QUIRE_OK) << rig.error.message;
    RigCache other(instance, shape);
    ASSERT_EQ(other.attach(tier), QUIRE_OK) << other.error.message;
    EXPECT_EQ(hit(other, tokens), 96u);
    ASSERT_EQ(other.detach(), QUIRE_OK) << other.error.message;
}

}  // namespace
