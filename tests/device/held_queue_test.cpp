// SPDX-License-Identifier: Apache-2.0
//
// Real asynchrony: a fence holds a queue of the cpu backend, so that the work of a committed step
// has certainly not run, and the tests check what the cache allows meanwhile.

#include <numeric>

#include "cpu_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlocks = 9;   // 8 usable
constexpr uint32_t kPrompt = 65;  // 4 full blocks and one token

class HeldQueue : public ::testing::Test {
 protected:
    HeldQueue() : cache_(CacheShape{kBlocks, 16, 64}), tokens_(kPrompt) {
        std::iota(tokens_.begin(), tokens_.end(), 100u);
        for (quire_queue *&queue : queues_) {
            cache_.must(api().queue_create(cache_.device, nullptr, &queue, error()));
        }
        cache_.must(api().fence_create(cache_.device, 0, &gate_, error()));
        cache_.must(api().queue_after(queues_[0], gate_, 1, error()));
    }
    ~HeldQueue() override {
        release();
        for (quire_queue *queue : queues_) {
            // A step is done only once a call has seen its fence.
            auto desc = described<quire_step_desc>();
            desc.queues = &queue;
            desc.queue_count = 1;
            quire_step step = 0;
            if (api().step_begin(cache_.cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr,
                                 0, nullptr, 0, &step, error()) >= 0) {
                api().step_abort(cache_.cache, step, nullptr);
            }
        }
        for (quire_queue *queue : queues_) EXPECT_GE(api().queue_destroy(queue, error()), 0);
        EXPECT_GE(api().fence_destroy(gate_, error()), 0);
    }

    const quire_api &api() { return cache_.api; }
    quire_error *error() { return &cache_.error; }

    void release() {
        api().fence_signal(gate_, 1, nullptr);
        for (quire_queue *queue : queues_) cache_.must(api().queue_sync(queue, error()));
    }

    // Runs a whole step of one item and returns its result.
    quire_step_result run(quire_queue *queue, quire_seq seq, const std::vector<uint32_t> &tokens) {
        quire_step_result result{};
        quire_step step = cache_.begin(queue, seq, tokens, &result);
        cache_.must(api().step_commit(cache_.cache, step, nullptr, error()));
        cache_.must(api().step_finish(cache_.cache, step, nullptr, QUIRE_STEP_OK, error()));
        return result;
    }

    CpuCache cache_;
    std::vector<uint32_t> tokens_;
    quire_queue *queues_[2] = {};
    quire_fence *gate_ = nullptr;
};

TEST_F(HeldQueue, commit_and_finish_return_while_the_queue_is_held) {
    EXPECT_EQ(run(queues_[0], cache_.create(), tokens_).outcome, uint32_t{QUIRE_ITEM_RUN});
    uint64_t value = 1;
    cache_.must(api().fence_read(gate_, &value, error()));
    EXPECT_EQ(value, 0u);  // nothing after the gate can have run
}

TEST_F(HeldQueue, blocks_of_unfinished_work_go_to_the_same_queue_and_to_no_other) {
    quire_seq first = cache_.create();
    run(queues_[0], first, tokens_);
    cache_.must(api().seq_end(cache_.cache, first, QUIRE_END_DROP_PREFIX, error()));

    std::vector<uint32_t> other(8 * 16, 7u);  // needs every usable block
    quire_seq second = cache_.create();
    quire_step_result elsewhere{};
    quire_step step = cache_.begin(queues_[1], second, other, &elsewhere);
    EXPECT_EQ(elsewhere.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(elsewhere.blocks_short, 5u);
    cache_.must(api().step_abort(cache_.cache, step, error()));

    EXPECT_EQ(run(queues_[0], second, other).outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST_F(HeldQueue, blocks_come_back_to_other_queues_when_the_work_has_run) {
    quire_seq first = cache_.create();
    run(queues_[0], first, tokens_);
    cache_.must(api().seq_end(cache_.cache, first, QUIRE_END_DROP_PREFIX, error()));
    release();
    std::vector<uint32_t> other(8 * 16, 7u);
    EXPECT_EQ(run(queues_[1], cache_.create(), other).outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST_F(HeldQueue, a_prefix_is_found_on_its_own_queue_at_once_and_on_others_behind_the_fence) {
    run(queues_[0], cache_.create(), tokens_);
    quire_step_result result{};

    quire_step step = cache_.begin(queues_[0], cache_.create(), tokens_, &result);
    EXPECT_EQ(result.hit_tokens, 64u);
    cache_.must(api().step_abort(cache_.cache, step, error()));

    quire_seq foreign = cache_.create();
    step = cache_.begin(queues_[1], foreign,
                        std::vector<uint32_t>(tokens_.begin(), tokens_.end() - 20), &result);
    EXPECT_EQ(result.hit_tokens, 0u);
    cache_.must(api().step_abort(cache_.cache, step, error()));

    release();
    step = cache_.begin(queues_[1], foreign, tokens_, &result);
    EXPECT_EQ(result.hit_tokens, 64u);
    cache_.must(api().step_abort(cache_.cache, step, error()));
}

TEST_F(HeldQueue, a_queue_with_a_running_step_is_not_destroyed) {
    run(queues_[0], cache_.create(), tokens_);
    EXPECT_EQ(api().queue_destroy(queues_[0], error()), QUIRE_E_BUSY);
}

class HeldBatch : public HeldQueue {
 protected:
    HeldBatch() {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 4;
        desc.views = QUIRE_VIEW_SLOTS;
        cache_.must(api().batch_create(cache_.cache, &desc, &batch_, error()));
    }
    ~HeldBatch() override {
        release();
        auto desc = described<quire_step_desc>();
        desc.queues = queues_, desc.queue_count = 1;
        quire_step step = 0;
        if (api().step_begin(cache_.cache, &desc, nullptr, 0, sizeof(quire_step_item), nullptr, 0,
                             nullptr, 0, &step, error()) >= 0) {
            api().step_abort(cache_.cache, step, nullptr);
        }
        EXPECT_GE(api().batch_destroy(batch_, error()), 0) << error()->message;
    }

    quire_status commit(quire_queue *queue, quire_step *step) {
        quire_step_result result{};
        *step = cache_.begin(queue, cache_.create(), {1, 2, 3}, &result);
        return api().step_commit(cache_.cache, *step, batch_, error());
    }
    quire_status finish(quire_step step) {
        return api().step_finish(cache_.cache, step, nullptr, QUIRE_STEP_OK, error());
    }
    quire_status write() {
        auto args = described<quire_kv_args>();
        args.k = args.v = reinterpret_cast<uint64_t>(rows_);
        return api().kv_write(batch_, &args, queues_[0], error());
    }

    quire_batch *batch_ = nullptr;
    alignas(64) float rows_[3 * 64] = {};
};

// Both steps' tables are uploaded to the same place, and the two uploads would not be ordered.
TEST_F(HeldBatch, a_batch_whose_step_still_runs_takes_none_of_another_queue) {
    quire_step step = 0;
    ASSERT_EQ(commit(queues_[0], &step), QUIRE_OK) << error()->message;
    ASSERT_EQ(finish(step), QUIRE_OK);
    EXPECT_EQ(commit(queues_[1], &step), QUIRE_E_BUSY);
    ASSERT_EQ(api().step_abort(cache_.cache, step, error()), QUIRE_OK);
    ASSERT_EQ(commit(queues_[0], &step), QUIRE_OK) << "its own queue keeps the order";
    ASSERT_EQ(finish(step), QUIRE_OK);
    release();
    ASSERT_EQ(commit(queues_[1], &step), QUIRE_OK) << error()->message;
    ASSERT_EQ(finish(step), QUIRE_OK);
}

TEST_F(HeldBatch, nothing_is_launched_on_a_step_that_is_over) {
    release();
    quire_step first = 0, second = 0;
    EXPECT_EQ(write(), QUIRE_E_ARG) << "no step is committed";
    ASSERT_EQ(commit(queues_[0], &first), QUIRE_OK);
    EXPECT_EQ(write(), QUIRE_OK) << error()->message;
    ASSERT_EQ(commit(queues_[0], &second), QUIRE_OK) << error()->message;
    ASSERT_EQ(finish(first), QUIRE_OK);
    EXPECT_EQ(write(), QUIRE_OK) << "the later step is still open";
    ASSERT_EQ(finish(second), QUIRE_OK);
    EXPECT_EQ(write(), QUIRE_E_ARG);
    EXPECT_NE(std::string(error()->message).find("unfinished"), std::string::npos);
}

}  // namespace
