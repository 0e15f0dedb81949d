// SPDX-License-Identifier: Apache-2.0
//
// An engine that uses the same driver in the same thread does not notice the library.

#include "driver_rig.hpp"

namespace quire::gpu_tests {

class Neighbour : public Driver {};

// Meanwhile, an engine captures a graph in the global mode.
TEST_P(Neighbour, that_captures_is_not_disturbed) {
    Rig before(api());
    ASSERT_EQ(before.open(), QUIRE_OK) << before.error.message;
    symbol<void (*)()>("fakegpu_begin_capture")();
    {
        Rig rig(api());
        EXPECT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message;
        EXPECT_EQ(api().quiesce(rig.device, kPatience, &rig.error), QUIRE_OK);
    }
    EXPECT_EQ(symbol<int (*)()>("fakegpu_end_capture")(), 0) << "a call broke the capture";
    // The thread's own mode is restored: its own unsafe calls are still refused.
    symbol<void (*)()>("fakegpu_begin_capture")();
    symbol<void (*)()>("fakegpu_call_unsafely")();
    EXPECT_NE(symbol<int (*)()>("fakegpu_end_capture")(), 0)
        << "the thread's mode was not restored";
}

INSTANTIATE_TEST_SUITE_P(Vendors, Neighbour, testing::Values(0, 1), name_of);

// Only HIP remembers the error of the last failed call.
class HipError : public Driver {};

TEST_P(HipError, of_ours_is_not_left_to_the_engine) {
    auto peek = symbol<int (*)()>("hipPeekAtLastError");
    auto forget = symbol<int (*)()>("hipGetLastError");
    forget();
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    uint64_t address = 0;
    void *pointer = nullptr;
    EXPECT_EQ(api().mem_alloc(rig.device, uint64_t{1} << 50, QUIRE_BE_MEMORY_DEVICE, &address,
                              &pointer, &rig.error),
              QUIRE_E_DEVICE_MEMORY);
    EXPECT_EQ(peek(), 0);
    for (const char *name : {"hipGetDeviceCount", "hipModuleLaunchKernel"}) {
        fail(name, 1, kOutOfMemory);
        uint32_t count = 0;
        quire_status counted = api().probe(&count, &rig.error);
        quire_status stepped = rig.step();
        EXPECT_TRUE(counted != QUIRE_OK || stepped != QUIRE_OK) << name;
        EXPECT_EQ(peek(), 0) << name;
    }
    // The engine's own error stays for the engine.
    symbol<int (*)(int)>("hipSetDevice")(77);
    EXPECT_NE(peek(), 0);
    uint32_t count = 0;
    EXPECT_EQ(api().probe(&count, &rig.error), QUIRE_OK);
    EXPECT_NE(forget(), 0);
}

INSTANTIATE_TEST_SUITE_P(Vendors, HipError, testing::Values(1), name_of);

}  // namespace quire::gpu_tests
