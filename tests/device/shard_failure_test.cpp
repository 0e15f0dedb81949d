// SPDX-License-Identifier: Apache-2.0
//
// A step over several devices is all or nothing: if one of them refuses a copy or a fence, or its
// work fails, the step fails on all; and steps on other queues wait on every device.

#include <dlfcn.h>

#include <string>

#include "failing.hpp"
#include "sharded_cache.hpp"
#include "tests/abi/counting_host.hpp"
#include "tests/place.hpp"

namespace {

using namespace quire::test;

const std::vector<Range> kHeads = {{0, 0, 0, 2}, {0, 0, 2, 2}};

class ShardFailure : public testing::Test {
 protected:
    ShardFailure() : c_(kHeads, 24, quire::tests::place(QUIRE_FAILING).c_str()) {
        void *module = dlopen(quire::tests::place(QUIRE_FAILING).c_str(), RTLD_NOW | RTLD_LOCAL);
        plant_ =
            reinterpret_cast<decltype(&quire_failing_plant)>(dlsym(module, "quire_failing_plant"));
        plant_call_ = reinterpret_cast<decltype(&quire_failing_plant_call)>(
            dlsym(module, "quire_failing_plant_call"));
        answer_ = reinterpret_cast<decltype(&quire_failing_answer)>(
            dlsym(module, "quire_failing_answer"));
    }
    ~ShardFailure() override {
        plant_(0, 0, 0);
        plant_call_(0);
        answer_(QUIRE_E_DEVICE_LOST);
    }

    quire_seq sequence() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        c_.must(c_.api.seq_create(c_.cache, &desc, &seq, &c_.error));
        return seq;
    }
    quire_step begin(quire_seq seq, std::vector<uint32_t> tokens, quire_queue *const *queues) {
        auto desc = c_.step_desc();
        desc.queues = queues;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step step = 0;
        c_.must(c_.api.step_begin(c_.cache, &desc, &item, seq != 0, sizeof item, tokens.data(),
                                  item.token_count, &result_, sizeof result_, &step, &c_.error));
        return step;
    }
    quire_status commit(quire_step step) {
        return c_.api.step_commit(c_.cache, step, c_.batch, &c_.error);
    }
    quire_status finish(quire_step step) {
        return c_.api.step_finish(c_.cache, step, nullptr, QUIRE_STEP_OK, &c_.error);
    }
    quire_seq_info info(quire_seq seq) {
        auto info = described<quire_seq_info>();
        c_.must(c_.api.seq_get_info(c_.cache, seq, &info, &c_.error));
        return info;
    }
    void run(quire_seq seq, std::vector<uint32_t> tokens) {
        quire_step step = begin(seq, tokens, c_.queues.data());
        c_.must(commit(step));
        c_.must(finish(step));
    }
    // Lets the cache notice what has run, and checks it.
    void settle() {
        c_.sync();
        c_.must(c_.api.step_abort(c_.cache, begin(0, {}, c_.queues.data()), &c_.error));
        c_.must(c_.api.cache_check(c_.cache, &c_.error));
    }
    void settle_all(quire_queue *const (&others)[2]) {
        for (quire_queue *queue : others) c_.must(c_.api.queue_sync(queue, &c_.error));
        settle();
    }

    ShardedCache c_;
    decltype(&quire_failing_plant) plant_ = nullptr;
    decltype(&quire_failing_plant_call) plant_call_ = nullptr;
    decltype(&quire_failing_answer) answer_ = nullptr;
    quire_step_result result_{};
};

TEST_F(ShardFailure, a_copy_refused_by_the_second_shard_fails_the_step_on_both) {
    quire_seq seq = sequence();
    run(seq, {1, 2, 3, 4, 5});
    quire_step step = begin(seq, {6, 7}, c_.queues.data());
    plant_(2, 0, 0);  // each shard's upload is one copy
    EXPECT_EQ(commit(step), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(info(seq).computed_tokens, 5u);
    EXPECT_EQ(info(seq).known_tokens, 7u);
    EXPECT_NE(info(seq).flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_EQ(finish(step), QUIRE_E_STALE);
    settle();
    run(seq, {8});
    EXPECT_EQ(info(seq).computed_tokens, 8u);
    settle();
}

TEST_F(ShardFailure, blocks_of_a_refused_step_wait_for_the_shard_that_took_its_copies) {
    quire_fence *gate = nullptr;
    c_.must(c_.api.fence_create(c_.devices[0], 0, &gate, &c_.error));
    c_.must(c_.api.queue_after(c_.queues[0], gate, 1, &c_.error));
    quire_seq first = sequence();
    quire_step step = begin(first, std::vector<uint32_t>(60, 9u), c_.queues.data());
    plant_(2, 0, 0);
    EXPECT_EQ(commit(step), QUIRE_E_DEVICE_LOST);

    quire_queue *others[2] = {};
    for (int i = 0; i < 2; ++i) {
        c_.must(c_.api.queue_create(c_.devices[i], nullptr, &others[i], &c_.error));
    }
    std::vector<uint32_t> most(84, 3u);  // 21 of 23 blocks: 15 of them may still be written
    step = begin(sequence(), most, others);
    EXPECT_EQ(result_.outcome, uint32_t{QUIRE_ITEM_WAIT});
    c_.must(c_.api.step_abort(c_.cache, step, &c_.error));
    c_.must(c_.api.fence_signal(gate, 1, &c_.error));
    c_.sync();
    step = begin(sequence(), most, others);
    EXPECT_EQ(result_.outcome, uint32_t{QUIRE_ITEM_RUN});
    c_.must(c_.api.step_abort(c_.cache, step, &c_.error));
    for (quire_queue *queue : others) c_.must(c_.api.queue_destroy(queue, &c_.error));
    c_.must(c_.api.fence_destroy(gate, &c_.error));
}

TEST_F(ShardFailure, a_fence_that_fails_on_one_shard_fails_the_step) {
    quire_seq seq = sequence();
    run(seq, {1, 2, 3, 4, 5});
    settle();
    run(seq, {6, 7});
    c_.sync();
    plant_(0, 0, 2);
    settle();
    EXPECT_EQ(info(seq).computed_tokens, 5u);
    EXPECT_NE(info(seq).flags & QUIRE_SEQ_LOST, 0u);
    plant_(0, 0, 0);
    run(seq, {8});
    settle();
    EXPECT_EQ(info(seq).computed_tokens, 8u);
}

TEST_F(ShardFailure, a_finish_that_the_second_shard_refuses_can_be_made_again) {
    quire_seq seq = sequence();
    quire_step step = begin(seq, {1, 2, 3}, c_.queues.data());
    c_.must(commit(step));
    plant_(0, 2, 0);
    EXPECT_EQ(finish(step), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(info(seq).computed_tokens, 3u);
    EXPECT_EQ(finish(step), QUIRE_OK) << c_.error.message;
    settle();
}

TEST_F(ShardFailure, a_step_whose_device_refuses_its_end_can_be_failed) {
    quire_seq seq = sequence();
    run(seq, {1, 2, 3});
    settle();
    quire_step step = begin(seq, {4, 5}, c_.queues.data());
    c_.must(commit(step));
    plant_(0, 1, 0);
    EXPECT_EQ(c_.api.step_finish(c_.cache, step, nullptr, QUIRE_STEP_FAILED, &c_.error), QUIRE_OK)
        << c_.error.message;
    EXPECT_EQ(info(seq).computed_tokens, 3u);
    EXPECT_EQ(finish(step), QUIRE_E_STALE);
    run(seq, {6});
    settle();
    EXPECT_EQ(info(seq).computed_tokens, 6u);
}

TEST_F(ShardFailure, a_step_is_done_when_all_its_shards_are) {
    quire_fence *gate = nullptr;
    c_.must(c_.api.fence_create(c_.devices[1], 0, &gate, &c_.error));
    c_.must(c_.api.queue_after(c_.queues[1], gate, 1, &c_.error));
    run(sequence(), {1, 2, 3});
    c_.must(c_.api.queue_sync(c_.queues[0], &c_.error));
    EXPECT_EQ(c_.api.batch_destroy(c_.batch, &c_.error), QUIRE_E_BUSY);
    c_.must(c_.api.fence_signal(gate, 1, &c_.error));
    settle();
    c_.must(c_.api.fence_destroy(gate, &c_.error));
}

TEST_F(ShardFailure, tuples_that_share_a_queue_are_two_queues) {
    quire_fence *gate = nullptr;
    c_.must(c_.api.fence_create(c_.devices[1], 0, &gate, &c_.error));
    c_.must(c_.api.queue_after(c_.queues[1], gate, 1, &c_.error));
    quire_queue *second = nullptr;
    c_.must(c_.api.queue_create(c_.devices[1], nullptr, &second, &c_.error));
    quire_queue *mixed[] = {c_.queues[0], second};
    std::vector<uint32_t> prompt = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    run(sequence(), prompt);
    c_.must(c_.api.step_abort(c_.cache, begin(sequence(), prompt, mixed), &c_.error));
    EXPECT_EQ(result_.hit_tokens, 0u);
    c_.must(c_.api.step_abort(c_.cache, begin(sequence(), prompt, c_.queues.data()), &c_.error));
    EXPECT_EQ(result_.hit_tokens, 8u);
    c_.must(c_.api.fence_signal(gate, 1, &c_.error));
    c_.sync();
    c_.must(c_.api.step_abort(c_.cache, begin(sequence(), prompt, mixed), &c_.error));
    EXPECT_EQ(result_.hit_tokens, 8u);
    c_.must(c_.api.queue_destroy(second, &c_.error));
    c_.must(c_.api.fence_destroy(gate, &c_.error));
}

// The n-th allocation fails, for n = 1, 2, ...; a failed call leaks nothing.
TEST(ShardMemory, cache_and_batch_over_two_devices_leak_nothing_when_memory_is_short) {
    CountingHost host;
    ShardedCache c(kHeads, 24, nullptr, host.description());
    auto drop = [&] {
        c.must(c.api.batch_destroy(c.batch, &c.error));
        c.must(c.api.cache_destroy(c.cache, &c.error));
        c.batch = nullptr;
        c.cache = nullptr;
    };
    drop();
    int64_t before = host.live_bytes;
    uint64_t failed = 0;
    while (true) {
        host.fail_at = host.calls + ++failed;
        if (c.create(kHeads, 24) >= 0 && c.make_batch() >= 0) break;
        host.fail_at = UINT64_MAX;
        EXPECT_EQ(c.error.status, QUIRE_E_HOST_MEMORY) << c.error.message;
        if (c.cache != nullptr) c.must(c.api.cache_destroy(c.cache, &c.error));
        c.cache = nullptr;
        EXPECT_EQ(host.live_bytes, before);
    }
    host.fail_at = UINT64_MAX;
    EXPECT_GT(failed, 10u);
    drop();
    EXPECT_EQ(host.live_bytes, before);
}

// Whichever call of a commit fails, and with whichever status: one code says that the step is gone,
// and after every other code the step is still open.
TEST_F(ShardFailure, at_commit_the_code_says_whether_the_step_is_gone) {
    quire_queue *others[2] = {};
    for (int i = 0; i < 2; ++i) {
        c_.must(c_.api.queue_create(c_.devices[i], nullptr, &others[i], &c_.error));
    }
    quire_fence *gate = nullptr;
    c_.must(c_.api.fence_create(c_.devices[0], 0, &gate, &c_.error));
    uint32_t gone = 0, open = 0;
    uint64_t passed = 0;
    const std::vector<quire_status> answers = {QUIRE_E_DEVICE_LOST,
                                               QUIRE_E_BACKEND,
                                               QUIRE_E_DEVICE_MEMORY,
                                               QUIRE_E_BUSY,
                                               QUIRE_E_HOST_MEMORY,
                                               QUIRE_E_ARG,
                                               77};  // the last is outside the contract
    for (quire_status answer : answers) {
        answer_(answer);
        for (uint32_t call = 1;; ++call) {
            quire_seq seq = sequence();
            c_.must(c_.api.queue_after(c_.queues[0], gate, ++passed, &c_.error));
            quire_step before = begin(seq, {1, 2, 3, 4, 5}, c_.queues.data());
            c_.must(c_.api.step_commit(c_.cache, before, nullptr, &c_.error));
            c_.must(finish(before));
            quire_step step = begin(seq, {6, 7}, others);  // must wait for the other queues
            plant_call_(call);
            quire_status status = commit(step);
            bool was_reached = plant_call_(0) == 0;
            c_.must(c_.api.fence_signal(gate, passed, &c_.error));
            if (!was_reached) {  // the commit made fewer calls
                c_.must(status);
                c_.must(finish(step));
                c_.must(c_.api.seq_end(c_.cache, seq, 0, &c_.error));
                settle_all(others);
                break;
            }
            ASSERT_LT(status, 0) << answer << " at call " << call;
            bool is_gone = status == QUIRE_E_DEVICE_LOST;
            EXPECT_EQ(c_.api.step_abort(c_.cache, step, &c_.error),
                      is_gone ? QUIRE_E_STALE : QUIRE_OK)
                << answer << " at call " << call << " gave " << status;
            ++(is_gone ? gone : open);
            c_.must(c_.api.seq_end(c_.cache, seq, 0, &c_.error));
            c_.must(c_.api.cache_check(c_.cache, &c_.error));
            settle_all(others);
        }
    }
    EXPECT_GT(gone, 0u);
    EXPECT_GT(open, 0u);
    c_.must(c_.api.fence_destroy(gate, &c_.error));
    for (quire_queue *queue : others) c_.must(c_.api.queue_destroy(queue, &c_.error));
}

}  // namespace
