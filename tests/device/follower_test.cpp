// SPDX-License-Identifier: Apache-2.0
//
// A leader, and followers with memory of their own that each hold a part of the heads or layers:
// together they give the bits of one device, and a follower's queue waits even when the leader's
// need not.

#include <memory>

#include "traffic.hpp"

namespace {

using namespace quire::test;

using Ranks = std::vector<std::vector<Range>>;

class Rank : public ShardedCache {
 public:
    Rank(const std::vector<Range> &ranges, uint32_t cache_flags)
        : ShardedCache(ranges, 24, nullptr, described<quire_instance_desc>(), cache_flags) {}
};

class Followed : public testing::TestWithParam<Ranks> {};

TEST_P(Followed, ranks_give_the_bits_of_one_device) {
    for (uint32_t seed : {1u, 2u, 3u}) {
        ShardedCache one(std::vector<Range>(1));
        Rank leader(GetParam()[0], QUIRE_CACHE_LOG);
        std::vector<std::unique_ptr<Rank>> ranks;
        std::vector<ShardedCache *> followers;
        for (size_t i = 1; i < GetParam().size(); ++i) {
            ranks.push_back(std::make_unique<Rank>(GetParam()[i], QUIRE_CACHE_FOLLOWER));
            followers.push_back(ranks.back().get());
        }
        Traffic expected(&one, seed), got(&leader, seed, followers);
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

INSTANTIATE_TEST_SUITE_P(
    Followers, Followed,
    testing::Values(Ranks{{{0, 0, 0, 2}}, {{0, 0, 2, 2}}},                    // heads
                    Ranks{{{0, 2, 0, 0}}, {{2, 2, 0, 0}}, {{4, 2, 0, 0}}},    // layers
                    Ranks{{{0, 3, 0, 2}, {0, 3, 2, 2}}, {{3, 3, 0, 0}}},      // both
                    Ranks{{{0, 0, 0, 1}}, {{0, 0, 1, 3}}, {{0, 0, 3, 1}}}));  // replicas

// A bookkeeping-only leader, and a follower whose second queue is used while the first is held.
class HeldFollower : public testing::Test {
 protected:
    HeldFollower()
        : leader_(std::vector<Range>(), QUIRE_CACHE_LOG),
          rank_(std::vector<Range>(1), QUIRE_CACHE_FOLLOWER) {
        rank_.must(rank_.api.queue_create(rank_.devices[0], nullptr, &second_, &rank_.error));
        rank_.must(rank_.api.fence_create(rank_.devices[0], 0, &gate_, &rank_.error));
        rank_.must(rank_.api.queue_after(rank_.queues[0], gate_, 1, &rank_.error));
    }
    ~HeldFollower() override {
        release();
        rank_.sync();
        EXPECT_EQ(rank_.api.batch_destroy(rank_.batch, &rank_.error), QUIRE_OK);  // sees fences
        rank_.batch = nullptr;
        EXPECT_EQ(rank_.api.queue_destroy(second_, &rank_.error), QUIRE_OK) << rank_.error.message;
        EXPECT_EQ(rank_.api.fence_destroy(gate_, &rank_.error), QUIRE_OK);
    }

    quire_seq sequence() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        leader_.must(leader_.api.seq_create(leader_.cache, &desc, &seq, &leader_.error));
        return seq;
    }
    // A step of the leader, with the follower's part on `queue`.
    quire_status run(quire_seq seq, std::vector<uint32_t> tokens, uint64_t tag,
                     quire_queue *queue) {
        auto desc = described<quire_step_desc>();
        desc.queue_tag = tag;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step step = 0, applied = 0;
        quire_step_result result{};
        leader_.must(leader_.api.step_begin(leader_.cache, &desc, &item, 1, sizeof item,
                                            tokens.data(), item.token_count, &result, sizeof result,
                                            &step, &leader_.error));
        leader_.must(leader_.api.step_commit(leader_.cache, step, nullptr, &leader_.error));
        std::vector<uint8_t> log(1 << 12);
        uint64_t size = 0;
        leader_.must(leader_.api.step_log(leader_.cache, step, log.data(), log.size(), &size,
                                          &leader_.error));
        leader_.must(
            leader_.api.step_finish(leader_.cache, step, nullptr, QUIRE_STEP_OK, &leader_.error));
        auto own = described<quire_step_desc>();
        own.queues = &queue;
        own.queue_count = 1;
        // While a batch's step may run, no other queue may use the batch.
        quire_batch *batch = queue == second_ ? nullptr : rank_.batch;
        quire_status status =
            rank_.api.log_apply(rank_.cache, log.data(), size, &own, batch, &applied, &rank_.error);
        if (status < 0) return status;
        return rank_.api.step_finish(rank_.cache, applied, nullptr, QUIRE_STEP_OK, &rank_.error);
    }
    // True if the work enqueued on the second queue has run.
    bool second_has_run() {
        quire_fence *fence = nullptr;
        rank_.must(rank_.api.fence_create(rank_.devices[0], 0, &fence, &rank_.error));
        rank_.must(rank_.api.queue_signal(second_, fence, 1, &rank_.error));
        quire_status waited = rank_.api.fence_wait(fence, 1, 50'000'000, &rank_.error);
        held_.push_back(fence);
        return waited == QUIRE_OK;
    }
    void release() {
        uint64_t value = 0;
        rank_.must(rank_.api.fence_read(gate_, &value, &rank_.error));
        if (value == 0) rank_.must(rank_.api.fence_signal(gate_, 1, &rank_.error));
        rank_.must(rank_.api.queue_sync(second_, &rank_.error));
        for (quire_fence *fence : held_) {
            rank_.must(rank_.api.fence_destroy(fence, &rank_.error));
        }
        held_.clear();
    }

    Rank leader_, rank_;
    quire_queue *second_ = nullptr;
    quire_fence *gate_ = nullptr;
    std::vector<quire_fence *> held_;
};

TEST_F(HeldFollower, waits_on_the_device_for_a_step_that_its_leader_knew_to_be_done) {
    ASSERT_EQ(run(sequence(), {1, 2, 3}, 1, rank_.queues[0]), QUIRE_OK) << rank_.error.message;
    // The call returns at once, because the queue waits and not the host.
    ASSERT_EQ(run(sequence(), {4, 5}, 2, second_), QUIRE_OK) << rank_.error.message;
    EXPECT_FALSE(second_has_run());
    release();
    EXPECT_TRUE(second_has_run());
}

TEST_F(HeldFollower, on_the_same_queue_needs_no_fence) {
    ASSERT_EQ(run(sequence(), {1, 2, 3}, 1, second_), QUIRE_OK) << rank_.error.message;
    ASSERT_EQ(run(sequence(), {4, 5}, 2, second_), QUIRE_OK) << rank_.error.message;
    EXPECT_TRUE(second_has_run());  // none of its work waits for the gate
}

// A leader with memory whose first queue is held. The `order` of the log of a step on its second
// queue, whose sequence is the one that the first queue's step runs, or another.
uint32_t order_beside_a_held_step(bool same_sequence) {
    Rank leader(std::vector<Range>(1), QUIRE_CACHE_LOG);
    const quire_api &api = leader.api;
    quire_queue *second = nullptr;
    quire_fence *gate = nullptr;
    leader.must(api.queue_create(leader.devices[0], nullptr, &second, &leader.error));
    leader.must(api.fence_create(leader.devices[0], 0, &gate, &leader.error));
    leader.must(api.queue_after(leader.queues[0], gate, 1, &leader.error));
    quire_seq seqs[2] = {};
    auto seq_desc = described<quire_seq_desc>();
    for (quire_seq &seq : seqs)
        leader.must(api.seq_create(leader.cache, &seq_desc, &seq, &leader.error));
    auto run = [&](quire_queue *queue, quire_seq seq) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = 1;
        const uint32_t token = 5;
        quire_step_result result{};
        quire_step step = 0;
        leader.must(api.step_begin(leader.cache, &desc, &item, 1, sizeof item, &token, 1, &result,
                                   sizeof result, &step, &leader.error));
        leader.must(api.step_commit(leader.cache, step, nullptr, &leader.error));
        std::vector<uint8_t> log(1 << 12);
        uint64_t size = 0;
        leader.must(api.step_log(leader.cache, step, log.data(), log.size(), &size, &leader.error));
        leader.must(api.step_finish(leader.cache, step, nullptr, QUIRE_STEP_OK, &leader.error));
        uint32_t order = 0;
        std::memcpy(&order, &log[56], sizeof order);  // docs/follower-log.md, "Header"
        return order;
    };
    EXPECT_EQ(run(leader.queues[0], seqs[0]), 0u);
    uint32_t order = run(second, seqs[same_sequence ? 0 : 1]);
    leader.must(api.fence_signal(gate, 1, &leader.error));
    leader.must(api.queue_sync(leader.queues[0], &leader.error));
    leader.must(api.queue_sync(second, &leader.error));
    EXPECT_EQ(api.batch_destroy(leader.batch, &leader.error), QUIRE_OK);  // sees fences
    leader.batch = nullptr;
    EXPECT_EQ(api.cache_destroy(leader.cache, &leader.error), QUIRE_OK) << leader.error.message;
    leader.cache = nullptr;
    EXPECT_EQ(api.queue_destroy(second, &leader.error), QUIRE_OK) << leader.error.message;
    EXPECT_EQ(api.fence_destroy(gate, &leader.error), QUIRE_OK);
    return order;
}

TEST(LeaderLog, orders_a_step_that_the_leaders_queue_waits_for) {
    EXPECT_EQ(order_beside_a_held_step(true), 1u);
    EXPECT_EQ(order_beside_a_held_step(false), 0u);
}

}  // namespace
