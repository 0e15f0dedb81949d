// SPDX-License-Identifier: Apache-2.0
//
// What calls on a queue, and a device that is closed, do while the engine captures a stream, on the
// emulator: they leave the capture whole, and wait for nothing that only its end would bring.

#include "engine_rig.hpp"

namespace quire::gpu_tests {

class Capture : public Engine {
 protected:
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
    const char *is_capturing() const {
        return call_of("cuStreamIsCapturing", "hipStreamIsCapturing");
    }
};

// The legacy stream cannot be used until the capture of a stream ends that it waits for.
TEST_P(Capture, of_another_stream_refuses_the_legacy_one_and_fails_no_fence) {
    void *another = new_stream(true);
    for (uintptr_t handle : {uintptr_t{0}, uintptr_t{1}}) {
        ASSERT_EQ(bind(as_stream(reinterpret_cast<void *>(handle))), QUIRE_OK);
        ASSERT_EQ(signal(bound_), QUIRE_OK) << rig_->error.message;
        ASSERT_EQ(rig_->sync(), QUIRE_OK);
        begin_capture(another);
        expect_busy(signal(bound_), "captures another stream");
        expect_busy(api().fill(bound_, rig_->address, 16, 1, &rig_->error), "another stream");
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

// What clears a new queue's memory would run with the graph, and not before; a queue that was had
// before may be given again, and is refused alike.
TEST_P(Capture, makes_no_queue_of_its_stream) {
    for (int i = 0; i < 2; ++i) {
        begin_capture();
        expect_busy(bind(as_stream(stream_)), "before the capture or after it");
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
    expect_busy(bind(as_stream(nullptr)), "captures another stream");
    EXPECT_EQ(end_capture(another), 0) << "the capture was broken";
    destroy_stream(another);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Capture, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
