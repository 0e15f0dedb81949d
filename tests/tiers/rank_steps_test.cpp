// SPDX-License-Identifier: Apache-2.0
//
// What a follower does between steps that have not run yet: it fills no host block and copies no
// block before its time, and stores none under a name that is not its own any more.

#include "tests/tiers/rank_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSize = Rank::kBlockTokens;

// A follower whose queue is held until the test lets it go.
class HeldRank : public testing::Test {
 protected:
    HeldRank() {
        r.attach_all();
        EXPECT_EQ(r.api.fence_create(f.devices[0], 0, &gate_, &r.error), QUIRE_OK);
    }
    ~HeldRank() override {
        release();
        f.sync();
        r.empty_step();  // sees fences
        r.deliver_logs();
        EXPECT_EQ(r.api.fence_destroy(gate_, &r.error), QUIRE_OK);
    }
    void hold() {
        EXPECT_EQ(r.api.queue_after(f.queues[0], gate_, 1, &r.error), QUIRE_OK) << r.error.message;
    }
    void release() {
        uint64_t value = 0;
        EXPECT_EQ(r.api.fence_read(gate_, &value, &r.error), QUIRE_OK);
        if (value != 0) return;
        EXPECT_EQ(r.api.fence_signal(gate_, 1, &r.error), QUIRE_OK);
    }
    // Applies and finishes a log while the queue is held, without computing.
    void apply_held() {
        ASSERT_FALSE(f.logs.empty());
        const Sent sent = f.logs.front();
        f.logs.pop_front();
        ASSERT_EQ(f.try_apply(sent.log), QUIRE_OK) << f.error.message;
        ASSERT_EQ(r.api.step_finish(f.cache, f.applied, nullptr, QUIRE_STEP_OK, &f.error),
                  QUIRE_OK);
    }
    void run_held(quire_seq seq, const Tokens &tokens, uint32_t flags) {
        ASSERT_EQ(r.begin({{seq, tokens, flags, 0}}), QUIRE_OK) << r.error.message;
        r.commit();
        r.finish();
        apply_held();
    }

    // Computes a prompt while the queue is held, has the leader write it, and tells the follower,
    // which cannot copy the blocks before their step has run.
    quire_seq compute_held(const Tokens &tokens) {
        hold();
        quire_seq seq = r.create();
        EXPECT_EQ(r.begin({{seq, tokens, 0, 0}}), QUIRE_OK) << r.error.message;
        EXPECT_EQ(r.results[0].outcome, uint32_t{QUIRE_ITEM_RUN});
        r.commit();
        r.finish();
        const Sent sent = f.logs.front();
        apply_held();
        f.compute(0, sent.rows);
        while (r.leader().poll().blocks_queued != 0) {
        }
        r.empty_step();
        apply_held();
        EXPECT_EQ(f.poll().blocks_queued, tokens.size() / kSize);
        return seq;
    }

    Ranks r{{.ranks = kByHeads}};
    Rank &f = r.follower();
    quire_fence *gate_ = nullptr;
};

// The steps before a load's log may still use its host blocks.
TEST_F(HeldRank, a_follower_fills_host_blocks_after_the_steps_before) {
    const Tokens prompt = rank_prompt(5, 4 * kSize + 1);
    r.compute(prompt);
    r.settle();
    r.evict_all();
    r.settle();
    const uint64_t before = f.stub->gets;
    hold();
    r.empty_step();
    apply_held();
    quire_seq seq = r.create();
    run_held(seq, prompt, QUIRE_ITEM_MAY_LOAD);
    ASSERT_EQ(r.results[0].outcome, uint32_t{QUIRE_ITEM_LOADING});
    for (uint32_t i = 0; i < 50; ++i) f.poll();
    EXPECT_EQ(f.stub->gets, before);
    EXPECT_TRUE(f.report().empty());
    release();
    f.sync();
    while (f.poll().loads_running != 0) {
    }
    EXPECT_GT(f.stub->gets, before);
    const Bytes report = f.report();
    ASSERT_FALSE(report.empty());
    EXPECT_EQ(r.api.cache_take_report(r.leader().cache, report.data(), report.size(), &r.error),
              QUIRE_OK);
    while (r.leader().poll().loads_running != 0) {
    }
    EXPECT_EQ(r.run(seq, prompt).hit_tokens, 4 * kSize);
    EXPECT_EQ(r.wrong_rows(), 0u);
    r.end(seq);
}

// A block is ordered to be written, and a later step gives it to another sequence while the copy
// waits for the steps before it.
TEST_F(HeldRank, a_block_that_was_taken_again_is_not_stored_under_its_old_name) {
    const Tokens prompt = rank_prompt(6, 4 * kSize);
    r.end(compute_held(prompt));
    quire_seq other = r.create();
    const Tokens more = rank_prompt(77, 32 * kSize);
    ASSERT_EQ(r.begin({{other, more, 0, 0}}), QUIRE_OK);
    ASSERT_EQ(r.results[0].outcome, uint32_t{QUIRE_ITEM_RUN});
    r.commit();
    r.finish();
    const Sent sent = f.logs.front();
    apply_held();
    // The new content is there before the copies begin.
    f.compute(0, sent.rows);
    release();
    f.sync();
    while (f.poll().blocks_queued != 0) {
    }
    EXPECT_EQ(f.stats().blocks_evicted, 4u);
    EXPECT_EQ(f.stats().blocks_written, 0u);
    r.end(other);
    r.settle();
    r.detach_all();
    uint64_t values = 0;
    EXPECT_EQ(r.wrong_values(&f, &values), 0u);
    EXPECT_GT(values, 0u);
}

// A sequence that finds the block reads it, and does not void the copy.
TEST_F(HeldRank, a_block_that_was_found_again_is_stored) {
    const Tokens prompt = rank_prompt(7, 4 * kSize + 1);
    r.end(compute_held(prompt));
    quire_seq again = r.create();
    ASSERT_EQ(r.begin({{again, prompt, 0, 0}}), QUIRE_OK);
    EXPECT_EQ(r.results[0].hit_tokens, 4 * kSize);
    r.commit();
    r.finish();
    apply_held();
    release();
    f.sync();
    while (f.poll().blocks_queued != 0) {
    }
    EXPECT_EQ(f.stats().blocks_written, 4u);
    EXPECT_EQ(f.stats().blocks_evicted, 0u);
    r.end(again);
    r.detach_all();
    uint64_t values = 0;
    EXPECT_EQ(r.wrong_values(&f, &values), 0u);
}

// Between two logs a sequence gives up a block that is published, and takes it again at the same
// place: its table is as it was, and the content is not.
TEST_F(HeldRank, a_table_that_looks_the_same_may_hold_something_else) {
    quire_seq a = compute_held(rank_prompt(8, 4 * kSize));
    r.truncate(a, 3 * kSize);
    // The rest of the pool is taken, so that the sequence gets its old block again.
    quire_seq rest = r.create();
    const Tokens filler = rank_prompt(88, 28 * kSize), other = rank_prompt(9, kSize);
    ASSERT_EQ(r.begin({{rest, filler, 0, 0}, {a, other, 0, 0}}), QUIRE_OK);
    ASSERT_EQ(r.results[1].outcome, uint32_t{QUIRE_ITEM_RUN});
    r.commit();
    r.finish();
    const Sent sent = f.logs.front();
    apply_held();
    f.compute(0, sent.rows);
    release();
    f.sync();
    while (f.poll().blocks_queued != 0) {
    }
    EXPECT_EQ(f.stats().blocks_written, 3u);
    EXPECT_EQ(f.stats().blocks_evicted, 1u);
    r.end(a);
    r.end(rest);
    r.settle();
    r.detach_all();
    uint64_t values = 0;
    EXPECT_EQ(r.wrong_values(&f, &values), 0u);
}

// A swapped sequence comes back into blocks that are to be written.
TEST_F(HeldRank, a_block_that_a_copy_fills_is_not_stored_under_its_old_name) {
    quire_seq swapped = r.create();
    const Tokens own = rank_prompt(31, 30 * kSize);
    ASSERT_EQ(r.run(swapped, own, 0).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(r.begin({}), QUIRE_OK);
    uint32_t freed = 0;
    ASSERT_EQ(
        r.api.step_preempt(r.leader().cache, r.step, swapped, QUIRE_PREEMPT_SWAP, &freed, &r.error),
        QUIRE_OK)
        << r.error.message;
    r.commit();
    r.finish();
    r.deliver_logs();
    r.evict_all();  // what was swapped out is cached on the device as well
    r.settle();
    const uint64_t before = f.stats().blocks_written;
    r.end(compute_held(rank_prompt(6, 4 * kSize)));
    ASSERT_EQ(r.begin({{swapped, {5}, 0, 0}}), QUIRE_OK);
    ASSERT_EQ(r.results[0].outcome, uint32_t{QUIRE_ITEM_RUN});
    r.commit();
    r.finish();
    apply_held();
    release();
    f.sync();
    while (f.poll().blocks_queued != 0) {
    }
    const uint64_t stored = f.stats().blocks_written - before;
    EXPECT_LT(stored, 4u);
    EXPECT_EQ(stored + f.stats().blocks_evicted, 4u);
    r.end(swapped);
    r.detach_all();
    uint64_t values = 0;
    EXPECT_EQ(r.wrong_values(&f, &values), 0u);
}

// An order to write may come before this rank has computed the block.
TEST_F(HeldRank, a_block_is_copied_after_the_steps_that_compute_it) {
    const Tokens prompt = rank_prompt(6, 4 * kSize);
    quire_seq seq = r.create();
    ASSERT_EQ(r.begin({{seq, prompt, 0, 0}}), QUIRE_OK);
    r.commit();
    r.finish();
    const Sent sent = f.logs.front();
    ASSERT_EQ(f.try_apply(sent.log), QUIRE_OK) << f.error.message;
    const quire_step computes = f.applied;
    while (r.leader().poll().blocks_queued != 0) {
    }
    r.empty_step();
    ASSERT_EQ(f.try_apply(f.logs.back().log), QUIRE_OK) << f.error.message;
    f.logs.clear();
    for (uint32_t i = 0; i < 50; ++i) {
        EXPECT_EQ(f.poll().blocks_queued, 4u);
        f.sync();
    }
    f.compute(computes, sent.rows);
    for (quire_step step : {computes, f.applied}) {
        ASSERT_EQ(r.api.step_finish(f.cache, step, nullptr, QUIRE_STEP_OK, &f.error), QUIRE_OK);
    }
    f.sync();
    while (f.poll().blocks_queued != 0) {
    }
    EXPECT_EQ(f.stats().blocks_written, 4u);
    r.end(seq);
    r.detach_all();
    uint64_t values = 0;
    EXPECT_EQ(r.wrong_values(&f, &values), 0u);
    EXPECT_EQ(values, 4u);
}

}  // namespace
