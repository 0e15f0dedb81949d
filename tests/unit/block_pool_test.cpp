// SPDX-License-Identifier: Apache-2.0
//
// block_pool by itself: its states, their order, fences, and proof that its assertions and its
// check can fire.

#include "core/blocks/block_pool.hpp"

#include <gtest/gtest.h>

#include "host.hpp"

namespace {

using namespace quire;

struct Pool {
    Timeline timeline;
    BlockPool blocks{test::host(), &timeline};

    explicit Pool(uint32_t usable) { EXPECT_TRUE(blocks.create(usable + 1, false)); }
    ~Pool() { EXPECT_TRUE(blocks.check().ok()) << blocks.check().text; }
};

TEST(BlockPool, every_block_is_handed_out_once_and_the_null_block_never) {
    Pool p(5);
    for (uint32_t i = 1; i <= 5; ++i) EXPECT_EQ(p.blocks.take_free(kNoBarrier), i);
    EXPECT_EQ(p.blocks.take_free(kNoBarrier), kNone);
    EXPECT_EQ(p.blocks.held_count(), 5u);
}

TEST(BlockPool, draining_block_is_not_handed_out) {
    Pool p(1);
    p.timeline.commit(1);  // step 1 on queue 1
    uint32_t block = p.blocks.take_free(p.timeline.barrier(1));
    p.blocks.drop_ref(block, 1);
    EXPECT_EQ(p.blocks[block].state, BlockState::draining);
    uint64_t other = p.timeline.barrier(2);
    EXPECT_EQ(p.blocks.available(other), 0u);
    EXPECT_EQ(p.blocks.take_free(other), kNone);
    uint64_t same = p.timeline.barrier(1);
    EXPECT_EQ(p.blocks.available(same), 1u);
    EXPECT_EQ(p.blocks.take_free(same), block);
    p.blocks.drop_ref(block, 1);
    p.timeline.complete(1);
    p.blocks.retire(1);
    EXPECT_EQ(p.blocks[block].state, BlockState::free);
    EXPECT_EQ(p.blocks.take_free(p.timeline.barrier(2)), block);
}

TEST(BlockPool, blocks_drain_in_the_order_of_their_steps_though_steps_end_in_another) {
    Pool p(2);
    p.timeline.commit(1);
    p.timeline.commit(2);
    uint32_t first = p.blocks.take_free(kNoBarrier), second = p.blocks.take_free(kNoBarrier);
    p.blocks.drop_ref(first, 1);
    p.blocks.drop_ref(second, 2);
    p.timeline.complete(2);  // not done until step 1 is
    p.blocks.retire(1);
    EXPECT_EQ(p.blocks[second].state, BlockState::draining);
    p.timeline.complete(1);
    p.blocks.retire(1);
    EXPECT_EQ(p.blocks[first].state, BlockState::free);
    EXPECT_EQ(p.blocks[second].state, BlockState::free);
}

TEST(BlockPool, a_published_block_is_cached_when_its_last_reference_goes) {
    Pool p(3);
    uint32_t a = p.blocks.take_free(kNoBarrier), b = p.blocks.take_free(kNoBarrier);
    p.blocks[a].node = 7;
    p.blocks[b].node = 8;
    p.blocks.add_ref(a);
    p.blocks.drop_ref(a, 0);
    EXPECT_EQ(p.blocks.cached_count(), 0u);
    p.blocks.drop_ref(b, 0);
    p.blocks.drop_ref(a, 0);
    EXPECT_EQ(p.blocks.cached_count(), 2u);
    EXPECT_EQ(p.blocks.oldest_cached(kNoBarrier), b) << "by last release";
    p.blocks.add_ref(b);
    EXPECT_EQ(p.blocks.oldest_cached(kNoBarrier), a);
    p.blocks.drop_ref(b, 0);
    EXPECT_EQ(p.blocks.oldest_cached(kNoBarrier), a) << "b was used since";
}

TEST(BlockPool, an_undone_drop_is_as_if_it_had_not_been_but_for_what_running_work_needs) {
    Pool p(2);
    uint32_t a = p.blocks.take_free(kNoBarrier);
    p.blocks[a].node = 7;
    uint64_t stamp = p.blocks[a].stamp, touch = p.blocks[a].touch;
    p.blocks.drop_ref(a, 0);
    p.blocks.undo_drop_ref(a, stamp);
    EXPECT_EQ(p.blocks[a].state, BlockState::held);
    EXPECT_EQ(p.blocks[a].refs, 1u);
    EXPECT_EQ(p.blocks[a].touch, touch);
    p.blocks.drop_ref(a, 1);
    p.blocks.undo_drop_ref(a, stamp);
    EXPECT_EQ(p.blocks[a].touch, 1u);
    p.blocks[a].node = kNone;
}

TEST(BlockPool, a_touch_that_is_raised_moves_the_block_to_where_it_waits) {
    Pool p(4);
    p.timeline.commit(2);
    p.timeline.complete(1);
    uint32_t held = p.blocks.take_free(kNoBarrier), cached = p.blocks.take_free(kNoBarrier),
             unused = p.blocks.take_free(kNoBarrier);
    p.blocks[cached].node = 7;
    p.blocks.drop_ref(cached, 0);
    p.blocks.drop_ref(unused, 0);
    uint64_t step = p.timeline.next();
    for (uint32_t block : {held, cached, unused}) p.blocks.raise_touch(block, step);
    p.timeline.commit(1);
    EXPECT_EQ(p.blocks[unused].state, BlockState::draining);
    EXPECT_TRUE(p.blocks.check().ok());
    EXPECT_EQ(p.blocks.available(step), p.blocks.available(kNoBarrier) - 2);
    for (uint32_t block : {held, cached, unused}) p.blocks.raise_touch(block, 0);
    EXPECT_EQ(p.blocks[held].touch, step);
    p.timeline.complete(step);
    p.blocks.retire(step);
    EXPECT_EQ(p.blocks[unused].state, BlockState::free);
}

TEST(BlockPool, an_undone_claim_goes_back_to_its_place_by_age) {
    Pool p(4);
    uint32_t blocks[3];
    for (uint32_t &block : blocks) {
        block = p.blocks.take_free(kNoBarrier);
        p.blocks[block].node = block;
    }
    for (uint32_t block : blocks) p.blocks.drop_ref(block, 0);
    for (uint32_t block : blocks) {
        uint32_t hint = p.blocks.next_in_list(block);
        p.blocks.claim(block);
        p.blocks.undo_claim(block, hint);
        EXPECT_TRUE(p.blocks.check().ok());
        p.blocks.claim(block);
        p.blocks.undo_claim(block, 4);  // a wrong hint costs only time
        EXPECT_TRUE(p.blocks.check().ok());
    }
    EXPECT_EQ(p.blocks.oldest_cached(kNoBarrier), blocks[0]);
}

struct Fired {
    const char *expression;
};

[[noreturn]] void throw_fired(const char *expression, const char *, int) {
    throw Fired{expression};
}

TEST(Assertion, a_broken_invariant_reaches_the_hook) {
    Pool p(2);
    AssertionHook before = set_assertion_hook(throw_fired);
    uint32_t block = p.blocks.take_free(kNoBarrier);
    p.blocks.drop_ref(block, 0);
    EXPECT_THROW(p.blocks.drop_ref(block, 0), Fired) << "one reference too many";
    EXPECT_THROW(p.blocks.add_ref(block), Fired) << "a reference to a free block";
    EXPECT_THROW(QUIRE_ASSERT(1 + 1 == 3), Fired);
    set_assertion_hook(before);
}

TEST(AssertionDeathTest, without_a_hook_it_names_the_place_and_stops) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(QUIRE_ASSERT(1 + 1 == 3), "broken invariant: 1 \\+ 1 == 3 .*block_pool_test");
}

TEST(BlockPool, its_check_sees_what_is_broken) {
    auto sees = [](auto damage) {
        Timeline timeline;
        BlockPool blocks(test::host(), &timeline);
        ASSERT_TRUE(blocks.create(6, false));
        uint32_t held = blocks.take_free(kNoBarrier), cached = blocks.take_free(kNoBarrier);
        blocks[cached].node = 7;
        blocks.drop_ref(cached, 0);
        ASSERT_TRUE(blocks.check().ok());
        damage(&blocks, held, cached);
        EXPECT_EQ(blocks.check().code, QUIRE_E_INTERNAL);
    };
    using B = BlockPool *;
    sees([](B b, uint32_t held, uint32_t) { (*b)[held].refs = 0; });
    sees([](B b, uint32_t held, uint32_t) { (*b)[held].state = BlockState::free; });
    sees([](B b, uint32_t, uint32_t cached) { (*b)[cached].node = kNone; });
    sees([](B b, uint32_t, uint32_t cached) { (*b)[cached].refs = 1; });
    sees([](B b, uint32_t, uint32_t) { b->link(4).next = 4; });
    sees([](B b, uint32_t, uint32_t) { b->link(4).prev = 1; });
    sees([](B b, uint32_t, uint32_t cached) { (*b)[cached].touch = 99; });
}

}  // namespace
