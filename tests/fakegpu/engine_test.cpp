// SPDX-License-Identifier: Apache-2.0
//
// An engine's own streams and events, on the emulator.

#include <thread>

#include "engine_rig.hpp"

namespace quire::gpu_tests {

TEST_P(Engine, stream_keeps_the_order_of_calls) {
    constexpr int kRounds = 50;
    for (uintptr_t handle :
         {reinterpret_cast<uintptr_t>(stream_), uintptr_t{0}, uintptr_t{1}, uintptr_t{2}}) {
        void *stream = reinterpret_cast<void *>(handle);
        ASSERT_EQ(bind(as_stream(stream)), QUIRE_OK) << rig_->error.message;
        for (int i = 0; i < kRounds; ++i) {
            auto byte = static_cast<unsigned char>(i);
            uint64_t from = rig_->address + 2 * static_cast<uint64_t>(i);
            engine_fills(stream, rig_->address, byte, 1);
            quire_be_copy copy = {from + 256, rig_->address, 1, QUIRE_BE_COPY_D2D, 0};
            ASSERT_EQ(api().copy(bound_, &copy, 1, &rig_->error), QUIRE_OK);
            engine_fills(stream, rig_->address, 0xEE, 1);
        }
        copy_to_host(bound_, rig_->address + 256, 2 * kRounds);
        ASSERT_EQ(api().fence_signal(bound_, rig_->fence, ++rig_->value, &rig_->error), QUIRE_OK);
        ASSERT_EQ(rig_->sync(), QUIRE_OK);
        for (int i = 0; i < kRounds; ++i) ASSERT_EQ(rig_->host[2 * i], i) << handle;
        api().queue_release(bound_);
        bound_ = nullptr;
    }
}

TEST_P(Engine, stream_is_not_held_back) {
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(api().fence_wait(bound_, rig_->fence, 1, &rig_->error), QUIRE_E_BUSY);
    EXPECT_TRUE(has(rig_->error, "signal the fence first")) << rig_->error.message;
    ASSERT_EQ(api().fence_signal(rig_->queue, rig_->fence, 1, &rig_->error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait(bound_, rig_->fence, 1, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().fence_signal(bound_, rig_->fence, 2, &rig_->error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait_host(rig_->fence, 2, kPatience, &rig_->error), QUIRE_OK);
    EXPECT_EQ(api().quiesce(rig_->device, kPatience, &rig_->error), QUIRE_OK);
}

TEST_P(Engine, stream_stays_the_engines) {
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    uint64_t destroyed = calls(is_cuda_ ? "cuStreamDestroy" : "hipStreamDestroy");
    api().queue_release(bound_);
    bound_ = nullptr;
    uint64_t address = rig_->address;
    EXPECT_NE(address, 0u);
    rig_.reset();
    // Two are the library's: the queue's and the service's.
    EXPECT_EQ(calls(is_cuda_ ? "cuStreamDestroy" : "hipStreamDestroy"), destroyed + 2);
    rig_.emplace(api());
    ASSERT_EQ(rig_->open(), QUIRE_OK);
    engine_fills(stream_, rig_->address, 1, 1);
}

TEST_P(Engine, event_is_recorded_behind_what_was_enqueued) {
    quire_native event = as_event(event_);
    constexpr uint64_t kLarge = 128 << 20;
    uint64_t large = 0;
    void *pointer = nullptr;
    ASSERT_EQ(api().mem_alloc(rig_->device, kLarge, QUIRE_BE_MEMORY_DEVICE, &large, &pointer,
                              &rig_->error),
              QUIRE_OK);
    ASSERT_EQ(test::fill_range(api(), rig_->queue, large, kLarge, 9, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().native_signal(rig_->queue, &event, &rig_->error), QUIRE_OK);
    EXPECT_FALSE(is_event_done());
    // And another queue waits for it.
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(api().native_wait(bound_, &event, &rig_->error), QUIRE_OK);
    copy_to_host(bound_, large + kLarge - 16, 16);
    ASSERT_EQ(api().fence_signal(bound_, rig_->fence, 1, &rig_->error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait_host(rig_->fence, 1, kPatience, &rig_->error), QUIRE_OK);
    EXPECT_TRUE(is_event_done());
    EXPECT_EQ(rig_->host[15], 9);
    api().mem_free(rig_->device, large, kLarge, QUIRE_BE_MEMORY_DEVICE);
}

TEST_P(Engine, event_on_a_queue_that_is_held_is_refused) {
    quire_native event = as_event(event_);
    ASSERT_EQ(api().fence_wait(rig_->queue, rig_->fence, 1, &rig_->error), QUIRE_OK);
    for (auto call : {api().native_signal, api().native_wait}) {
        EXPECT_EQ(call(rig_->queue, &event, &rig_->error), QUIRE_E_BUSY);
    }
    ASSERT_EQ(api().fence_signal_host(rig_->fence, 1, &rig_->error), QUIRE_OK);
    for (auto call : {api().native_signal, api().native_wait}) {
        EXPECT_EQ(call(rig_->queue, &event, &rig_->error), QUIRE_OK) << rig_->error.message;
    }
}

TEST_P(Engine, handles_that_are_none_are_refused) {
    quire_native other = as_stream(stream_);
    other.kind = is_cuda_ ? QUIRE_NATIVE_HIP_STREAM : QUIRE_NATIVE_CUDA_STREAM;
    EXPECT_EQ(bind(other), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(bind(as_event(event_)), QUIRE_E_UNSUPPORTED);
    quire_native more = as_stream(stream_);
    more.aux1 = 1;
    EXPECT_EQ(bind(more), QUIRE_E_STRUCT);
    quire_native stream = as_stream(stream_), none = as_event(nullptr), extra = as_event(event_);
    extra.aux0 = 7;
    for (auto call : {api().native_signal, api().native_wait}) {
        EXPECT_EQ(call(rig_->queue, &stream, &rig_->error), QUIRE_E_UNSUPPORTED);
        EXPECT_EQ(call(rig_->queue, &none, &rig_->error), QUIRE_E_ARG);
        EXPECT_EQ(call(rig_->queue, &extra, &rig_->error), QUIRE_E_STRUCT);
    }
    EXPECT_EQ(bound_, nullptr);
    EXPECT_EQ(rig_->step(), QUIRE_OK);
    EXPECT_EQ(rig_->sync(), QUIRE_OK);
}

// A stream belongs to a context in CUDA, and to a device in HIP.
TEST_P(Engine, stream_of_another_context_or_device_is_refused) {
    if (!is_cuda_) {
        auto put_streams_on = of_engine<void (*)(int)>("fakegpu_put_streams_on");
        put_streams_on(1);
        EXPECT_EQ(bind(as_stream(stream_)), QUIRE_E_ARG);
        EXPECT_TRUE(has(rig_->error, "device")) << rig_->error.message;
        put_streams_on(0);
        return;
    }
    int mine = 0;
    make_current(&mine);
    void *foreign = new_stream();
    EXPECT_EQ(bind(as_stream(foreign)), QUIRE_E_ARG);
    EXPECT_TRUE(has(rig_->error, "context")) << rig_->error.message;
    of_engine<int (*)(void *)>("cuStreamDestroy")(foreign);
    make_current(nullptr);
}

// Stream 2 is a different one in each thread, and a queue has one place and one scratch memory.
TEST_P(Engine, own_stream_of_a_thread_has_queues_of_that_thread_alone) {
    quire_native own = as_stream(reinterpret_cast<void *>(uintptr_t{2}));
    quire_be_queue *of_other = nullptr;
    ASSERT_EQ(bind(own), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(api().fence_signal(bound_, rig_->fence, 1, &rig_->error), QUIRE_OK);
    std::thread([&] {
        quire_native event = as_event(event_);
        Error &error = rig_->error;
        EXPECT_EQ(test::fill_range(api(), bound_, rig_->address, 16, 1, &error), QUIRE_E_ARG);
        EXPECT_TRUE(has(error, "thread that created it")) << error.message;
        EXPECT_EQ(api().fence_signal(bound_, rig_->fence, 2, &error), QUIRE_E_ARG);
        EXPECT_EQ(api().native_signal(bound_, &event, &error), QUIRE_E_ARG);
        std::swap(bound_, rig_->queue);
        EXPECT_EQ(rig_->attend(rig_->address + Rig::kGiven), QUIRE_E_ARG);
        std::swap(bound_, rig_->queue);
        EXPECT_EQ(api().queue_bind(rig_->device, &own, &of_other, &error), QUIRE_OK);
        EXPECT_EQ(api().fence_signal(of_other, rig_->fence, 2, &error), QUIRE_OK) << error.message;
        EXPECT_EQ(api().fence_wait_host(rig_->fence, 2, kPatience, &error), QUIRE_OK);
        api().queue_release(of_other);
    }).join();
    quire_be_queue *mine = bound_;
    api().queue_release(bound_);
    ASSERT_EQ(bind(own), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(bound_, mine) << "the other thread's was given";
    EXPECT_EQ(api().fence_signal(bound_, rig_->fence, 3, &rig_->error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait_host(rig_->fence, 3, kPatience, &rig_->error), QUIRE_OK);
}

// Another thread cannot name that stream, so it cannot query it either.
TEST_P(Engine, own_stream_of_a_thread_is_waited_for_by_another_that_closes) {
    constexpr uint64_t kLarge = 256 << 20;
    uint64_t large = 0;
    void *pointer = nullptr;
    quire_be_fence *done = nullptr;
    quire_native own = as_stream(reinterpret_cast<void *>(uintptr_t{2}));
    ASSERT_EQ(bind(own), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(api().mem_alloc(rig_->device, kLarge, QUIRE_BE_MEMORY_DEVICE, &large, &pointer,
                              &rig_->error),
              QUIRE_OK);
    ASSERT_EQ(api().fence_create(rig_->device, 0, &done, &rig_->error), QUIRE_OK);
    ASSERT_EQ(test::fill_range(api(), bound_, large, kLarge, 9, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().fence_signal(bound_, done, 1, &rig_->error), QUIRE_OK);
    // While a queue is held no memory is freed, so closing is the first call to wait.
    ASSERT_EQ(api().fence_wait(rig_->queue, rig_->fence, 1, &rig_->error), QUIRE_OK);
    api().mem_free(rig_->device, large, kLarge, QUIRE_BE_MEMORY_DEVICE);
    api().queue_release(bound_);
    bound_ = nullptr;
    std::thread([&] { rig_.reset(); }).join();
    uint64_t value = 0;
    Error error;
    EXPECT_EQ(api().fence_read(done, &value, &error), QUIRE_OK);
    EXPECT_EQ(value, 1u) << "work was not waited for";
    api().fence_destroy(done);
}

// HIP returns for such a stream what CUDA returns for a lost context.
TEST_P(Engine, stream_that_is_gone_is_refused_and_the_device_lives) {
    void *gone = new_stream();
    ASSERT_EQ(bind(as_stream(gone)), QUIRE_OK) << rig_->error.message;
    destroy_stream(gone);
    EXPECT_EQ(test::fill_range(api(), bound_, rig_->address, 16, 1, &rig_->error), QUIRE_E_ARG);
    EXPECT_TRUE(has(rig_->error, "does not know this stream")) << rig_->error.message;
    EXPECT_EQ(api().fence_signal(bound_, rig_->fence, 1, &rig_->error), QUIRE_E_ARG);
    api().queue_release(bound_);
    bound_ = nullptr;
    EXPECT_EQ(bind(as_stream(gone)), QUIRE_E_ARG);
    EXPECT_TRUE(has(rig_->error, "does not know this stream")) << rig_->error.message;
    EXPECT_EQ(rig_->step(), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(rig_->sync(), QUIRE_OK) << rig_->error.message;
}

// Before ROCm 6.3, HIP treats handle 1 as an address.
TEST_P(Engine, legacy_stream_of_hip_is_had_where_the_driver_knows_it) {
    if (is_cuda_) return;  // CUDA always did
    auto say_version = of_engine<void (*)(int)>("fakegpu_say_version");
    quire_native legacy = as_stream(reinterpret_cast<void *>(uintptr_t{1}));
    say_version(60'241'134);
    EXPECT_EQ(bind(legacy), QUIRE_E_UNSUPPORTED);
    EXPECT_TRUE(has(rig_->error, "ROCm 6.3")) << rig_->error.message;
    say_version(60'342'131);
    fail("hipRuntimeGetVersion", 1, kOutOfMemory);
    EXPECT_EQ(bind(legacy), QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(bind(legacy), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(api().fence_signal(bound_, rig_->fence, ++rig_->value, &rig_->error), QUIRE_OK);
    EXPECT_EQ(rig_->sync(), QUIRE_OK);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Engine, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
