// SPDX-License-Identifier: Apache-2.0
//
// Stores below a leader and its followers: all ranks load and write the same blocks, each its part
// of them, and a load is as long as on the rank that has least.

#include "tests/tiers/rank_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSize = Rank::kBlockTokens;

struct Split {
    const char *name;
    RanksShape shape;
};

class RankTier : public testing::TestWithParam<Split> {};

TEST_P(RankTier, loads_on_every_rank_what_every_rank_wrote) {
    Ranks r(GetParam().shape);
    r.attach_all();
    const Tokens prompt = rank_prompt(1, 10 * kSize + 3);
    r.compute(prompt);
    r.settle();
    r.evict_all();
    r.expect_found(prompt, 10);
    for (const auto &rank : r.ranks) {
        EXPECT_GT(rank->stats().blocks_written, 9u) << rank->number;
        EXPECT_GT(rank->stats().bytes_loaded, 0u) << rank->number;
        EXPECT_EQ(rank->stats().values_damaged + rank->stats().values_foreign, 0u);
    }
    EXPECT_EQ(r.leader().stats().loads_used, 1u);
    r.detach_all();
    for (const auto &rank : r.ranks) {
        uint64_t values = 0;
        EXPECT_EQ(r.wrong_values(rank.get(), &values), 0u) << rank->number;
        EXPECT_GT(values, 9u);
    }
}

TEST_P(RankTier, stores_outlive_the_caches) {
    Ranks r(GetParam().shape);
    r.attach_all(QUIRE_TIER_WRITE_BACK);
    const Tokens prompt = rank_prompt(2, 8 * kSize + 1);
    r.compute(prompt);
    r.settle();
    r.detach_all();
    r.evict_all();
    for (const auto &rank : r.ranks) {
        EXPECT_EQ(rank->attach(), QUIRE_OK) << rank->error.message;
    }
    r.expect_found(prompt, 8);
    r.detach_all();
}

INSTANTIATE_TEST_SUITE_P(
    Splits, RankTier,
    testing::Values(
        Split{"heads", {.ranks = kByHeads}},
        Split{"three_ranks",
              {.ranks = {{{0, 0, 0, 1}}, {{0, 0, 1, 2}}, {{0, 0, 3, 1}}}, .heads = 4}},
        Split{"layers", {.ranks = {{{0, 2}}, {{2, 1}}, {{3, 3}}}, .layers = 6}},
        Split{"shards_of_a_rank",
              {.ranks = {{{0, 2, 0, 1}, {0, 2, 1, 1}}, {{2, 1, 0, 0}, {3, 1, 0, 0}}}, .layers = 4}},
        Split{"replicas", {.ranks = {{{}}, {{}}}}},
        Split{"window", {.ranks = kByHeads, .window = 20}},
        Split{"a_group_on_one_rank", {.ranks = {{{0, 2}}, {{2, 1}}}, .window = 20}},
        Split{"a_leader_without_the_full_group", {.ranks = {{{2, 1}}, {{0, 2}}}, .window = 20}}),
    [](const auto &info) { return info.param.name; });

TEST(RankTierRules, terms_are_explained) {
    Ranks r({.ranks = kByHeads});
    for (const auto &rank : r.ranks) rank->open_store();
    auto desc = described<quire_cache_tier_desc>();
    auto attach = [&](Rank &rank, uint32_t followers, const char *words) {
        desc.followers = followers;
        EXPECT_EQ(r.api.cache_attach_tier(rank.cache, rank.tier, &desc, &rank.error), QUIRE_E_ARG);
        EXPECT_TRUE(rank.says(words)) << rank.error.message;
    };
    attach(r.leader(), 0, "how many follow a leader");
    attach(r.leader(), 64, "how many follow a leader");
    attach(r.follower(), 1, "how many follow a leader");
    uint64_t size = 0;
    EXPECT_EQ(r.api.cache_report_loads(r.leader().cache, nullptr, 0, &size, &r.error),
              QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(r.api.cache_take_report(r.follower().cache, nullptr, 0, &r.error),
              QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(r.api.cache_cancel_load(r.follower().cache, 1, &r.error), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(r.api.cache_report_loads(r.follower().cache, nullptr, 0, &size, &r.error), QUIRE_OK);
    EXPECT_EQ(size, 0u);
}

// Blocks that the leader's device evicts live on in the host tier of every rank, and come back.
TEST(RankTierRules, prefixes_live_on_in_the_host_tier_of_every_rank) {
    Ranks r({.ranks = kByHeads,
             .blocks = 17,
             .host_blocks = 40,
             .leader_flags = QUIRE_CACHE_AUDIT | QUIRE_CACHE_HOST_PREFIXES});
    for (uint32_t round = 0; round < 3; ++round) {
        for (uint32_t i = 0; i < 6; ++i) {
            quire_seq seq = r.create();
            const quire_step_result result = r.run(seq, rank_prompt(i, 6 * kSize + 1), 0);
            EXPECT_EQ(result.hit_tokens, round == 0 ? 0 : 6 * kSize);
            EXPECT_EQ(r.wrong_rows(), 0u);
            r.end(seq);
        }
        if (round == 1) r.follower().migrate(QUIRE_MIGRATE_COPY_HOST_TIER);
    }
    auto stats = described<quire_cache_stats>();
    EXPECT_EQ(r.api.cache_get_stats(r.leader().cache, &stats, &r.error), QUIRE_OK);
    EXPECT_GT(stats.blocks_promoted, 20u);
    auto desc = described<quire_cache_desc>();
    auto group = described<quire_group_desc>();
    group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.blocks = desc.host_blocks = 8;
    desc.flags = QUIRE_CACHE_FOLLOWER | QUIRE_CACHE_HOST_PREFIXES;
    quire_cache *none = nullptr;
    EXPECT_EQ(r.api.cache_create(r.instance, &desc, &none, &r.error), QUIRE_E_ARG);
    EXPECT_NE(std::string(r.error.message).find("set QUIRE_CACHE_HOST_PREFIXES on the leader"),
              std::string::npos)
        << r.error.message;
}

// What only the host tier has is written from there.
TEST(RankTierRules, blocks_of_the_host_tier_are_written_by_every_rank) {
    Ranks r({.ranks = kByHeads,
             .blocks = 17,
             .host_blocks = 40,
             .leader_flags = QUIRE_CACHE_AUDIT | QUIRE_CACHE_HOST_PREFIXES});
    r.attach_all(QUIRE_TIER_WRITE_BACK);
    for (uint32_t i = 0; i < 5; ++i) r.compute(rank_prompt(i, 6 * kSize + 1));
    r.settle();
    r.detach_all();
    for (const auto &rank : r.ranks) {
        uint64_t values = 0;
        EXPECT_EQ(r.wrong_values(rank.get(), &values), 0u);
        EXPECT_EQ(values, 30u) << rank->number;
    }
}

TEST(RankTierRules, a_rank_keeps_one_rectangle) {
    // Layer 0 of head 0 and layer 1 of head 1.
    Ranks r({.ranks = {{{0, 1, 0, 1}, {1, 1, 1, 1}}, {{0, 1, 1, 1}, {1, 1, 0, 1}}}});
    for (const auto &rank : r.ranks) {
        rank->open_store();
        EXPECT_EQ(rank->attach(), QUIRE_E_UNSUPPORTED);
        EXPECT_TRUE(rank->says("one rectangle")) << rank->error.message;
    }
}

}  // namespace
