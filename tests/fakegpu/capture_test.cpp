// SPDX-License-Identifier: Apache-2.0
//
// Calls on a queue, and closing a device, while the engine captures a stream, on the emulator: they
// leave the capture intact, and wait for nothing that only the end of the capture would bring.

#include <chrono>
#include <future>

#include "engine_rig.hpp"

namespace quire::gpu_tests {

class Capture : public Engine {
 protected:
    void TearDown() override {
        if (closing_.valid()) closing_.wait();
        Engine::TearDown();
    }

    quire_status signal(quire_be_queue *queue) {
        return api().fence_signal(queue, rig_->fence, ++rig_->value, &rig_->error);
    }
    uint64_t read_fence() {
        uint64_t value = 0;
        EXPECT_EQ(api().fence_read(rig_->fence, &value, &rig_->error), QUIRE_OK);
        return value;
    }
    void expect_busy(quire_status status, const char *words) {
        EXPECT_EQ(status, QUIRE_E_BUSY) << rig_->error.message;
        EXPECT_TRUE(has(rig_->error, words)) << rig_->error.message;
    }
    // Closes the device; false if closing does not finish by itself.
    bool close() {
        api().queue_release(bound_);
        bound_ = nullptr;
        closing_ = std::async(std::launch::async, [this] { rig_.reset(); });
        auto waited = closing_.wait_for(std::chrono::nanoseconds(kPatience));
        return waited == std::future_status::ready;
    }
    // Keeps the queue's stream busy for a while.
    void work_long(quire_be_queue *queue) {
        constexpr uint64_t kLarge = 256 << 20;
        uint64_t large = 0;
        void *pointer = nullptr;
        ASSERT_EQ(api().mem_alloc(rig_->device, kLarge, QUIRE_BE_MEMORY_DEVICE, &large, &pointer,
                                  &rig_->error),
                  QUIRE_OK);
        large_ = {large, kLarge};
        ASSERT_EQ(test::fill_range(api(), queue, large, kLarge, 0x5A, &rig_->error), QUIRE_OK);
    }
    void free_large() {
        api().mem_free(rig_->device, large_.first, large_.second, QUIRE_BE_MEMORY_DEVICE);
    }
    const char *is_capturing() const {
        return call_of("cuStreamIsCapturing", "hipStreamIsCapturing");
    }

 private:
    std::pair<uint64_t, uint64_t> large_;
    std::future<void> closing_;
};

// The legacy stream cannot be used until the capture of a stream that it waits for ends.
TEST_P(Capture, of_another_stream_refuses_the_legacy_one_and_fails_no_fence) {
    void *another = new_stream(true);
    for (uintptr_t handle : {uintptr_t{0}, uintptr_t{1}}) {
        ASSERT_EQ(bind(as_stream(reinterpret_cast<void *>(handle))), QUIRE_OK);
        ASSERT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
        ASSERT_EQ(rig_->sync(), QUIRE_OK);
        begin_capture(another);
        expect_busy(signal(bound_), "is capturing another stream");
        expect_busy(test::fill_range(api(), bound_, rig_->address, 16, 1, &rig_->error),
                    "another stream");
        std::swap(bound_, rig_->queue);
        expect_busy(rig_->attend(rig_->address + Rig::kGiven), "another stream");
        std::swap(bound_, rig_->queue);
        EXPECT_EQ(end_capture(another), 0) << "the capture was broken";
        EXPECT_EQ(read_fence(), rig_->value - 1);
        EXPECT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
        EXPECT_EQ(rig_->sync(), QUIRE_OK) << "the fence had failed";
        api().queue_release(bound_);
        bound_ = nullptr;
    }
    destroy_stream(another);
}

TEST_P(Capture, that_the_driver_says_nothing_of_fails_no_fence) {
    constexpr int kInvalidValue = 1;
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    fail(is_capturing(), 1, kInvalidValue);
    EXPECT_EQ(signal(bound_), QUIRE_E_BACKEND);
    EXPECT_EQ(read_fence(), 0u);
    EXPECT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
    EXPECT_EQ(rig_->sync(), QUIRE_OK);
}

// The work that clears a new queue's memory would run with the graph, and not before it. A queue
// that was bound before may be reused, but is refused just the same.
TEST_P(Capture, makes_no_queue_of_its_stream) {
    for (int i = 0; i < 2; ++i) {
        begin_capture();
        expect_busy(bind(as_stream(stream_)), "before or after the capture");
        EXPECT_EQ(bound_, nullptr);
        EXPECT_EQ(end_capture(), 0) << "the capture was broken";
        ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
        EXPECT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
        EXPECT_EQ(rig_->sync(), QUIRE_OK);
        api().queue_release(bound_);
        bound_ = nullptr;
    }
    void *another = new_stream(true);
    begin_capture(another);
    expect_busy(bind(as_stream(nullptr)), "is capturing another stream");
    EXPECT_EQ(end_capture(another), 0) << "the capture was broken";
    destroy_stream(another);
}

TEST_P(Capture, holds_up_no_closing_device_and_stays_whole) {
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    std::string fault = last_fault();
    work_long(bound_);
    quire_be_fence *done = nullptr;
    ASSERT_EQ(api().fence_create(rig_->device, 0, &done, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().fence_signal(bound_, done, 1, &rig_->error), QUIRE_OK) << rig_->error.message;
    // While a queue is held no memory is freed, so closing is the first call to wait.
    ASSERT_EQ(api().fence_wait(rig_->queue, rig_->fence, 1, &rig_->error), QUIRE_OK);
    free_large();
    begin_capture();
    EXPECT_TRUE(close()) << "closing waits for the end of the capture";
    EXPECT_EQ(end_capture(), 0) << "closing broke the capture";
    EXPECT_EQ(last_fault(), fault) << "memory was freed that work still used";
    uint64_t value = 0;
    Error error;
    EXPECT_EQ(api().fence_read(done, &value, &error), QUIRE_OK);
    EXPECT_EQ(value, 1u) << "work was not waited for";
    api().fence_destroy(done);
}

TEST_P(Capture, of_another_stream_holds_up_no_closing_device) {
    void *another = new_stream(true);
    ASSERT_EQ(bind(as_stream(nullptr)), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
    begin_capture(another);
    EXPECT_TRUE(close()) << "closing waits for the end of the capture";
    EXPECT_EQ(end_capture(another), 0) << "closing broke the capture";
    destroy_stream(another);
}

// A captured stream cannot be queried, so its earlier work cannot be known to have run.
TEST_P(Capture, ends_the_wait_for_an_idle_device_and_stays_whole) {
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
    begin_capture();
    expect_busy(api().quiesce(rig_->device, UINT64_MAX, &rig_->error), "end the capture");
    EXPECT_EQ(end_capture(), 0) << "waiting broke the capture";
    EXPECT_EQ(api().quiesce(rig_->device, kPatience, &rig_->error), QUIRE_OK);
}

// The queue failed while its stream had a wait; only a query tells when that wait ends.
TEST_P(Capture, is_not_broken_by_what_looks_after_a_failed_queue) {
    ASSERT_EQ(bind(as_stream(stream_)), QUIRE_OK) << rig_->error.message;
    work_long(rig_->queue);
    ASSERT_EQ(signal(rig_->queue), QUIRE_OK) << rig_->error.message;
    fail(vendor().launch, 1, kOutOfMemory);
    EXPECT_EQ(api().fence_wait(bound_, rig_->fence, rig_->value, &rig_->error),
              QUIRE_E_DEVICE_LOST);
    begin_capture();
    quire_be_fence *fence = nullptr;
    EXPECT_EQ(api().fence_create(rig_->device, 0, &fence, &rig_->error), QUIRE_OK);
    api().fence_destroy(fence);
    free_large();
    EXPECT_EQ(end_capture(), 0) << "a query broke the capture";
}

TEST_P(Capture, stream_that_is_gone_holds_up_no_closing_device) {
    void *gone = new_stream();
    ASSERT_EQ(bind(as_stream(gone)), QUIRE_OK) << rig_->error.message;
    ASSERT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
    destroy_stream(gone);
    EXPECT_TRUE(close()) << "closing waits for a destroyed stream";
}

INSTANTIATE_TEST_SUITE_P(Vendors, Capture, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
