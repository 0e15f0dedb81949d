// SPDX-License-Identifier: Apache-2.0
//
// Fences: values that only grow, raised and awaited by hosts and queues.

#include <thread>

#include "subject.hpp"

namespace quire::conformance {

class FenceTest : public SubjectTest {
 protected:
    FenceTest() : SubjectTest(Needs::queues) {}
};

TEST_F(FenceTest, starts_at_its_first_value_and_grows) {
    Rig rig;
    Fence fence(rig, 41);
    EXPECT_EQ(fence.read(), 41u);
    fence.signal_host(42);
    EXPECT_EQ(fence.read(), 42u);
    fence.signal_host(uint64_t{1} << 63);
    EXPECT_EQ(fence.read(), uint64_t{1} << 63);
}

TEST_F(FenceTest, that_would_not_grow_is_refused_on_the_host) {
    Rig rig;
    Fence fence(rig, 10);
    for (uint64_t value : {0, 9, 10}) {
        Error error;
        expect_refused(api().fence_signal_host(fence.get(), value, &error), error, QUIRE_E_ARG);
        EXPECT_EQ(fence.read(), 10u);
    }
}

TEST_F(FenceTest, enqueued_signal_never_lowers) {
    Rig rig;
    Fence fence(rig, 10);
    rig.signal(rig.queue(), fence, 12);
    rig.signal(rig.queue(), fence, 11);
    rig.sync();
    EXPECT_EQ(fence.read(), 12u);
}

TEST_F(FenceTest, host_wait_ends_at_the_value_or_the_time) {
    Rig rig;
    Fence fence(rig, 3);
    EXPECT_EQ(fence.wait_host(0, 0), QUIRE_OK);
    EXPECT_EQ(fence.wait_host(3, 0), QUIRE_OK);
    EXPECT_EQ(fence.wait_host(4, 0), QUIRE_S_TIMEOUT);
    EXPECT_EQ(fence.wait_host(4, 20 * kMillisecond), QUIRE_S_TIMEOUT);
    EXPECT_EQ(fence.read(), 3u);
}

TEST_F(FenceTest, host_waits_are_woken_by_host_and_queue) {
    Rig rig;
    Fence by_host(rig);
    Fence by_queue(rig);
    std::thread host_waiter([&] { EXPECT_EQ(by_host.wait_host(7, UINT64_MAX), QUIRE_OK); });
    std::thread queue_waiter([&] { EXPECT_EQ(by_queue.wait_host(7, UINT64_MAX), QUIRE_OK); });
    rig.wait(rig.queue(), by_host, 9);
    rig.signal(rig.queue(), by_queue, 8);
    by_host.signal_host(6);
    by_host.signal_host(9);
    host_waiter.join();
    queue_waiter.join();
}

TEST_F(FenceTest, wait_for_a_value_already_passed_holds_nothing_up) {
    Rig rig;
    Fence fence(rig, 5);
    rig.wait(rig.queue(), fence, 0);
    rig.wait(rig.queue(), fence, 5);
    rig.sync();
}

TEST_F(FenceTest, failed_fence_ends_a_wait_and_says_so) {
    Rig rig;
    Fence fence(rig);
    fence.signal_host(kFenceFailed);
    EXPECT_EQ(fence.read(), kFenceFailed);
    Error error;
    expect_refused(api().fence_wait_host(fence.get(), 1, 0, &error), error, QUIRE_E_DEVICE_LOST);
}

// Whether work after such a wait runs or fails is up to the backend, but must not depend on timing.
TEST_F(FenceTest, queues_that_wait_for_a_failed_one_end_alike_whenever_it_failed) {
    Rig rig;
    quire_be_queue *early = rig.new_queue();
    quire_be_queue *late = rig.new_queue();
    Fence failing(rig);
    Fence behind_early(rig);
    Fence behind_late(rig);
    rig.wait(early, failing, 1);
    rig.signal(early, behind_early, 1);
    failing.signal_host(kFenceFailed);
    rig.wait(late, failing, 1);
    rig.signal(late, behind_late, 1);
    EXPECT_EQ(behind_early.wait_host(1), behind_late.wait_host(1));
    EXPECT_EQ(behind_early.read(), behind_late.read());
}

TEST_F(FenceTest, may_be_destroyed_while_a_queue_still_holds_it) {
    Rig rig;
    Fence go(rig);
    Error error;
    quire_be_fence *fence = nullptr;
    must(api().fence_create(rig.device(), 0, &fence, &error), error);
    rig.wait(rig.queue(), go, 1);
    must(api().fence_signal(rig.queue(), fence, 1, &error), error);
    must(api().fence_wait(rig.queue(), fence, 1, &error), error);
    api().fence_destroy(fence);
    go.signal_host(1);
    rig.sync();
}

TEST_F(FenceTest, null_pointers_are_refused) {
    Rig rig;
    Fence fence(rig);
    Error error;
    uint64_t value = 0;
    quire_be_fence *made = nullptr;
    expect_refused(api().fence_create(nullptr, 0, &made, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_create(rig.device(), 0, nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_read(nullptr, &value, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_read(fence.get(), nullptr, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_signal_host(nullptr, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_wait_host(nullptr, 1, 0, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_signal(rig.queue(), nullptr, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_signal(nullptr, fence.get(), 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_wait(rig.queue(), nullptr, 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_wait(nullptr, fence.get(), 1, &error), error, QUIRE_E_ARG);
}

TEST_F(FenceTest, of_another_device_is_refused_on_a_queue) {
    Rig rig;
    Rig other;
    Fence fence(other);
    Error error;
    expect_refused(api().fence_wait(rig.queue(), fence.get(), 1, &error), error, QUIRE_E_ARG);
    expect_refused(api().fence_signal(rig.queue(), fence.get(), 1, &error), error, QUIRE_E_ARG);
}

}  // namespace quire::conformance
