// SPDX-License-Identifier: Apache-2.0
//
// A live cache migrates between steps, to other splits into shards and to other sizes, and gives
// the same outputs as a cache that stays, bit for bit.

#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "failing.hpp"
#include "migrating_cache.hpp"
#include "tests/abi/counting_host.hpp"
#include "tests/place.hpp"
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
    std::vector<std::vector<Range>> stops;  // the first is where it begins
    KvFormat format = {};
};

// Makes the cache notice that its last step has run, as a migration does.
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

// The calibration that a cache has measured.
std::vector<unsigned char> measured(ShardedCache *c) {
    uint64_t size = 0;
    c->api.cache_save_calibration_wait(c->cache, nullptr, 0, &size, UINT64_MAX, &c->error);
    std::vector<unsigned char> bytes(size);
    c->must(c->api.cache_save_calibration_wait(c->cache, bytes.data(), size, &size, UINT64_MAX,
                                               &c->error));
    return bytes;
}

TEST(Migration, what_was_measured_goes_along_and_so_do_the_scales_made_of_it) {
    ShardedCache still(kWhole, 24, nullptr, described<quire_instance_desc>(),
                       QUIRE_CACHE_CALIBRATE);
    MigratingCache moved(kHeads, {}, nullptr, QUIRE_CACHE_CALIBRATE);
    Traffic expected(&still, 7), got(&moved.cache, 7);
    expected.run(60);
    for (const auto &ranges : {kWhole, kBoth, kReplicas}) {
        got.run_on(20);
        moved.move(ranges);
    }
    std::vector<unsigned char> calibration = measured(&still);
    EXPECT_EQ(measured(&moved.cache), calibration);

    KvFormat format{QUIRE_DTYPE_I8, QUIRE_SCALE_HEAD, calibration, 1.5f};
    ShardedCache still_codes(kWhole, 24, nullptr, described<quire_instance_desc>(), 0, format);
    MigratingCache moved_codes(kLayers, format);
    Traffic expected_codes(&still_codes, 8), got_codes(&moved_codes.cache, 8);
    expected_codes.run_on(30);
    got_codes.run_on(30);
    notice(&still_codes);
    moved_codes.move(kHeads);
    expected_codes.run_on(30);
    got_codes.run_on(30);
    EXPECT_EQ(expected_codes.decisions, got_codes.decisions);
    EXPECT_EQ(expected_codes.outputs, got_codes.outputs);
}

// Ids stay, so the log continues; a different number of blocks is refused with a message.
TEST(Migration, a_leader_and_its_followers_move_each_by_itself) {
    const std::vector<Range> first = {{0, 0, 0, 2}}, second = {{0, 0, 2, 2}};
    const std::vector<Range> cut = {{0, 3, 2, 2}, {3, 3, 2, 2}};
    ShardedCache one(kWhole);
    MigratingCache leader(first, {}, nullptr, QUIRE_CACHE_LOG);
    MigratingCache follower(second, {}, nullptr, QUIRE_CACHE_FOLLOWER);
    Traffic expected(&one, 3), got(&leader.cache, 3, {&follower.cache});
    expected.run_on(30);
    got.run_on(30);
    notice(&one);
    leader.move(first);
    expected.run_on(30);
    got.run_on(30);
    notice(&one);
    notice(&leader.cache);
    quire_migrate_info info = follower.move(cut);
    EXPECT_GT(info.live_bytes, 0u);
    EXPECT_GT(info.bytes_moved, info.live_bytes);
    expected.run(60);
    got.run(60);
    EXPECT_EQ(expected.decisions, got.decisions);
    EXPECT_EQ(expected.outputs, got.outputs);

    for (MigratingCache *c : {&leader, &follower}) {
        std::vector<quire_device *> devices = c->open(1, "cpu");
        MoveOptions larger;
        larger.blocks = 30;
        const auto &own = c == &leader ? first : second;
        EXPECT_EQ(c->try_move(own, devices, larger, &info), QUIRE_E_UNSUPPORTED);
        EXPECT_NE(std::string(c->cache.error.message).find("leader or follower"),
                  std::string::npos);
        // It must keep the heads that it holds and cannot take others.
        EXPECT_EQ(c->try_move(kWhole, devices, {}, &info), QUIRE_E_ARG);
        EXPECT_EQ(c->try_move({{0, 0, 1, 1}}, devices, {}, &info), QUIRE_E_ARG);
        c->close(devices);
    }
}

// No log says which blocks the leader has cached, and it finds prefixes in them afterwards.
TEST(Migration, a_follower_keeps_the_blocks_that_its_leader_has_cached) {
    const std::vector<Range> first = {{0, 0, 0, 2}}, second = {{0, 0, 2, 2}};
    const std::vector<Range> cut = {{0, 3, 2, 2}, {3, 3, 2, 2}};
    for (uint32_t seed : {1u, 2u, 3u}) {
        ShardedCache one(kWhole);
        ShardedCache leader(first, 24, nullptr, described<quire_instance_desc>(), QUIRE_CACHE_LOG);
        MigratingCache follower(second, {}, nullptr, QUIRE_CACHE_FOLLOWER);
        Traffic expected(&one, seed), got(&leader, seed, {&follower.cache});
        for (uint32_t i = 0; i < 10; ++i) {
            expected.run_on(10);
            got.run_on(10);
            notice(&one);
            notice(&leader);
            MoveOptions options;
            options.copies_host_tier = i % 3 == 0;
            follower.move(i % 2 == 0 ? cut : second, options);
        }
        expected.run(40);
        got.run(40);
        ASSERT_EQ(expected.decisions, got.decisions) << "seed " << seed;
        ASSERT_EQ(expected.outputs, got.outputs) << "seed " << seed;
    }
}

class Failing : public testing::Test {
 protected:
    Failing() {
        void *module = dlopen(quire::tests::place(QUIRE_FAILING).c_str(), RTLD_NOW | RTLD_LOCAL);
        plant_ = reinterpret_cast<decltype(&quire_failing_plant_call)>(
            dlsym(module, "quire_failing_plant_call"));
        answer_ = reinterpret_cast<decltype(&quire_failing_answer)>(
            dlsym(module, "quire_failing_answer"));
    }
    ~Failing() override {
        plant_(0);
        answer_(QUIRE_E_DEVICE_LOST);
    }

    decltype(&quire_failing_plant_call) plant_ = nullptr;
    decltype(&quire_failing_answer) answer_ = nullptr;
};

// A target of 16 million blocks once took 38 s and 4.5 GB of host memory before the device said
// that it has no room for them, and the memory stayed.
TEST_F(Failing, a_device_that_is_short_of_memory_says_so_before_books_are_made) {
    constexpr int64_t kBooks = 200'000 * 64;  // at least; a block has a record in each group
    CountingHost host;
    {
        MigratingCache moved(kWhole, {}, quire::tests::place(QUIRE_FAILING).c_str(), 0, 24,
                             host.description());
        std::vector<quire_device *> devices = moved.open(1, "failing");
        answer_(QUIRE_E_DEVICE_MEMORY);
        MoveOptions options;
        options.blocks = 200'000;
        auto info = described<quire_migrate_info>();
        int64_t live = host.live_bytes;
        for (uint32_t n = 1; n <= kGroups.size(); ++n) {  // the memory of each group
            int64_t taken = host.taken_bytes;
            plant_(n);
            ASSERT_EQ(moved.try_move(kWhole, devices, options, &info), QUIRE_E_DEVICE_MEMORY);
            EXPECT_EQ(plant_(0), 0u);
            EXPECT_LT(host.taken_bytes - taken, kBooks / 100) << "call " << n;
            EXPECT_LT(host.live_bytes - live, kBooks / 100) << "call " << n;
        }
        int64_t taken = host.taken_bytes;
        EXPECT_EQ(moved.try_move(kWhole, devices, options, &info), QUIRE_OK);
        EXPECT_GT(host.taken_bytes - taken, kBooks);
        moved.arrive(devices);
    }
    EXPECT_EQ(host.live_bytes, 0);
}

// For n = 1, 2, ... the n-th call of the source's or the target's backend fails, until the
// migration makes fewer than n calls.
TEST_F(Failing, any_call_leaves_the_source_serving) {
    ShardedCache still(kWhole);
    MigratingCache moved(kHeads, {}, quire::tests::place(QUIRE_FAILING).c_str());
    Traffic expected(&still, 5), got(&moved.cache, 5);
    expected.run_on(60);
    got.run_on(60);
    uint32_t failed = 0;
    for (const auto &[ranges, backend] :
         {std::pair{kBoth, "failing"}, std::pair{kWhole, "cpu"}, std::pair{kHeads, "failing"}}) {
        for (uint32_t n = 1;; ++n) {
            std::vector<quire_device *> devices = moved.open(ranges.size(), backend);
            auto info = described<quire_migrate_info>();
            MoveOptions options;
            options.copies_host_tier = n % 2 == 0;
            plant_(n);
            quire_status status = moved.try_move(ranges, devices, options, &info);
            bool was_due = plant_(0) == 0;
            moved.must(moved.api.cache_check(moved.cache.cache, &moved.cache.error));
            if (!was_due) {
                ASSERT_EQ(status, QUIRE_OK) << moved.cache.error.message;
                moved.arrive(devices);
                break;
            }
            ASSERT_EQ(status, QUIRE_E_DEVICE_LOST) << "call " << n;
            EXPECT_STREQ(moved.cache.error.backend, "failing");
            moved.close(devices);  // the cache left nothing on them
            ++failed;
            if (n % 8 != 0) continue;
            notice(&still);
            expected.run_on(2);
            got.run_on(2);
        }
        notice(&still);
    }
    EXPECT_GT(failed, 60u);
    expected.run(60);
    got.run(60);
    EXPECT_EQ(expected.decisions, got.decisions);
    EXPECT_EQ(expected.outputs, got.outputs);
}

// How many of the 12 host blocks of each group are in use.
uint64_t host_blocks_used(MigratingCache *c) {
    auto stats = described<quire_cache_stats>();
    c->must(c->api.cache_get_stats(c->cache.cache, &stats, &c->cache.error));
    return stats.host_blocks_used;
}

TEST(Migration, host_tiers_change_hands_or_are_copied_once) {
    MigratingCache moved(kHeads, {}, quire::tests::place(QUIRE_FAILING).c_str());
    Traffic traffic(&moved.cache, 4);
    do traffic.run_on(1);
    while (host_blocks_used(&moved) < 4);
    uint64_t used = host_blocks_used(&moved);
    // Another backend cannot copy to and from the tier.
    quire_migrate_info info = moved.move(kHeads);
    EXPECT_EQ(info.host_blocks_copied, used);
    EXPECT_GT(info.host_bytes_copied, 0u);
    EXPECT_EQ(info.host_blocks_kept, 0u);
    EXPECT_EQ(moved.close_left(), 0u);
    // The same backend can, if the shards hold the same.
    info = moved.move(kHeads);
    EXPECT_EQ(info.host_blocks_kept, used);
    EXPECT_EQ(info.host_bytes_copied, 0u);
    EXPECT_EQ(moved.close_left(), 2u);
    MoveOptions copies;
    copies.copies_host_tier = true;
    info = moved.move(kHeads, copies);
    EXPECT_EQ(info.host_blocks_copied, used);
    EXPECT_EQ(moved.close_left(), 0u);
    // A shard still holds the same part of the last group, which has one head.
    info = moved.move(kLayers);
    EXPECT_EQ(info.host_blocks_copied + info.host_blocks_kept, used);
    EXPECT_GT(info.host_blocks_copied, 0u);
    EXPECT_EQ(moved.close_left(), 1u);
    traffic.run(60);
}

// The bytes of all blocks that sequences hold, in the order of tables and groups; for one device.
std::vector<unsigned char> held_bytes(ShardedCache *c, const Traffic &traffic) {
    std::vector<unsigned char> bytes;
    for (quire_seq seq : traffic.sequences()) {
        for (uint32_t g = 0; g < kGroups.size(); ++g) {
            int32_t ids[16] = {};
            uint32_t count = 0;
            c->must(c->api.step_blocks(c->cache, 0, seq, g, 0, ids, 16, &count, &c->error));
            quire_pool_info pool = c->pool(g, 0);
            for (uint32_t i = 0; i < count; ++i) {
                if (ids[i] == 0) continue;
                auto *block = reinterpret_cast<const unsigned char *>(pool.address) +
                              ids[i] * pool.block_stride;
                bytes.insert(bytes.end(), block, block + pool.block_stride);
            }
        }
    }
    return bytes;
}

TEST(Migration, smaller_pools_and_larger_ones_keep_every_byte) {
    MigratingCache moved(kWhole, {}, nullptr, 0, 60);
    Traffic traffic(&moved.cache, 9);
    uint32_t moves = 0, shrunk = 0, compared = 0, too_small = 0;
    for (uint32_t blocks : {30u, 70u, 24u, 12u, 60u, 26u, 34u, 50u, 28u, 36u, 60u}) {
        traffic.run_on(8);
        std::vector<unsigned char> before = held_bytes(&moved.cache, traffic);
        std::vector<quire_device *> devices = moved.open(1, "cpu");
        auto info = described<quire_migrate_info>();
        MoveOptions options;
        options.blocks = blocks;
        quire_status status = moved.try_move(kWhole, devices, options, &info);
        if (status == QUIRE_S_NO_BLOCKS) {
            EXPECT_GT(info.blocks_short, 0u);
            ++too_small;
            moved.close(devices);
        } else {
            ASSERT_EQ(status, QUIRE_OK) << moved.cache.error.message;
            moved.arrive(devices);
            shrunk += info.blocks_dropped != 0;
            ++moves;
        }
        moved.must(moved.api.cache_check(moved.cache.cache, &moved.cache.error));
        ASSERT_EQ(held_bytes(&moved.cache, traffic), before);
        compared += !before.empty();
    }
    EXPECT_GE(moves, 7u);
    EXPECT_GE(shrunk, 2u);
    EXPECT_GE(too_small, 1u);
    EXPECT_GE(compared, 9u);
    traffic.run(60);
}

class Waiting : public testing::Test {
 protected:
    Waiting() : moved_(kWhole) {
        c().must(c().api.fence_create(c().devices[0], 0, &gate_, &c().error));
        c().must(c().api.queue_after(c().queues[0], gate_, 1, &c().error));
        auto seq = described<quire_seq_desc>();
        c().must(c().api.seq_create(c().cache, &seq, &seq_, &c().error));
        auto desc = c().step_desc();
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = 3;
        const quire_token tokens[] = {1, 2, 3};
        quire_step_result result{};
        quire_step step = 0;
        c().must(c().api.step_begin(c().cache, &desc, &item, 1, sizeof item, tokens, 3, &result,
                                    sizeof result, &step, &c().error));
        c().must(c().api.step_commit(c().cache, step, c().batch, &c().error));
        c().must(c().api.step_finish(c().cache, step, nullptr, QUIRE_STEP_OK, &c().error));
        devices_ = moved_.open(1, "cpu");
        shard_ = described<quire_shard_desc>();
        shard_.device = devices_[0];
        desc_ = described<quire_migrate_desc>();
        desc_.shards = &shard_;
        desc_.shard_count = 1;
        desc_.shard_stride = sizeof shard_;
    }
    ~Waiting() override {
        moved_.arrive(devices_);
        c().must(c().api.fence_destroy(gate_, &c().error));
        moved_.close_left();
    }
    ShardedCache &c() { return moved_.cache; }
    void release() { c().must(c().api.fence_signal(gate_, 1, &c().error)); }

    MigratingCache moved_;
    quire_fence *gate_ = nullptr;
    quire_seq seq_ = 0;
    std::vector<quire_device *> devices_;
    quire_shard_desc shard_;
    quire_migrate_desc desc_;
    quire_migrate_info info_ = described<quire_migrate_info>();
};

TEST_F(Waiting, a_finished_step_that_runs_is_busy_and_the_wait_ends_with_it) {
    EXPECT_EQ(c().api.cache_migrate(c().cache, &desc_, &info_, &c().error), QUIRE_E_BUSY);
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, 1'000'000, &c().error),
              QUIRE_S_TIMEOUT);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        release();
    });
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, UINT64_MAX, &c().error),
              QUIRE_OK)
        << c().error.message;
    later.join();
    EXPECT_EQ(info_.blocks_moved, 3u);  // one in each group
}

TEST_F(Waiting, an_open_step_is_busy_at_once_whatever_runs) {
    auto desc = c().step_desc();
    quire_step step = 0;
    c().must(c().api.step_begin(c().cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                                nullptr, 0, &step, &c().error));
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, UINT64_MAX, &c().error),
              QUIRE_E_BUSY);
    c().must(c().api.step_abort(c().cache, step, &c().error));
    release();
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, UINT64_MAX, &c().error),
              QUIRE_OK);
}

TEST_F(Waiting, launches_and_steps_of_before_are_refused) {
    release();
    quire_queue *old_queue = c().queues[0];
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, UINT64_MAX, &c().error),
              QUIRE_OK);
    float numbers[64] = {};
    auto kv = described<quire_kv_args>();
    kv.k = kv.v = reinterpret_cast<uint64_t>(numbers);
    EXPECT_EQ(c().api.kv_write(c().batch, &kv, old_queue, &c().error), QUIRE_E_STALE);
    auto attend = described<quire_attend_args>();
    attend.q = attend.out = reinterpret_cast<uint64_t>(numbers);
    EXPECT_EQ(c().api.attend(c().batch, &attend, old_queue, &c().error), QUIRE_E_STALE);
    auto desc = c().step_desc();
    quire_step step = 0;
    EXPECT_EQ(c().api.step_begin(c().cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                                 nullptr, 0, &step, &c().error),
              QUIRE_E_ARG);
    EXPECT_NE(std::string(c().error.message).find("another device"), std::string::npos);
    auto info = described<quire_seq_info>();
    c().must(c().api.seq_get_info(c().cache, seq_, &info, &c().error));
    EXPECT_EQ(info.computed_tokens, 3u);
}

TEST_F(Waiting, a_forked_child_is_refused) {
    release();
    pid_t child = fork();
    if (child == 0) {
        _exit(c().api.cache_migrate(c().cache, &desc_, &info_, nullptr) == QUIRE_E_FORKED ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_EQ(c().api.cache_migrate_wait(c().cache, &desc_, &info_, UINT64_MAX, &c().error),
              QUIRE_OK);
}

// Reading calls always succeed; changing calls succeed or return busy.
TEST(Migration, other_threads_ask_meanwhile) {
    MigratingCache moved(kWhole);
    Traffic traffic(&moved.cache, 6);
    traffic.run_on(40);
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> asked{0}, busy{0}, wrong{0};
    std::thread other([&] {
        const quire_api &api = library();
        while (!stop) {
            auto stats = described<quire_cache_stats>();
            auto pool = described<quire_pool_info>();
            auto seq_desc = described<quire_seq_desc>();
            quire_cache *cache = moved.cache.cache;
            wrong += api.cache_get_stats(cache, &stats, nullptr) != QUIRE_OK;
            wrong += api.cache_get_pool(cache, 0, 0, &pool, nullptr) != QUIRE_OK;
            wrong += stats.blocks_total != 3 * 23;
            quire_seq seq = 0;
            quire_status made = api.seq_create(cache, &seq_desc, &seq, nullptr);
            busy += made == QUIRE_E_BUSY;
            wrong += made != QUIRE_OK && made != QUIRE_E_BUSY;
            while (made == QUIRE_OK && api.seq_end(cache, seq, 0, nullptr) == QUIRE_E_BUSY) {
            }
            ++asked;
        }
    });
    for (uint32_t i = 0; i < 20; ++i) moved.move(i % 2 == 0 ? kHeads : kWhole);
    stop = true;
    other.join();
    EXPECT_GT(asked, 20u);
    EXPECT_EQ(wrong, 0u);
    traffic.run(60);
}

// The n-th host allocation fails, for n = 1, 2, ...: nothing changes and nothing leaks.
TEST(Migration, short_host_memory_leaves_the_source_serving) {
    CountingHost host;
    ShardedCache c(kWhole, 24, nullptr, host.description());
    Traffic traffic(&c, 2);
    traffic.run_on(30);
    quire_device *device = nullptr;
    auto device_desc = described<quire_device_desc>();
    device_desc.backend = "cpu";
    c.must(c.api.device_open(c.instance, &device_desc, &device, &c.error));
    auto shard = described<quire_shard_desc>();
    shard.device = device;
    auto desc = described<quire_migrate_desc>();
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    auto info = described<quire_migrate_info>();
    int64_t before = host.live_bytes;
    uint64_t failed = 0;
    for (;; ++failed) {
        host.fail_at = host.calls + failed + 1;
        quire_status status = c.api.cache_migrate(c.cache, &desc, &info, &c.error);
        host.fail_at = UINT64_MAX;
        if (status == QUIRE_OK) break;
        ASSERT_EQ(status, QUIRE_E_HOST_MEMORY) << c.error.message;
        ASSERT_EQ(host.live_bytes, before);
        c.must(c.api.cache_check(c.cache, &c.error));
    }
    EXPECT_GT(failed, 10u);
    c.must(c.api.batch_destroy(c.batch, &c.error));
    for (quire_queue *queue : c.queues) c.must(c.api.queue_destroy(queue, &c.error));
    std::swap(c.devices[0], device);
    c.must(c.api.queue_create(c.devices[0], nullptr, &c.queues[0], &c.error));
    c.batch = nullptr;
    c.must(c.make_batch());
    traffic.run(60);
    c.must(c.api.batch_destroy(c.batch, &c.error));
    c.must(c.api.cache_destroy(c.cache, &c.error));
    c.batch = nullptr;
    c.cache = nullptr;
    c.must(c.api.device_close(device, &c.error));  // the host tier was in its memory
}

}  // namespace
