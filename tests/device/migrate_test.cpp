// SPDX-License-Identifier: Apache-2.0
//
// A live cache on other devices: traffic that is moved between steps, to other cuts into shards and
// to other sizes, has the outputs of traffic that is not, bit for bit.

#include <string>

#include "migrating_cache.hpp"
#include "traffic.hpp"

namespace {

using namespace quire::test;

const std::vector<Range> kWhole = {{}};
const std::vector<Range> kHeads = {{0, 0, 0, 2}, {0, 0, 2, 2}};
const std::vector<Range> kUnevenHeads = {{0, 0, 0, 1}, {0, 0, 1, 2}, {0, 0, 3, 1}};
const std::vector<Range> kLayers = {{0, 2, 0, 0}, {2, 4, 0, 0}};
const std::vector<Range> kBoth = {{0, 3, 0, 2}, {0, 3, 2, 2}, {3, 3, 0, 0}};
const std::vector<Range> kReplicas = {{}, {0, 0, 0, 3}};

struct Tour {
    const char *name;
    std::vector<std::vector<Range>> stops;  // the first: where it begins
    KvFormat format = {};
};

// The cache sees that its last step has run, as a migration does.
void notice(ShardedCache *c) {
    auto desc = c->step_desc();
    quire_step step = 0;
    c->must(c->api.step_begin(c->cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                              nullptr, 0, &step, &c->error));
    c->must(c->api.step_abort(c->cache, step, &c->error));
}

class Touring : public testing::TestWithParam<Tour> {};

TEST_P(Touring, gives_the_bits_of_a_cache_that_stays) {
    const Tour &tour = GetParam();
    for (uint32_t seed : {1u, 2u}) {
        ShardedCache still(kWhole, 24, nullptr, described<quire_instance_desc>(), 0, tour.format);
        MigratingCache moved(tour.stops[0], tour.format);
        Traffic expected(&still, seed), got(&moved.cache, seed);
        for (uint32_t i = 1; i <= 8; ++i) {
            expected.run_on(20);
            got.run_on(20);
            notice(&still);
            MoveOptions options;
            options.copies_host_tier = i % 3 == 0;
            quire_migrate_info info = moved.move(tour.stops[i % tour.stops.size()], options);
            EXPECT_GE(info.bytes_moved, info.live_bytes);
            EXPECT_EQ(info.blocks_dropped, 0u);
        }
        expected.run(40);
        got.run(40);
        ASSERT_EQ(expected.decisions, got.decisions) << "seed " << seed;
        ASSERT_EQ(expected.outputs.size(), got.outputs.size());
        ASSERT_EQ(std::memcmp(expected.outputs.data(), got.outputs.data(),
                              expected.outputs.size() * sizeof(float)),
                  0)
            << "seed " << seed;
        auto stats = described<quire_cache_stats>();
        moved.must(moved.api.cache_get_stats(moved.cache.cache, &stats, &moved.cache.error));
        EXPECT_EQ(stats.migrations, 8u);
        EXPECT_GT(stats.bytes_migrated, 0u);
    }
}

const KvFormat kCodes = {QUIRE_DTYPE_I8, QUIRE_SCALE_TOKEN_HEAD, {}, 0.0f};

INSTANTIATE_TEST_SUITE_P(Migration, Touring,
                         testing::Values(Tour{"one_device_to_the_next", {kWhole}},
                                         Tour{"heads", {kWhole, kHeads}},
                                         Tour{"uneven_heads", {kUnevenHeads, kHeads, kWhole}},
                                         Tour{"layers", {kLayers, kHeads}},
                                         Tour{"both", {kBoth, kLayers, kUnevenHeads}},
                                         Tour{"replicas", {kReplicas, kBoth, kReplicas, kWhole}},
                                         Tour{"codes", {kWhole, kHeads, kLayers}, kCodes}),
                         [](const auto &info) { return info.param.name; });

}  // namespace
