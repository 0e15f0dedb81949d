// SPDX-License-Identifier: Apache-2.0
//
// Waits of queues on a device with few hardware queues, where a stream that waits holds up others:
// whatever the order of the calls, nothing waits forever. Also what remains of a queue that failed
// or could not be created.

#include <atomic>
#include <chrono>
#include <thread>

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class Waits : public Driver {
 protected:
    static constexpr uint32_t kQueues = 9;  // more than twice the number of hardware queues

    void SetUp() override {
        Driver::SetUp();
        rig_.emplace(api());
        ASSERT_EQ(rig_->open(), QUIRE_OK) << rig_->error.message;
    }
    void TearDown() override {
        for (quire_be_queue *queue : queues_) api().queue_release(queue);
        for (quire_be_fence *fence : fences_) api().fence_destroy(fence);
        if (large_ != 0) api().mem_free(rig_->device, large_, kLarge, QUIRE_BE_MEMORY_DEVICE);
        rig_.reset();
        Driver::TearDown();
    }

    quire_be_queue *new_queue() {
        quire_be_queue *queue = nullptr;
        EXPECT_EQ(api().queue_bind(rig_->device, nullptr, &queue, &rig_->error), QUIRE_OK)
            << rig_->error.message;
        queues_.push_back(queue);
        return queue;
    }
    quire_be_fence *new_fence() {
        quire_be_fence *fence = nullptr;
        EXPECT_EQ(api().fence_create(rig_->device, 0, &fence, &rig_->error), QUIRE_OK)
            << rig_->error.message;
        fences_.push_back(fence);
        return fence;
    }
    void wait(quire_be_queue *queue, quire_be_fence *fence, uint64_t value = 1) {
        ASSERT_EQ(api().fence_wait(queue, fence, value, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }
    void signal(quire_be_queue *queue, quire_be_fence *fence, uint64_t value = 1) {
        ASSERT_EQ(api().fence_signal(queue, fence, value, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }
    void signal_host(quire_be_fence *fence, uint64_t value = 1) {
        ASSERT_EQ(api().fence_signal_host(fence, value, &rig_->error), QUIRE_OK)
            << rig_->error.message;
    }
    quire_status wait_host(quire_be_fence *fence, uint64_t value = 1) {
        return api().fence_wait_host(fence, value, kPatience, &rig_->error);
    }
    uint64_t read(quire_be_fence *fence) {
        uint64_t value = 0;
        EXPECT_EQ(api().fence_read(fence, &value, &rig_->error), QUIRE_OK);
        return value;
    }
    // Keeps the queue's stream busy for a while.
    void work_long(quire_be_queue *queue) {
        void *pointer = nullptr;
        if (large_ == 0) {
            ASSERT_EQ(api().mem_alloc(rig_->device, kLarge, QUIRE_BE_MEMORY_DEVICE, &large_,
                                      &pointer, &rig_->error),
                      QUIRE_OK)
                << rig_->error.message;
        }
        ASSERT_EQ(test::fill_range(api(), queue, large_, kLarge, 0x5A, &rig_->error), QUIRE_OK);
    }
    void fail_queue(quire_be_queue *queue) {
        quire_be_fence *failed = new_fence();
        signal_host(failed, UINT64_MAX);
        wait(queue, failed);
    }

    static constexpr uint64_t kLarge = 256 << 20;
    std::optional<Rig> rig_;
    std::vector<quire_be_queue *> queues_;
    std::vector<quire_be_fence *> fences_;
    uint64_t large_ = 0;
};

TEST_P(Waits, for_the_host_end_when_it_signals) {
    quire_be_fence *go = new_fence(), *done = new_fence();
    for (uint32_t i = 0; i < kQueues; ++i) wait(new_queue(), go);
    signal(queues_.back(), done);
    EXPECT_EQ(rig_->step(), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(rig_->sync(), QUIRE_OK) << "another queue was held up";
    work_long(rig_->queue);  // memory can be allocated meanwhile
    signal_host(go);
    EXPECT_EQ(wait_host(done), QUIRE_OK);
}

TEST_P(Waits, for_queues_that_signal_later_end) {
    std::vector<quire_be_fence *> baton;
    for (uint32_t i = 0; i <= kQueues; ++i) baton.push_back(new_fence());
    for (uint32_t i = 0; i < kQueues; ++i) {
        wait(new_queue(), baton[i + 1]);
        signal(queues_[i], baton[i]);
    }
    EXPECT_EQ(read(baton[0]), 0u);
    signal_host(baton[kQueues]);
    EXPECT_EQ(wait_host(baton[0]), QUIRE_OK);
}

// Whoever learns that a step failed may use its memory again.
TEST_P(Waits, for_a_queue_that_failed_end_after_its_earlier_work) {
    quire_be_queue *queue = new_queue();
    quire_be_fence *done = new_fence();
    work_long(queue);
    fail_queue(queue);
    signal(queue, done);
    EXPECT_EQ(wait_host(done), QUIRE_E_DEVICE_LOST);
    quire_be_queue *other = new_queue();
    quire_be_fence *copied = new_fence();
    rig_->host[0] = 0;
    quire_be_copy copy = {rig_->host_address, large_ + kLarge - 1, 1, QUIRE_BE_COPY_D2H, 0};
    ASSERT_EQ(api().copy(other, &copy, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
    signal(other, copied);
    EXPECT_EQ(wait_host(copied), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(rig_->host[0], 0x5A);
}

// The same where a queue drops what it held.
TEST_P(Waits, for_work_that_was_dropped_end_after_earlier_work) {
    quire_be_queue *queue = new_queue();
    quire_be_fence *go = new_fence(), *done = new_fence();
    work_long(queue);
    wait(queue, go);
    signal(queue, done);
    signal_host(go, UINT64_MAX);
    EXPECT_EQ(wait_host(done), QUIRE_E_DEVICE_LOST);
    quire_be_queue *other = new_queue();
    quire_be_fence *copied = new_fence();
    rig_->host[0] = 0;
    quire_be_copy copy = {rig_->host_address, large_ + kLarge - 1, 1, QUIRE_BE_COPY_D2H, 0};
    ASSERT_EQ(api().copy(other, &copy, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
    signal(other, copied);
    EXPECT_EQ(wait_host(copied), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(rig_->host[0], 0x5A);
}

TEST_P(Waits, end_when_the_device_is_closed) {
    quire_be_fence *never = new_fence(), *done = new_fence();
    for (uint32_t i = 0; i < kQueues; ++i) wait(new_queue(), never);
    signal(queues_.back(), done);
    for (quire_be_queue *queue : queues_) api().queue_release(queue);
    queues_.clear();
    rig_.reset();
    uint64_t value = 0;
    Error error;
    EXPECT_EQ(api().fence_read(done, &value, &error), QUIRE_OK);
    EXPECT_EQ(value, UINT64_MAX);
}

TEST_P(Waits, for_a_queue_that_has_failed_end_and_fail) {
    quire_be_queue *failing = new_queue(), *waiting = new_queue();
    quire_be_fence *never_run = new_fence(), *behind = new_fence();
    fail_queue(failing);
    wait(waiting, never_run, 5);
    signal(waiting, behind);
    signal(failing, never_run, 5);
    EXPECT_EQ(wait_host(never_run, 5), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(wait_host(behind), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(test::fill_range(api(), waiting, rig_->address, 16, 0, &rig_->error),
              QUIRE_E_DEVICE_LOST);
    EXPECT_TRUE(has(rig_->error, "the queue waited for failed")) << rig_->error.message;
}

// A driver's launch waits while its queue of launches is full, which other threads need not notice.
TEST_P(Waits, of_a_launch_stop_no_thread_that_reads_fences) {
    quire_be_fence *passed = new_fence(), *running = new_fence(), *blocked = new_fence();
    quire_be_queue *queue = new_queue(), *busy = new_queue();
    signal(queue, passed);
    ASSERT_EQ(wait_host(passed), QUIRE_OK);
    work_long(busy);
    signal(busy, running);
    hold(vendor().launch);
    std::thread launching([&] { signal(queue, blocked); });
    auto comes = [&](auto is_there) {
        auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(kPatience);
        while (!is_there() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        return is_there();
    };
    EXPECT_TRUE(comes([&] { return held_calls() == 1; }));
    std::atomic<bool> has_read{false};
    std::thread reading([&] {
        EXPECT_EQ(read(passed), 1u);
        EXPECT_EQ(wait_host(running), QUIRE_OK);
        EXPECT_EQ(read(running), 1u);
        EXPECT_EQ(read(blocked), 0u);
        Error error;
        EXPECT_EQ(api().fence_wait_host(blocked, 1, 1'000'000, &error), QUIRE_S_TIMEOUT);
        has_read = true;
    });
    EXPECT_TRUE(comes([&] { return has_read.load(); })) << "the reader waits for the launch";
    EXPECT_EQ(held_calls(), 1u);
    hold(nullptr);
    launching.join();
    reading.join();
    EXPECT_EQ(wait_host(blocked), QUIRE_OK);
}

// The stream itself waits, and the host fails the fence before the other stream raises it.
TEST_P(Waits, of_streams_for_a_fence_that_the_host_fails_fail) {
    quire_be_queue *signalling = new_queue(), *waiting = new_queue();
    quire_be_fence *fence = new_fence(), *behind = new_fence();
    work_long(signalling);
    signal(signalling, fence, 5);
    wait(waiting, fence, 5);
    signal(waiting, behind);
    signal_host(fence, UINT64_MAX);
    EXPECT_EQ(wait_host(behind), QUIRE_E_DEVICE_LOST);
}

TEST_P(Waits, whose_second_half_is_refused_keep_no_memory) {
    quire_be_queue *signalling = new_queue(), *waiting = new_queue();
    quire_be_fence *fence = new_fence(), *done = new_fence();
    work_long(signalling);
    signal(signalling, fence);
    fail(vendor().launch, 1, kOutOfMemory);
    EXPECT_EQ(api().fence_wait(waiting, fence, 1, &rig_->error), QUIRE_E_DEVICE_LOST);
    signal(signalling, done, 2);
    EXPECT_EQ(wait_host(done, 2), QUIRE_OK);
    EXPECT_EQ(api().quiesce(rig_->device, kPatience, &rig_->error), QUIRE_OK);
    uint64_t before = live_in_driver(), address = 0;
    void *pointer = nullptr;
    for (int i = 0; i < 4; ++i) {
        ASSERT_EQ(api().mem_alloc(rig_->device, 4096, QUIRE_BE_MEMORY_DEVICE, &address, &pointer,
                                  &rig_->error),
                  QUIRE_OK);
        api().mem_free(rig_->device, address, 4096, QUIRE_BE_MEMORY_DEVICE);
    }
    EXPECT_EQ(live_in_driver(), before);
}

TEST_P(Waits, that_are_held_hold_what_is_enqueued_behind_them) {
    quire_be_queue *queue = new_queue();
    quire_be_fence *go = new_fence(), *done = new_fence();
    wait(queue, go);
    uint64_t fills = calls(vendor().fill), launches = calls(vendor().launch);
    for (uint32_t i = 0; i < 100; ++i) {
        ASSERT_EQ(test::fill_range(api(), queue, rig_->address + i, 1, i, &rig_->error), QUIRE_OK);
        quire_be_copy copy = {rig_->address + 128 + i, rig_->address + i, 1, QUIRE_BE_COPY_D2D, 0};
        ASSERT_EQ(api().copy(queue, &copy, 1, &rig_->error), QUIRE_OK);
    }
    signal(queue, done);
    EXPECT_EQ(calls(vendor().fill), fills);
    EXPECT_EQ(calls(vendor().launch), launches);
    signal_host(go);
    EXPECT_EQ(calls(vendor().fill), fills + 100);
    EXPECT_EQ(calls(vendor().launch), launches + 101);
    quire_be_copy back = {rig_->host_address, rig_->address + 128, 100, QUIRE_BE_COPY_D2H, 0};
    ASSERT_EQ(api().copy(queue, &back, 1, &rig_->error), QUIRE_OK);
    signal(queue, done, 2);
    ASSERT_EQ(wait_host(done, 2), QUIRE_OK);
    for (uint32_t i = 0; i < 100; ++i) ASSERT_EQ(rig_->host[i], i);
}

// Held work is refused when it reaches the stream; then only its fences can report that.
TEST_P(Waits, that_are_held_and_then_refused_fail_what_is_behind) {
    quire_be_queue *queue = new_queue();
    quire_be_fence *go = new_fence(), *done = new_fence();
    wait(queue, go);
    ASSERT_EQ(test::fill_range(api(), queue, rig_->address, 16, 1, &rig_->error), QUIRE_OK);
    signal(queue, done);
    fail(vendor().fill, 1, kOutOfMemory);
    signal_host(go);
    EXPECT_EQ(wait_host(done), QUIRE_E_DEVICE_LOST);
    EXPECT_EQ(read(done), UINT64_MAX);
    EXPECT_EQ(rig_->step(), QUIRE_OK) << "another queue failed";
    EXPECT_EQ(rig_->sync(), QUIRE_OK);
}

// More signals than a fence or a queue remembers.
TEST_P(Waits, for_early_values_end_after_many_signals) {
    constexpr uint64_t kSignals = 40;
    quire_be_queue *signalling = new_queue();
    quire_be_fence *fence = new_fence(), *done = new_fence();
    work_long(signalling);
    for (uint64_t value = 1; value <= kSignals; ++value) signal(signalling, fence, value);
    for (uint64_t value = 1; value <= kSignals; ++value) {
        quire_be_queue *waiting = new_queue();
        wait(waiting, fence, value);
        rig_->host[value] = 0;
        quire_be_copy copy = {rig_->host_address + value, large_ + kLarge - 1, 1, QUIRE_BE_COPY_D2H,
                              0};
        ASSERT_EQ(api().copy(waiting, &copy, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
        signal(waiting, done, value);
        ASSERT_EQ(wait_host(done, value), QUIRE_OK);
        EXPECT_EQ(rig_->host[value], 0x5A) << "the stream did not wait for " << value;
    }
}

TEST_P(Waits, for_a_signal_that_streams_cannot_wait_for_end_by_the_host) {
    quire_be_queue *signalling = new_queue(), *waiting = new_queue();
    quire_be_fence *fence = new_fence(), *behind = new_fence();
    work_long(signalling);
    fail(vendor().record, 1, kOutOfMemory);
    signal(signalling, fence);
    wait(waiting, fence);
    signal(waiting, behind);
    EXPECT_EQ(wait_host(behind), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(read(fence), 1u);
}

TEST_P(Waits, of_streams_may_be_for_any_value) {
    constexpr uint64_t kHigh = UINT64_MAX - 1;
    quire_be_queue *signalling = new_queue(), *waiting = new_queue();
    quire_be_fence *fence = new_fence(), *behind = new_fence();
    work_long(signalling);
    signal(signalling, fence, kHigh);
    wait(waiting, fence, kHigh);
    signal(waiting, behind);
    EXPECT_EQ(wait_host(behind), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(read(fence), kHigh);
}

TEST_P(Waits, between_host_memories_no_driver_copies) {
    constexpr uint64_t kBytes = 1 << 20;
    uint64_t address = 0;
    void *pointer = nullptr;
    ASSERT_EQ(api().mem_alloc(rig_->device, 2 * kBytes, QUIRE_BE_MEMORY_HOST, &address, &pointer,
                              &rig_->error),
              QUIRE_OK);
    auto *bytes = static_cast<unsigned char *>(pointer);
    std::memset(bytes, 7, kBytes);
    uint64_t before = calls(vendor().copy);
    work_long(rig_->queue);
    quire_be_copy copy = {address + kBytes, address, kBytes, QUIRE_BE_COPY_H2H, 0};
    EXPECT_EQ(api().copy(rig_->queue, &copy, 1, &rig_->error), QUIRE_OK);
    EXPECT_EQ(calls(vendor().copy), before) << "CUDA's copy of these waits for the stream";
    signal(rig_->queue, rig_->fence);
    EXPECT_EQ(wait_host(rig_->fence), QUIRE_OK);
    EXPECT_EQ(bytes[2 * kBytes - 1], 7);
    api().mem_free(rig_->device, address, 2 * kBytes, QUIRE_BE_MEMORY_HOST);
}

TEST_P(Waits, queue_that_could_not_be_had_leaves_a_sound_device) {
    quire_be_queue *queue = nullptr;
    fail(vendor().fill, 1, kOutOfMemory);
    EXPECT_EQ(api().queue_bind(rig_->device, nullptr, &queue, &rig_->error), QUIRE_E_DEVICE_MEMORY);
    for (int i = 0; i < 2; ++i) signal(new_queue(), new_fence());
    for (quire_be_fence *fence : fences_) EXPECT_EQ(wait_host(fence), QUIRE_OK);
}

TEST_P(Waits, queue_whose_signal_was_refused_is_given_again) {
    quire_be_queue *queue = nullptr;
    ASSERT_EQ(api().queue_bind(rig_->device, nullptr, &queue, &rig_->error), QUIRE_OK);
    fail(vendor().launch, 1, kOutOfMemory);
    EXPECT_EQ(api().fence_signal(queue, rig_->fence, 1, &rig_->error), QUIRE_E_DEVICE_MEMORY);
    api().queue_release(queue);
    uint64_t before = live_in_driver();
    for (int i = 0; i < 3; ++i) {
        ASSERT_EQ(api().quiesce(rig_->device, kPatience, &rig_->error), QUIRE_OK);
        ASSERT_EQ(api().queue_bind(rig_->device, nullptr, &queue, &rig_->error), QUIRE_OK);
        api().queue_release(queue);
    }
    EXPECT_EQ(live_in_driver(), before) << "a stream was made";
}

INSTANTIATE_TEST_SUITE_P(Vendors, Waits, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
