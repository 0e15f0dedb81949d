// SPDX-License-Identifier: Apache-2.0
//
// The calls of the backends of CUDA and HIP to their drivers, and what remains after a
// driver refuses a call or loses the device. The drivers are the emulator's,
// controlled through machine.hpp.

#include "driver_rig.hpp"

namespace quire::gpu_tests {

TEST_P(Driver, step_only_enqueues_and_allocates_nothing) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;  // makes the queue's scratch memory
    uint64_t before = calls(nullptr), of_a_step = 0;
    for (const char *name : vendor().of_a_step) of_a_step -= calls(name);
    for (int i = 0; i < 10; ++i) ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    for (const char *name : vendor().of_a_step) of_a_step += calls(name);
    uint64_t all = calls(nullptr) - before;
    EXPECT_GT(of_a_step, 70u);
    EXPECT_EQ(all, of_a_step) << "something else was called";
    EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message << last_fault();
}

TEST_P(Driver, without_a_device_says_so) {
    constexpr int kNoDevice = 100;
    const char *count_devices = vendor().count_devices;
    uint32_t count = 1;
    Error error;
    fail(count_devices, 1, kNoDevice);
    ASSERT_EQ(api().probe(&count, &error), QUIRE_OK) << error.message;
    EXPECT_EQ(count, 0u);
    EXPECT_STREQ(error.message, "the driver reports no devices");

    quire_be_device_desc desc{};
    desc.struct_size = sizeof desc;
    quire_be_device *device = nullptr;
    fail(count_devices, 1, kNoDevice);
    EXPECT_EQ(api().device_open(&desc, &device, &error), QUIRE_E_ARG);
    EXPECT_TRUE(has(error, "device 0: the driver reports no devices")) << error.message;
}

// Another queue and another fence of the device still work.
void expect_sound(Rig &rig) {
    quire_be_queue *queue = nullptr;
    quire_be_fence *fence = nullptr;
    quire_status status = rig.api.queue_bind(rig.device, nullptr, &queue, &rig.error);
    if (status == QUIRE_E_DEVICE_LOST) return;  // it was a query that failed
    ASSERT_EQ(status, QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.api.fence_create(rig.device, 0, &fence, &rig.error), QUIRE_OK);
    EXPECT_EQ(rig.api.fence_signal(queue, fence, 1, &rig.error), QUIRE_OK);
    EXPECT_EQ(rig.api.fence_wait_host(fence, 1, kPatience, &rig.error), QUIRE_OK);
    rig.api.fence_destroy(fence);
    rig.api.queue_release(queue);
}

TEST_P(Driver, refusal_of_any_call_is_an_error_that_leaves_nothing) {
    {
        Rig(api()).open();
    }  // the context of HIP's device stays
    uint64_t in_driver = live_in_driver();
    bool is_reached = true;
    uint64_t nth = 0;
    while (is_reached && ++nth < 500) {
        {
            Rig rig(api());
            uint64_t before = calls(nullptr);
            fail(nullptr, nth, kOutOfMemory);
            quire_status status = rig.open();
            if (status == QUIRE_OK) status = rig.step();
            if (status == QUIRE_OK) status = rig.sync();
            fail(nullptr, 0, 0);
            is_reached = calls(nullptr) - before >= nth;
            if (status != QUIRE_OK) {
                EXPECT_LT(status, 0) << nth;
                EXPECT_NE(rig.error.message[0], 0) << nth;
                if (rig.device != nullptr) expect_sound(rig);
            }
        }
        EXPECT_EQ(live_in_driver(), in_driver) << "after failure of call " << nth;
        EXPECT_EQ(live_objects(), 0u) << nth;
    }
    EXPECT_GT(nth, 25u) << "few calls were failed";
    EXPECT_FALSE(is_reached);
}

// A driver that loads code at its first launch might do so while an engine captures.
TEST_P(Driver, kernels_are_loaded_when_the_device_is_opened) {
    // HIP loads a whole code object, CUDA may load each kernel by itself.
    bool is_cuda = vendor().name == std::string("cuda");
    const char *load = is_cuda ? "cuFuncLoad" : "hipModuleLoadData";
    const char *find = is_cuda ? "cuModuleGetFunction" : "hipModuleLoadData";
    uint64_t loaded = calls(load), found = calls(find);
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    EXPECT_GT(calls(load), loaded);
    EXPECT_EQ(calls(load) - loaded, calls(find) - found);
    loaded = calls(load);
    EXPECT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(calls(load), loaded) << "a step loaded code";
}

TEST_P(Driver, sticky_error_is_a_lost_device_and_no_crash) {
    {
        Rig rig(api());
        ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
        ASSERT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
        fail(vendor().launch, 1, kIllegalAddress);
        EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(rig.error, "illegal")) << rig.error.message;
        EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
        EXPECT_TRUE(has(rig.error, "lost")) << rig.error.message;
        uint64_t address = 0;
        void *host = nullptr;
        EXPECT_EQ(
            api().mem_alloc(rig.device, 64, QUIRE_BE_MEMORY_DEVICE, &address, &host, &rig.error),
            QUIRE_E_DEVICE_LOST);
        EXPECT_EQ(api().quiesce(rig.device, kPatience, &rig.error), QUIRE_E_DEVICE_LOST);
        // Waiting for the end of enqueued work reports that it failed.
        EXPECT_EQ(api().fence_signal(rig.queue, rig.fence, 100, &rig.error), QUIRE_OK);
        EXPECT_EQ(api().fence_wait_host(rig.fence, 100, kPatience, &rig.error),
                  QUIRE_E_DEVICE_LOST);
    }
    Rig again(api());
    ASSERT_EQ(again.open(), QUIRE_OK) << again.error.message;
    EXPECT_EQ(again.step(), QUIRE_OK) << again.error.message;
    EXPECT_EQ(again.sync(), QUIRE_OK) << again.error.message;
}

TEST_P(Driver, wild_address_loses_the_device_and_is_named) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
    // The first kernel of the call may have run before the next is enqueued.
    quire_status attended = rig.attend(rig.address + Rig::kBytes);
    EXPECT_TRUE(attended == QUIRE_OK || attended == QUIRE_E_DEVICE_LOST) << rig.error.message;
    ASSERT_EQ(api().fence_signal(rig.queue, rig.fence, 100, &rig.error), QUIRE_OK);
    EXPECT_EQ(api().fence_wait_host(rig.fence, 100, kPatience, &rig.error), QUIRE_E_DEVICE_LOST);
    EXPECT_NE(last_fault().find("outside device memory"), std::string::npos) << last_fault();
    EXPECT_NE(last_fault().find("kernel quire_attend"), std::string::npos) << last_fault();
    EXPECT_EQ(rig.step(), QUIRE_E_DEVICE_LOST);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Driver, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
