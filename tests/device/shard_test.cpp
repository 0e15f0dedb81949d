// SPDX-License-Identifier: Apache-2.0
//
// One cache over several devices gives the bits of one over a single device, however it is split:
// by heads, by layers, by both, or with replicas; and an incomplete description is refused with a
// message.

#include <string>

#include "traffic.hpp"

namespace {

using namespace quire::test;

const std::vector<Range> kWhole = {{}};
const std::vector<Range> kHeads = {{0, 0, 0, 2}, {0, 0, 2, 2}};
const std::vector<Range> kUnevenHeads = {{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 0, 3, 1}};
const std::vector<Range> kLayers = {{0, 2, 0, 0}, {2, 4, 0, 0}};
const std::vector<Range> kBoth = {{0, 3, 0, 2}, {0, 3, 2, 2}, {3, 3, 0, 0}};
const std::vector<Range> kReplicas = {{}, {0, 0, 0, 3}};

class Split : public testing::TestWithParam<std::vector<Range>> {};

TEST_P(Split, gives_the_bits_of_one_device) {
    for (uint32_t seed : {1u, 2u, 3u}) {
        ShardedCache one(kWhole), split(GetParam());
        Traffic expected(&one, seed), got(&split, seed);
        expected.run(150);
        got.run(150);
        ASSERT_EQ(expected.decisions, got.decisions) << "seed " << seed;
        ASSERT_EQ(expected.outputs.size(), got.outputs.size());
        ASSERT_EQ(std::memcmp(expected.outputs.data(), got.outputs.data(),
                              expected.outputs.size() * sizeof(float)),
                  0)
            << "seed " << seed;
    }
}

INSTANTIATE_TEST_SUITE_P(Shards, Split,
                         testing::Values(kHeads, kUnevenHeads, kLayers, kBoth, kReplicas));

TEST(Shards, pools_hold_the_ranges_and_no_more) {
    ShardedCache c(kBoth);
    auto info = described<quire_cache_info>();
    c.must(c.api.cache_get_info(c.cache, &info, &c.error));
    EXPECT_EQ(info.shard_count, 3u);
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < 3; ++s) {
        for (uint32_t g = 0; g < 3; ++g) bytes += c.pool(g, s).size_bytes;
    }
    EXPECT_EQ(info.pool_bytes, bytes);
    // 24 blocks of 3 layers, K and V, 2 heads, 4 tokens of 8 floats.
    EXPECT_EQ(c.pool(0, 0).size_bytes, 24u * 3 * 2 * 2 * 4 * 8 * 4);
    EXPECT_EQ(c.pool(0, 1).head_begin, 2u);
    EXPECT_EQ(c.pool(1, 0).size_bytes, 0u);
    EXPECT_EQ(c.pool(1, 0).layer_count, 0u);
    EXPECT_EQ(c.pool(1, 0).blocks, 24u);
    EXPECT_EQ(c.pool(1, 2).head_count, 2u);
    EXPECT_EQ(c.pool(0, 2).address, 0u);
}

TEST(Shards, a_group_with_fewer_heads_holds_its_share_rounded_outwards) {
    ShardedCache c(kUnevenHeads);
    EXPECT_EQ(c.pool(1, 0).head_begin, 0u);  // head 0 of 4: half of the first of 2
    EXPECT_EQ(c.pool(1, 0).head_count, 1u);
    EXPECT_EQ(c.pool(1, 1).head_begin, 0u);  // heads 1 and 2: a half of each
    EXPECT_EQ(c.pool(1, 1).head_count, 2u);
    for (uint32_t s = 0; s < 3; ++s) EXPECT_EQ(c.pool(2, s).head_count, 1u);
}

// A cache whose pools are to take what 100 blocks of its smaller shard do. It has as many blocks as
// the larger shard pays for.
void expect_the_smallest_count(const std::vector<Range> &ranges) {
    ShardedCache c(ranges);
    uint64_t block_bytes[2] = {};
    for (uint32_t s = 0; s < 2; ++s) {
        for (uint32_t g = 0; g < 3; ++g) {
            block_bytes[s] += static_cast<uint64_t>(c.pool(g, s).block_stride);
        }
    }
    auto [smaller, larger] = std::minmax(block_bytes[0], block_bytes[1]);
    ASSERT_GT(larger, smaller);
    c.must(c.api.batch_destroy(c.batch, &c.error));
    c.must(c.api.cache_destroy(c.cache, &c.error));
    c.batch = nullptr;
    auto groups = ShardedCache::groups();
    std::vector<quire_shard_desc> shards(2, described<quire_shard_desc>());
    for (uint32_t s = 0; s < 2; ++s) {
        shards[s].device = c.devices[s];
        shards[s].layer_begin = ranges[s].layer_begin;
        shards[s].layer_count = ranges[s].layer_count;
    }
    auto desc = described<quire_cache_desc>();
    desc.groups = groups.data();
    desc.group_count = 3;
    desc.group_stride = sizeof groups[0];
    desc.shards = shards.data();
    desc.shard_count = 2;
    desc.shard_stride = sizeof shards[0];
    desc.block_tokens = 4;
    desc.pool_bytes = 100 * smaller;
    desc.host_bytes = 10 * smaller;
    c.must(c.api.cache_create(c.instance, &desc, &c.cache, &c.error));
    EXPECT_EQ(c.pool(0, 0).blocks, 100 * smaller / larger);
    EXPECT_EQ(c.pool(0, 1).blocks, c.pool(0, 0).blocks);
    EXPECT_EQ(c.pool(0, 0).host_blocks, 10 * smaller / larger + 1);
}

TEST(Shards, bytes_are_a_shards_and_the_smallest_count_wins) {
    expect_the_smallest_count(kLayers);
    expect_the_smallest_count({kLayers[1], kLayers[0]});
}

// The message for a description that must be refused.
std::string refusal(const std::vector<Range> &ranges, bool one_device = false) {
    ShardedCache c(std::vector<Range>(ranges.size()));
    EXPECT_EQ(c.api.batch_destroy(c.batch, &c.error), QUIRE_OK);
    EXPECT_EQ(c.api.cache_destroy(c.cache, &c.error), QUIRE_OK);
    c.batch = nullptr;
    c.cache = nullptr;
    std::vector<quire_device *> devices = c.devices;
    if (one_device) c.devices[1] = c.devices[0];
    quire_status status = c.create(ranges, 24);
    std::string words = c.error.message;
    c.devices = devices;
    EXPECT_EQ(status, QUIRE_E_ARG);
    return words;
}

TEST(Shards, bad_ranges_are_refused_by_shard_and_field) {
    auto holds = [](const std::string &words, const std::string &part) {
        EXPECT_NE(words.find(part), std::string::npos) << words;
    };
    holds(refusal({{}, {6, 0, 0, 0}}), "shards[1].layer_begin is past");
    holds(refusal({{}, {5, 2, 0, 0}}), "shards[1].layer_count reaches past");
    holds(refusal({{}, {1, 0xFFFFFFFF, 0, 0}}), "shards[1].layer_count reaches past");
    holds(refusal({{0, 0, 4, 0}, {}}), "shards[0].head_begin is past");
    holds(refusal({{0, 0, 3, 2}, {}}), "shards[0].head_count reaches past");
    holds(refusal({{0, 3, 0, 0}, {4, 2, 0, 0}}), "no shard holds layer 3's KV head 0");
    holds(refusal({{0, 0, 0, 2}, {0, 0, 3, 1}}), "no shard holds layer 0's KV head 2");
    holds(refusal({{}, {}}, true), "shards[1] has the same device object as shards[0]");
}

TEST(Shards, queues_are_one_a_shard_and_each_of_its_device) {
    ShardedCache c(kHeads);
    quire_step step = 0;
    auto begin = [&](quire_step_desc desc) {
        return c.api.step_begin(c.cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                                nullptr, 0, &step, &c.error);
    };
    quire_step_desc desc = c.step_desc();
    desc.queue_count = 1;
    EXPECT_EQ(begin(desc), QUIRE_E_ARG);
    quire_queue *swapped[] = {c.queues[1], c.queues[0]};
    desc = c.step_desc();
    desc.queues = swapped;
    EXPECT_EQ(begin(desc), QUIRE_E_ARG);
    EXPECT_NE(std::string(c.error.message).find("queues[0] is on another device"),
              std::string::npos);
    quire_queue *missing[] = {c.queues[0], nullptr};
    desc.queues = missing;
    EXPECT_EQ(begin(desc), QUIRE_E_ARG);
    EXPECT_EQ(begin(c.step_desc()), QUIRE_OK) << c.error.message;
    EXPECT_EQ(c.api.queue_destroy(c.queues[1], &c.error), QUIRE_E_BUSY);
    EXPECT_EQ(c.api.step_abort(c.cache, step, &c.error), QUIRE_OK);
}

TEST(Shards, a_batch_takes_options_for_all_for_groups_or_for_groups_and_shards) {
    ShardedCache c(kReplicas);
    auto make = [&](uint32_t count) {
        std::vector<quire_attention_desc> options(count, described<quire_attention_desc>());
        for (auto &one : options) one.q_heads = 12;  // a multiple of 4, 3, 2 and 1
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 4;
        desc.attention = options.data();
        desc.attention_count = count;
        desc.attention_stride = sizeof(quire_attention_desc);
        quire_batch *batch = nullptr;
        quire_status status = c.api.batch_create(c.cache, &desc, &batch, &c.error);
        if (status >= 0) c.must(c.api.batch_destroy(batch, &c.error));
        return status;
    };
    for (uint32_t count : {0u, 1u, 3u, 6u}) EXPECT_EQ(make(count), QUIRE_OK) << c.error.message;
    for (uint32_t count : {2u, 4u, 5u, 7u}) EXPECT_EQ(make(count), QUIRE_E_ARG) << count;
}

}  // namespace
