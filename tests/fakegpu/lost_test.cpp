// SPDX-License-Identifier: Apache-2.0
//
// Which of a driver's errors lose the device, and which fail only one call.

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class Lost : public Driver {};

// The errors that a lost device returns for every call.
TEST_P(Lost, device_ends_every_wait) {
    constexpr int kGone[] = {46, 201, 214, 220, 226, 719, 721, 805, 806, 810, 999, 12345};
    for (int code : kGone) {
        Rig rig(api());
        ASSERT_EQ(rig.open(), QUIRE_OK) << code << rig.error.message;
        quire_be_fence *go = nullptr;
        ASSERT_EQ(api().fence_create(rig.device, 0, &go, &rig.error), QUIRE_OK);
        ASSERT_EQ(api().fence_wait(rig.queue, go, 1, &rig.error), QUIRE_OK);
        ASSERT_EQ(api().fence_signal(rig.queue, rig.fence, 1, &rig.error), QUIRE_OK);
        break_device(code);
        EXPECT_EQ(api().fence_wait_host(rig.fence, 1, kPatience, &rig.error), QUIRE_E_DEVICE_LOST)
            << code;
        EXPECT_EQ(api().quiesce(rig.device, kPatience, &rig.error), QUIRE_E_DEVICE_LOST) << code;
        api().fence_destroy(go);
        break_device(0);
    }
}

// As at the end of a process, when the driver is gone before the engine's objects are: 4 is CUDA's
// "driver shutting down".
TEST_P(Lost, objects_go_though_the_driver_is_gone) {
    for (int code : {4, 719, 999}) {
        {
            Rig rig(api());
            ASSERT_EQ(rig.open(), QUIRE_OK) << code << rig.error.message;
            ASSERT_EQ(rig.step(), QUIRE_OK) << code << rig.error.message;
            ASSERT_EQ(rig.sync(), QUIRE_OK) << code << rig.error.message;
            break_device(code);
        }
        EXPECT_EQ(live_objects(), 0u) << code;
        break_device(0);
        Rig again(api());
        ASSERT_EQ(again.open(), QUIRE_OK) << code << again.error.message;
        EXPECT_EQ(again.step(), QUIRE_OK) << code << again.error.message;
        EXPECT_EQ(again.sync(), QUIRE_OK) << code << again.error.message;
    }
}

// 704 and similar errors: the request was invalid, but the context still works.
TEST_P(Lost, device_is_not_by_an_error_of_one_call) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    for (int code : {1, 701, 704, 705, 708, 711, 712, 713, 720}) {
        fail(vendor().fill, 1, code);
        EXPECT_EQ(test::fill_range(api(), rig.queue, rig.address, 16, 0, &rig.error),
                  QUIRE_E_BACKEND)
            << code;
        EXPECT_EQ(rig.step(), QUIRE_OK) << code << rig.error.message;
        EXPECT_EQ(rig.sync(), QUIRE_OK) << code << rig.error.message;
    }
}

INSTANTIATE_TEST_SUITE_P(Vendors, Lost, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
