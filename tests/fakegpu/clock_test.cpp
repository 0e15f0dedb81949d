// SPDX-License-Identifier: Apache-2.0
//
// Events that measure the time between them, and the benchmarks' clock, which consists
// of two, on the emulator.

#include <chrono>
#include <thread>

#include "engine_rig.hpp"
#include "tests/bench/machine/failure.hpp"
#include "tests/bench/scene/device_clock.hpp"

namespace quire::gpu_tests {

namespace {

constexpr int kNotReady = 600;
constexpr int kInvalidHandle = 400;
constexpr unsigned kDisableTiming = 2;
constexpr auto kPause = std::chrono::milliseconds(20);

// An engine whose stream a test can hold.
class Clock : public Engine {
 protected:
    void SetUp() override {
        Engine::SetUp();
        hold_ = reinterpret_cast<uint64_t *>(rig_->host);
    }
    int elapsed(void *begin, void *end, float *milliseconds) {
        return of_engine<int (*)(float *, void *, void *)>(
            call_of("cuEventElapsedTime", "hipEventElapsedTime"))(milliseconds, begin, end);
    }
    void *new_event(unsigned flags) {
        void *event = nullptr;
        auto create = of_engine<int (*)(void **, unsigned)>(
            call_of("cuEventCreate", "hipEventCreateWithFlags"));
        EXPECT_EQ(create(&event, flags), 0);
        return event;
    }
    void destroy(void *event) {
        of_engine<int (*)(void *)>(call_of("cuEventDestroy", "hipEventDestroy"))(event);
    }
    void record(void *event) { record(event, stream_); }
    void record(void *event, void *stream) {
        auto record =
            of_engine<int (*)(void *, void *)>(call_of("cuEventRecord", "hipEventRecord"));
        ASSERT_EQ(record(event, stream), 0);
    }
    // Holds the stream until the test lets it go.
    void hold(void *stream) {
        if (is_cuda_) {
            auto wait =
                of_engine<int (*)(void *, uint64_t, uint64_t, unsigned)>("cuStreamWaitValue64");
            ASSERT_EQ(wait(stream, rig_->host_address, 1, 0), 0);
        } else {
            auto wait = of_engine<int (*)(void *, uint64_t, uint64_t, unsigned, uint64_t)>(
                "hipStreamWaitValue64");
            ASSERT_EQ(wait(stream, rig_->host_address, 1, 0, UINT64_MAX), 0);
        }
    }
    void await_event() {
        while (!is_event_done()) std::this_thread::yield();
    }
    void let_go() { __atomic_store_n(hold_, 1, __ATOMIC_SEQ_CST); }
    void finish() {
        auto wait =
            of_engine<int (*)(void *)>(call_of("cuStreamSynchronize", "hipStreamSynchronize"));
        ASSERT_EQ(wait(stream_), 0);
    }

    uint64_t *hold_ = nullptr;
};

}  // namespace

TEST_P(Clock, elapsed_time_is_what_passed_on_the_stream) {
    void *end = new_event(0);
    float milliseconds = 0;
    record(event_);
    await_event();
    hold(stream_);
    record(end);
    EXPECT_EQ(elapsed(event_, end, &milliseconds), kNotReady);
    std::this_thread::sleep_for(kPause);
    let_go();
    finish();
    ASSERT_EQ(elapsed(event_, end, &milliseconds), 0);
    EXPECT_GE(milliseconds, 20.0f);
    ASSERT_EQ(elapsed(end, event_, &milliseconds), 0);
    EXPECT_LE(milliseconds, -20.0f);
    destroy(end);
}

TEST_P(Clock, events_without_a_time_have_none_between_them) {
    void *untimed = new_event(kDisableTiming);
    void *never = new_event(0);
    float milliseconds = -1;
    record(event_);
    record(untimed);
    finish();
    EXPECT_EQ(elapsed(event_, untimed, &milliseconds), kInvalidHandle);
    EXPECT_EQ(elapsed(untimed, event_, &milliseconds), kInvalidHandle);
    EXPECT_EQ(elapsed(event_, never, &milliseconds), kInvalidHandle);
    EXPECT_EQ(elapsed(event_, nullptr, &milliseconds), kInvalidHandle);
    EXPECT_EQ(milliseconds, -1);
    destroy(untimed);
    destroy(never);
}

TEST_P(Clock, of_a_benchmark_times_its_stream_alone) {
    auto clock = bench::DeviceClock::make(vendor().name, 0);
    ASSERT_NE(clock, nullptr);
    void *stream = reinterpret_cast<void *>(clock->stream().value);
    // A queue of the backend is bound to the clock's stream.
    ASSERT_EQ(bind(clock->stream()), QUIRE_OK) << rig_->error.message;
    clock->start();
    record(event_, stream);
    await_event();
    hold(stream);
    clock->stop();
    std::this_thread::sleep_for(kPause);
    let_go();
    EXPECT_GE(clock->seconds(), 0.020);
    // Work before start() and after stop() is not counted.
    __atomic_store_n(hold_, 0, __ATOMIC_SEQ_CST);
    hold(stream);
    clock->start();
    engine_fills(stream, rig_->address, 1, 1);
    clock->stop();
    std::this_thread::sleep_for(kPause);
    let_go();
    EXPECT_LT(clock->seconds(), 0.020);
    api().queue_release(bound_);
    bound_ = nullptr;
}

TEST_P(Clock, of_a_benchmark_names_what_a_driver_lacks) {
    const char *lacking = call_of("cuEventElapsedTime", "hipEventElapsedTime");
    bench::DriverLookup all = bench::find_driver(vendor().name);
    bench::DriverLookup old = [&](const char *name) {
        return std::strcmp(name, lacking) == 0 ? nullptr : all(name);
    };
    uint64_t live = live_in_driver();
    try {
        bench::DeviceClock clock(vendor().name, 0, old);
        ADD_FAILURE() << "it was made";
    } catch (const bench::Failure &failure) {
        EXPECT_NE(std::string(failure.what()).find(lacking), std::string::npos) << failure.what();
    }
    EXPECT_EQ(live_in_driver(), live);
}

TEST_P(Clock, of_a_benchmark_names_what_a_driver_refuses) {
    const char *failing = call_of("cuEventRecord", "hipEventRecord");
    uint64_t live = live_in_driver();
    {
        bench::DeviceClock clock(vendor().name, 0, bench::find_driver(vendor().name));
        fail(failing, 1, kOutOfMemory);
        EXPECT_THROW(clock.start(), bench::Failure);
        EXPECT_THROW(clock.seconds(), bench::Failure);  // there are not two events
    }
    fail(call_of("cuEventCreate", "hipEventCreateWithFlags"), 2, kOutOfMemory);
    EXPECT_THROW(bench::DeviceClock::make(vendor().name, 0), bench::Failure);
    EXPECT_EQ(live_in_driver(), live);
}

TEST(ClockOfProcessors, is_none) { EXPECT_EQ(bench::DeviceClock::make("cpu", 0), nullptr); }

INSTANTIATE_TEST_SUITE_P(Vendors, Clock, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
