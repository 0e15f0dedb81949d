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
