// SPDX-License-Identifier: Apache-2.0
//
// The measurements made when a device is opened, on the emulated drivers, and what remains if a
// driver refuses a part of them.

#include <atomic>
#include <future>
#include <thread>

#include "engine_rig.hpp"
#include "plugin_copy.hpp"

namespace quire::gpu_tests {

namespace {

constexpr int kInvalidValue = 1;
constexpr const char *kVariable = "QUIRE_GPU_DMA_BYTES";

// An opened device, or the error.
struct Opened {
    explicit Opened(const quire_backend_api *table) : api(*table) {
        quire_be_device_desc desc{};
        desc.struct_size = sizeof desc;
        status = api.device_open(&desc, &device, &error);
    }
    ~Opened() { api.device_close(device); }
    Opened(const Opened &) = delete;
    Opened &operator=(const Opened &) = delete;

    const quire_backend_api &api;
    Error error;
    quire_be_device *device = nullptr;
    quire_status status;
};

}  // namespace

// A copy of the plugin stands for a process that has not opened a device yet.
class Profile : public Driver {
 protected:
    void SetUp() override {
        Driver::SetUp();
        if (HasFatalFailure()) return;
        unsetenv(kVariable);
        is_cuda_ = std::string(vendor().name) == "cuda";
        LibraryCopy plugin(plugin_of(vendor()));
        Opened(plugin.api());  // the context of HIP's device stays
        in_driver_ = live_in_driver();
    }

    const char *call_of(const char *of_cuda, const char *of_hip) const {
        return is_cuda_ ? of_cuda : of_hip;
    }
    const char *event_create() const { return call_of("cuEventCreate", "hipEventCreateWithFlags"); }
    const char *elapsed() const { return call_of("cuEventElapsedTime", "hipEventElapsedTime"); }
    // True if the border was measured. Kernels take more than ten times as long on the emulator, so
    // copies slightly smaller than a guessed border are then the driver's.
    bool is_measured(Opened &opened) const {
        constexpr uint64_t kSize = 256 << 10;
        const quire_backend_api &api = opened.api;
        uint64_t address = 0;
        void *host = nullptr;
        quire_be_queue *queue = nullptr;
        EXPECT_EQ(api.mem_alloc(opened.device, 4 * kSize, QUIRE_BE_MEMORY_DEVICE, &address, &host,
                                &opened.error),
                  QUIRE_OK);
        EXPECT_EQ(api.queue_bind(opened.device, nullptr, &queue, &opened.error), QUIRE_OK);
        const quire_be_copy copies[] = {
            {address + kSize, address, kSize - 1, QUIRE_BE_COPY_D2D, 0},
            {address + 3 * kSize, address + 2 * kSize, kSize - 1, QUIRE_BE_COPY_D2D, 0}};
        uint64_t before = calls(vendor().launch);
        EXPECT_EQ(api.copy(queue, copies, 2, &opened.error), QUIRE_OK) << opened.error.message;
        bool is_drivers = calls(vendor().launch) == before;
        EXPECT_EQ(api.quiesce(opened.device, kPatience, &opened.error), QUIRE_OK);
        api.queue_release(queue);
        api.mem_free(opened.device, address, 4 * kSize, QUIRE_BE_MEMORY_DEVICE);
        return is_drivers;
    }
    void expect_nothing_left(const quire_backend_api *api, const std::string &where) const {
        EXPECT_EQ(live_in_driver(), in_driver_) << where;
        uint64_t live = 0;
        Error error;
        EXPECT_EQ(api->shutdown(&live, &error), QUIRE_OK);
        EXPECT_EQ(live, 0u) << where;
    }

    bool is_cuda_ = false;
    uint64_t in_driver_ = 0;
};

TEST_P(Profile, is_taken_once_in_a_process) {
    LibraryCopy plugin(plugin_of(vendor()));
    for (bool is_first : {true, false, false}) {
        uint64_t before = calls(elapsed());
        Opened opened(plugin.api());
        ASSERT_EQ(opened.status, QUIRE_OK) << opened.error.message;
        EXPECT_EQ(calls(elapsed()) != before, is_first);
        EXPECT_TRUE(is_measured(opened));
    }
}

TEST_P(Profile, of_threads_that_open_a_device_at_once_is_one) {
    LibraryCopy plugin(plugin_of(vendor()));
    const quire_backend_api *api = plugin.api();
    uint64_t before = calls(event_create());
    std::vector<std::future<quire_status>> opening;
    for (int i = 0; i < 4; ++i) {
        opening.push_back(std::async(std::launch::async, [&] { return Opened(api).status; }));
    }
    for (std::future<quire_status> &one : opening) EXPECT_EQ(one.get(), QUIRE_OK);
    EXPECT_EQ(calls(event_create()) - before, 2u) << "two events, of one profile";
    expect_nothing_left(api, "");
}

// Allocating and waiting would break one, in any other mode than the backend's.
TEST_P(Profile, breaks_no_capture_of_another_thread) {
    LibraryCopy plugin(plugin_of(vendor()));
    symbol<void (*)()>("fakegpu_begin_capture")();
    Opened opened(plugin.api());
    EXPECT_EQ(symbol<int (*)()>("fakegpu_end_capture")(), 0) << "the capture was broken";
    ASSERT_EQ(opened.status, QUIRE_OK) << opened.error.message;
    EXPECT_TRUE(is_measured(opened));
}

class ProfileBeside : public Engine {
 protected:
    // Makes the stream wait until the word is 1.
    int block_stream(uint64_t word) {
        if (is_cuda_) {
            using Wait = int (*)(void *, uint64_t, uint64_t, unsigned);
            return of_engine<Wait>("cuStreamWaitValue64")(stream_, word, 1, 0);
        }
        using Wait = int (*)(void *, void *, uint64_t, unsigned, uint64_t);
        return of_engine<Wait>("hipStreamWaitValue64")(stream_, reinterpret_cast<void *>(word), 1,
                                                       0, UINT64_MAX);
    }
};

// The stream may be waiting for the thread that opens. Another thread
// releases it after ten seconds.
TEST_P(ProfileBeside, an_engines_stream_that_waits_is_not_waited_for) {
    constexpr uint64_t kWord = 4096;
    LibraryCopy plugin(plugin_of(vendor()));
    auto *word = reinterpret_cast<uint64_t *>(rig_->host + kWord);
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
    ASSERT_EQ(block_stream(rig_->host_address + kWord), 0);
    std::atomic<bool> is_open{false}, is_late{false};
    std::thread patience([&] {
        for (int i = 0; i < 1000 && !is_open; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        is_late = !is_open;
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    });
    Opened opened(plugin.api());
    is_open = true;
    patience.join();  // closing does wait
    EXPECT_EQ(opened.status, QUIRE_OK) << opened.error.message;
    EXPECT_FALSE(is_late) << "opening waited for the engine's stream";
}

TEST_P(Profile, that_a_driver_refuses_is_a_guess_until_the_next_time) {
    const char *const refused[] = {
        call_of("cuMemAlloc", "hipMalloc"),
        event_create(),
        call_of("cuEventRecord", "hipEventRecord"),
        vendor().launch,
        call_of("cuStreamSynchronize", "hipStreamSynchronize"),
        elapsed(),
    };
    for (const char *name : refused) {
        LibraryCopy plugin(plugin_of(vendor()));
        // One allocation is the device's own, for cells.
        uint64_t nth = name == refused[0] ? 2 : 1;
        for (int code : {kOutOfMemory, kInvalidValue}) {
            fail(name, nth, code);
            Opened opened(plugin.api());
            fail(nullptr, 0, 0);
            ASSERT_EQ(opened.status, QUIRE_OK) << name << opened.error.message;
            EXPECT_FALSE(is_measured(opened)) << name;
        }
        expect_nothing_left(plugin.api(), name);
        Opened again(plugin.api());
        ASSERT_EQ(again.status, QUIRE_OK) << again.error.message;
        EXPECT_TRUE(is_measured(again)) << name;
    }
}

TEST_P(Profile, is_of_single_copies_where_a_driver_takes_no_batch) {
    constexpr int kNotSupported = 801;
    LibraryCopy plugin(plugin_of(vendor()));
    fail(vendor().copy_many, 1, kNotSupported);
    Opened opened(plugin.api());
    ASSERT_EQ(opened.status, QUIRE_OK) << opened.error.message;
    EXPECT_TRUE(is_measured(opened));
}

TEST_P(Profile, that_loses_the_device_fails_to_open_it) {
    for (const char *name : {event_create(), vendor().launch, vendor().copy_many, elapsed()}) {
        LibraryCopy plugin(plugin_of(vendor()));
        fail(name, 1, kIllegalAddress);
        {
            Opened opened(plugin.api());
            EXPECT_EQ(opened.status, QUIRE_E_DEVICE_LOST) << name;
            EXPECT_TRUE(has(opened.error, "to measure copies")) << opened.error.message;
        }
        expect_nothing_left(plugin.api(), name);
        Opened again(plugin.api());
        EXPECT_EQ(again.status, QUIRE_OK) << again.error.message;
    }
}

// Whichever call is refused: opening fails before the profile begins, and succeeds from there on.
TEST_P(Profile, refused_at_any_call_leaves_nothing) {
    bool is_reached = true, is_open = false;
    uint64_t nth = 0, opened_count = 0;
    std::optional<LibraryCopy> plugin;
    while (is_reached) {
        ++nth;
        // A plugin that has measured would not measure again. This first opening
        // only finds the driver.
        if (!plugin) {
            plugin.emplace(plugin_of(vendor()));
            setenv(kVariable, "0", 1);
            Opened(plugin->api());
            unsetenv(kVariable);
        }
        uint64_t before = calls(nullptr), times_before = calls(elapsed());
        {
            fail(nullptr, nth, kOutOfMemory);
            Opened opened(plugin->api());
            is_reached = calls(nullptr) - before >= nth;
            fail(nullptr, 0, 0);
            if (opened.status != QUIRE_OK) {
                EXPECT_LT(opened.status, 0) << nth;
                EXPECT_NE(opened.error.message[0], 0) << nth;
                EXPECT_FALSE(is_open) << "call " << nth << ": " << opened.error.message;
            }
            is_open = opened.status == QUIRE_OK;
            opened_count += is_open ? 1 : 0;
        }
        expect_nothing_left(plugin->api(), "after failure of call " + std::to_string(nth));
        constexpr uint64_t kTimes = 24;  // of one round and the warm-up
        if (calls(elapsed()) - times_before >= kTimes) plugin.reset();
    }
    EXPECT_GT(opened_count, 100u) << "few calls were failed";
}

TEST_P(Profile, is_not_taken_where_the_environment_says_the_border) {
    LibraryCopy plugin(plugin_of(vendor()));
    uint64_t before = calls(elapsed());
    for (const char *border : {"0", "262144", "18446744073709551615"}) {
        setenv(kVariable, border, 1);
        Opened opened(plugin.api());
        ASSERT_EQ(opened.status, QUIRE_OK) << opened.error.message;
        EXPECT_EQ(is_measured(opened), *border == '0');
    }
    for (const char *wrong : {"256k", "-1", "18446744073709551616", " 1"}) {
        setenv(kVariable, wrong, 1);
        Opened opened(plugin.api());
        EXPECT_EQ(opened.status, QUIRE_E_ARG) << wrong;
        EXPECT_TRUE(has(opened.error, "QUIRE_GPU_DMA_BYTES is \"")) << opened.error.message;
    }
    unsetenv(kVariable);
    EXPECT_EQ(calls(elapsed()), before);
    expect_nothing_left(plugin.api(), "");
}

// As with both vendors' drivers: only for events with a time that were recorded and have passed.
TEST_P(Profile, times_are_of_events_that_have_passed) {
    constexpr int kInvalidHandle = 400, kNotReady = 600;
    constexpr unsigned kDisableTiming = 2;
    LibraryCopy plugin(plugin_of(vendor()));
    Opened opened(plugin.api());
    auto in_context = [&] {
        if (!is_cuda_) return;
        void *primary = nullptr;
        int device = 0;
        ASSERT_EQ(of_engine<int (*)(int *, int)>("cuDeviceGet")(&device, 0), 0);
        ASSERT_EQ(of_engine<int (*)(void **, int)>("cuDevicePrimaryCtxRetain")(&primary, device),
                  0);
        of_engine<int (*)(int)>("cuDevicePrimaryCtxRelease")(device);
        of_engine<int (*)(void *)>("cuCtxSetCurrent")(primary);
    };
    in_context();
    auto create = of_engine<int (*)(void **, unsigned)>(event_create());
    auto record = of_engine<int (*)(void *, void *)>(call_of("cuEventRecord", "hipEventRecord"));
    auto between = of_engine<int (*)(float *, void *, void *)>(elapsed());
    auto await = of_engine<int (*)(void *)>(call_of("cuStreamSynchronize", "hipStreamSynchronize"));
    auto destroy = of_engine<int (*)(void *)>(call_of("cuEventDestroy", "hipEventDestroy"));
    auto wait_value = of_engine<int (*)(void *, uint64_t, uint64_t, unsigned, uint64_t)>(
        call_of("cuStreamWaitValue64", "hipStreamWaitValue64"));
    void *begin = nullptr, *end = nullptr, *timeless = nullptr;
    ASSERT_EQ(create(&begin, 0), 0);
    ASSERT_EQ(create(&end, 0), 0);
    ASSERT_EQ(create(&timeless, kDisableTiming), 0);
    uint64_t word = 0;
    void *host = nullptr;
    ASSERT_EQ(
        opened.api.mem_alloc(opened.device, 64, QUIRE_BE_MEMORY_HOST, &word, &host, &opened.error),
        QUIRE_OK);
    float milliseconds = -1;
    EXPECT_EQ(between(&milliseconds, begin, end), kInvalidHandle) << "never recorded";
    EXPECT_EQ(record(begin, nullptr), 0);
    EXPECT_EQ(wait_value(nullptr, word, 1, 0, UINT64_MAX), 0);
    EXPECT_EQ(record(end, nullptr), 0);
    EXPECT_EQ(record(timeless, nullptr), 0);
    EXPECT_EQ(between(&milliseconds, begin, end), kNotReady);
    EXPECT_EQ(between(&milliseconds, begin, timeless), kInvalidHandle);
    __atomic_store_n(static_cast<uint64_t *>(host), 1, __ATOMIC_SEQ_CST);
    EXPECT_EQ(await(nullptr), 0);
    EXPECT_EQ(between(&milliseconds, begin, end), 0);
    EXPECT_GT(milliseconds, 0);
    for (void *event : {begin, end, timeless}) destroy(event);
    opened.api.mem_free(opened.device, word, 64, QUIRE_BE_MEMORY_HOST);
    if (is_cuda_) of_engine<int (*)(void *)>("cuCtxSetCurrent")(nullptr);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Profile, testing::Values(0, 1), name_of);
INSTANTIATE_TEST_SUITE_P(Vendors, ProfileBeside, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
