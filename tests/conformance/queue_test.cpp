// SPDX-License-Identifier: Apache-2.0
//
// Queues: work runs asynchronously and in order, and queues do not wait for each other.
//
// A test holds a queue by making it wait for a fence that the test has not signalled. A call that
// returns while the queue is held has not waited for the work.

#include <algorithm>
#include <chrono>
#include <thread>

#include "attention_case.hpp"
#include "number.hpp"
#include "shapes.hpp"
#include "subject.hpp"

namespace quire::conformance {

class QueueTest : public SubjectTest {};

namespace {

constexpr uint64_t kMoment = 30 * kMillisecond;  // enough for work to run, unless it is held

bool all_are(const std::vector<unsigned char> &bytes, unsigned char value) {
    return std::all_of(bytes.begin(), bytes.end(), [=](auto byte) { return byte == value; });
}

}  // namespace

TEST_F(QueueTest, held_queue_runs_nothing_and_holds_up_nobody) {
    Rig rig;
    quire_be_queue *other = rig.new_queue();
    Memory memory(rig, 4096);
    Fence go(rig);
    Fence done(rig);
    rig.wait(rig.queue(), go, 1);
    for (int i = 0; i < 1000; ++i) rig.fill(rig.queue(), memory.address(), 4096, 7);
    rig.signal(rig.queue(), done, 5);
    EXPECT_EQ(done.wait_host(5, kMoment), QUIRE_S_TIMEOUT);
    EXPECT_EQ(done.read(), 0u);
    EXPECT_TRUE(all_are(rig.read_through(other, memory.address(), 4096), 0));

    go.signal_host(1);
    EXPECT_EQ(done.wait_host(5), QUIRE_OK);
    EXPECT_TRUE(all_are(rig.read_through(other, memory.address(), 4096), 7));
}

TEST_F(QueueTest, work_runs_in_the_order_of_the_calls) {
    Rig rig;
    constexpr uint32_t kCells = 16;
    constexpr uint64_t kCellBytes = 64;
    Memory memory(rig, kCells * kCellBytes);
    unsigned char model[kCells] = {};
    Dice dice(1);
    for (int i = 0; i < 5000; ++i) {
        uint32_t to = dice.roll(0, kCells - 1);
        uint32_t from = dice.roll(0, kCells - 1);
        uint32_t byte = dice.roll(0, 255);
        if (to == from) {
            rig.fill(rig.queue(), memory.address() + to * kCellBytes, kCellBytes, byte);
            model[to] = static_cast<unsigned char>(byte);
        } else {
            rig.copy(rig.queue(), memory.address() + to * kCellBytes,
                     memory.address() + from * kCellBytes, kCellBytes);
            model[to] = model[from];
        }
    }
    auto bytes = rig.read(memory.address(), memory.size_bytes());
    for (uint64_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], model[i / kCellBytes]) << i;
}

TEST_F(QueueTest, copy_behind_a_wait_runs_after_it_and_after_what_was_before) {
    Rig rig;
    quire_be_queue *other = rig.new_queue();
    Memory memory(rig, 4096);
    Fence go(rig);
    rig.wait(rig.queue(), go, 1);
    rig.fill(rig.queue(), memory.address(), 1024, 1);
    rig.copy(rig.queue(), memory.address() + 1024, memory.address(), 1024);
    rig.fill(rig.queue(), memory.address(), 1024, 2);
    rig.copy(rig.queue(), memory.address() + 2048, memory.address(), 1024);
    EXPECT_TRUE(all_are(rig.read_through(other, memory.address(), 4096), 0)) << "ran too soon";
    go.signal_host(1);
    auto bytes = rig.read(memory.address(), 4096);
    EXPECT_EQ(bytes[0], 2);
    EXPECT_EQ(bytes[1024], 1);
    EXPECT_EQ(bytes[2048], 2);
}

TEST_F(QueueTest, kv_write_behind_a_wait_runs_after_it) {
    if (const char *function = missing_function(Needs::kv_write))
        GTEST_SKIP() << function << " is NULL";
    Rig rig;
    quire_be_queue *other = rig.new_queue();
    quire_be_pool pool = make_pool(plain_shape(rig), Layout::head_major, 1, 2, 0);
    Memory memory(rig, pool.size_bytes);
    Memory given(rig, 1 << 16);
    pool.address = memory.address();
    rig.fill(rig.queue(), given.address(), given.size_bytes(), 0x3C);
    int64_t slot = 0;
    rig.write(given.address() + 4096, &slot, sizeof slot);
    int64_t stride = int64_t{pool.kv_heads} * pool.k_head_dim;
    Fence go(rig);
    rig.wait(rig.queue(), go, 1);
    quire_be_kv_write args = {sizeof args,
                              0,
                              1,
                              QUIRE_DTYPE_F32,
                              &pool,
                              given.address(),
                              given.address(),
                              given.address() + 4096,
                              stride,
                              stride,
                              nullptr,
                              0,
                              0,
                              0};
    Error error;
    must(api().kv_write(rig.queue(), &args, &error), error);
    EXPECT_TRUE(all_are(rig.read_through(other, memory.address(), 64), 0)) << "ran too soon";
    go.signal_host(1);
    EXPECT_FALSE(all_are(rig.read(memory.address(), 64), 0)) << "did not run";
}

TEST_F(QueueTest, queue_waits_for_the_fence_of_another) {
    Rig rig;
    quire_be_queue *second = rig.new_queue();
    Memory memory(rig, 4096);
    Fence go(rig);
    Fence baton(rig);
    rig.wait(second, baton, 2);
    rig.copy(second, memory.address() + 2048, memory.address(), 2048);
    rig.wait(rig.queue(), go, 1);
    rig.fill(rig.queue(), memory.address(), 2048, 3);
    rig.signal(rig.queue(), baton, 1);
    rig.fill(rig.queue(), memory.address(), 2048, 4);
    rig.signal(rig.queue(), baton, 2);
    go.signal_host(1);
    EXPECT_TRUE(all_are(rig.read_through(second, memory.address() + 2048, 2048), 4));
}

TEST_F(QueueTest, descriptors_may_be_reused_when_the_call_returns) {
    Rig rig;
    constexpr uint32_t kCount = 1000;
    Memory memory(rig, 2 * kCount * 8);
    std::vector<uint64_t> values(kCount);
    for (uint32_t i = 0; i < kCount; ++i) values[i] = mix(i);
    rig.write(memory.address(), values.data(), kCount * 8);
    Fence go(rig);
    rig.wait(rig.queue(), go, 1);
    rig.fill(rig.queue(), memory.address() + kCount * 8, kCount * 8, 0xFF);  // runs before them
    std::vector<quire_be_copy> copies(kCount);
    for (uint32_t i = 0; i < kCount; ++i) {
        copies[i] = {memory.address() + (2 * kCount - 1 - i) * 8, memory.address() + i * 8, 8,
                     QUIRE_BE_COPY_D2D, 0};
    }
    Error error;
    must(api().copy(rig.queue(), copies.data(), kCount, &error), error);
    std::fill(copies.begin(), copies.end(), quire_be_copy{1, 1, UINT64_MAX, 99, 99});
    go.signal_host(1);
    auto bytes = rig.read(memory.address() + kCount * 8, kCount * 8);
    std::reverse(values.begin(), values.end());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(),
                           reinterpret_cast<const unsigned char *>(values.data())));
}

TEST_F(QueueTest, quiesce_waits_for_every_queue_or_for_the_time) {
    Rig rig;
    quire_be_queue *other = rig.new_queue();
    constexpr uint64_t kSize = 16 << 20;
    Memory memory(rig, kSize);
    Fence go(rig);
    Error error;
    EXPECT_EQ(api().quiesce(rig.device(), patience_ns(), &error), QUIRE_OK);
    rig.wait(other, go, 1);
    rig.fill(other, memory.address(), kSize, 9);
    EXPECT_EQ(api().quiesce(rig.device(), kMoment, &error), QUIRE_S_TIMEOUT);
    EXPECT_EQ(api().quiesce(rig.device(), 0, &error), QUIRE_S_TIMEOUT);
    // By now it sleeps; the end of work that signals nothing must wake it.
    std::thread later([&go] {
        std::this_thread::sleep_for(std::chrono::nanoseconds(kMoment));
        go.signal_host(1);
    });
    EXPECT_EQ(api().quiesce(rig.device(), patience_ns(), &error), QUIRE_OK);
    later.join();
    EXPECT_TRUE(all_are(rig.read(memory.address(), kSize), 9));
    expect_refused(api().quiesce(nullptr, 0, &error), error, QUIRE_E_ARG);
}

TEST_F(QueueTest, released_queue_waits_for_nothing_and_its_work_runs_on) {
    Rig rig;
    Memory memory(rig, 4096);
    Fence go(rig);
    Fence done(rig);
    Error error;
    quire_be_queue *queue = nullptr;
    must(api().queue_bind(rig.device(), nullptr, &queue, &error), error);
    rig.wait(queue, go, 1);
    rig.fill(queue, memory.address(), 4096, 6);
    rig.signal(queue, done, 1);
    api().queue_release(queue);
    EXPECT_EQ(done.wait_host(1, kMoment), QUIRE_S_TIMEOUT);
    go.signal_host(1);
    EXPECT_EQ(done.wait_host(1), QUIRE_OK);
    EXPECT_TRUE(all_are(rig.read(memory.address(), 4096), 6));
}

TEST_F(QueueTest, closing_the_device_ends_a_wait_and_fails_the_fences_behind_it) {
    Error error;
    quire_be_device *device = nullptr;
    quire_be_queue *held = nullptr;
    quire_be_queue *released = nullptr;
    quire_be_fence *never = nullptr;
    quire_be_fence *done = nullptr;
    quire_be_fence *done_too = nullptr;
    quire_be_device_desc desc = device_desc(0, 0);
    must(api().device_open(&desc, &device, &error), error);
    must(api().queue_bind(device, nullptr, &held, &error), error);
    must(api().queue_bind(device, nullptr, &released, &error), error);
    must(api().fence_create(device, 0, &never, &error), error);
    must(api().fence_create(device, 0, &done, &error), error);
    must(api().fence_create(device, 0, &done_too, &error), error);
    for (auto [queue, fence] : {std::pair{held, done}, std::pair{released, done_too}}) {
        must(api().fence_wait(queue, never, 1, &error), error);
        must(api().fence_signal(queue, fence, 1, &error), error);
    }
    api().queue_release(released);
    api().device_close(device);
    for (quire_be_fence *fence : {done, done_too}) {
        uint64_t value = 0;
        must(api().fence_read(fence, &value, &error), error);
        EXPECT_EQ(value, kFenceFailed);
    }
    expect_refused(api().fence_signal(held, done, 2, &error), error, QUIRE_E_DEVICE_LOST);
    for (quire_be_fence *fence : {never, done, done_too}) api().fence_destroy(fence);
    api().queue_release(held);
}

TEST_F(QueueTest, many_threads_each_with_a_queue) {
    Rig rig;
    auto work = [&rig](uint32_t seed, quire_be_queue *queue, quire_be_queue *partner) {
        Dice dice(seed);
        Memory memory(rig, 1 << 16);
        Fence fence(rig);
        uint64_t value = 0;
        for (int i = 0; i < 200; ++i) {
            uint32_t byte = dice.roll(0, 255);
            rig.fill(queue, memory.address(), 1 << 15, byte);
            rig.signal(queue, fence, ++value);
            rig.wait(partner, fence, value);
            rig.copy(partner, memory.address() + (1 << 15), memory.address(), 1 << 15);
            rig.signal(partner, fence, ++value);
            rig.wait(queue, fence, value);
            if (i % 20 != 0) continue;
            EXPECT_EQ(fence.wait_host(value), QUIRE_OK);
            EXPECT_TRUE(all_are(rig.read_through(queue, memory.address(), 1 << 16),
                                static_cast<unsigned char>(byte)));
        }
        EXPECT_EQ(fence.wait_host(value), QUIRE_OK);
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 4; ++i) {
        threads.emplace_back(work, i, rig.new_queue(), rig.new_queue());
    }
    for (std::thread &thread : threads) thread.join();
}

TEST_F(QueueTest, native_object_of_an_unknown_kind_is_refused) {
    Rig rig;
    quire_native native{};
    native.kind = 0x7777;
    quire_be_queue *queue = nullptr;
    Error error;
    expect_refused(api().queue_bind(rig.device(), &native, &queue, &error), error,
                   QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(queue, nullptr);
    expect_refused(api().queue_bind(nullptr, nullptr, &queue, &error), error, QUIRE_E_ARG);
    expect_refused(api().queue_bind(rig.device(), nullptr, nullptr, &error), error, QUIRE_E_ARG);
    for (auto call : {api().native_signal, api().native_wait}) {
        if (call == nullptr) continue;
        expect_refused(call(rig.queue(), &native, &error), error, QUIRE_E_UNSUPPORTED);
        expect_refused(call(rig.queue(), nullptr, &error), error, QUIRE_E_ARG);
        expect_refused(call(nullptr, &native, &error), error, QUIRE_E_ARG);
    }
}

}  // namespace quire::conformance
