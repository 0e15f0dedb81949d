// SPDX-License-Identifier: Apache-2.0
//
// The backends of CUDA and HIP leave alone a process that queries no devices, and whatever a
// calling thread has made current.

#include <gtest/gtest.h>

#include <cstdlib>

#include "driver_rig.hpp"

namespace quire::gpu_tests {

namespace {

// Runs in a separate process: exits with 0 if the first query for devices opens the driver, and
// nothing before does.
[[noreturn]] void load_and_ask(const Vendor &vendor) {
    setenv(vendor.variable, vendor.driver.c_str(), 1);
    const quire_backend_api *api = test::plugin_table(plugin_of(vendor));
    Error error;
    if (!path_of_driver(vendor).empty()) std::_Exit(1);
    uint32_t count = 0;
    if (api->probe(&count, &error) != QUIRE_OK || count != 1) std::_Exit(2);
    std::_Exit(path_of_driver(vendor).empty() ? 3 : 0);
}

class Untouched : public testing::TestWithParam<size_t> {};

TEST_P(Untouched, driver_is_not_opened_before_devices_are_asked_for) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(load_and_ask(kVendors[GetParam()]), testing::ExitedWithCode(0), "");
}

INSTANTIATE_TEST_SUITE_P(Vendors, Untouched, testing::Values(0, 1), name_of);

}  // namespace

// An engine's thread with something of its own current: no context, a foreign context, or
// another of HIP's devices.
class Current : public Driver {
 protected:
    void TearDown() override {
        make_current(0);
        put_devices_beside(0);
        Driver::TearDown();
    }
    bool is_cuda() const { return GetParam() == 0; }
    void put_devices_beside(int count) {
        if (!is_cuda()) symbol<void (*)(int)>("fakegpu_put_devices_beside")(count);
    }
    void make_current(uint64_t what) {
        if (is_cuda()) {
            of_engine<int (*)(uint64_t)>("cuCtxSetCurrent")(what);
        } else {
            ASSERT_EQ(of_engine<int (*)(int)>("hipSetDevice")(static_cast<int>(what)), 0);
        }
    }
    uint64_t current() {
        uint64_t context = 0;
        int device = 0;
        if (is_cuda()) {
            EXPECT_EQ(of_engine<int (*)(uint64_t *)>("cuCtxGetCurrent")(&context), 0);
            return context;
        }
        EXPECT_EQ(of_engine<int (*)(int *)>("hipGetDevice")(&device), 0);
        return static_cast<uint64_t>(device);
    }
    void expect_kept(uint64_t what);
};

void Current::expect_kept(uint64_t what) {
    Rig rig(api());
    ASSERT_EQ(rig.open(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(current(), what) << "opening";
    ASSERT_EQ(rig.step(), QUIRE_OK) << rig.error.message;
    EXPECT_EQ(current(), what) << "a step";
    EXPECT_EQ(rig.sync(), QUIRE_OK) << rig.error.message << last_fault();
    EXPECT_EQ(api().quiesce(rig.device, kPatience, &rig.error), QUIRE_OK);
    EXPECT_EQ(current(), what) << "waiting";
    quire_be_device_props props{};
    props.struct_size = sizeof props;
    EXPECT_EQ(api().device_props(rig.device, &props, &rig.error), QUIRE_OK);
    EXPECT_EQ(current(), what) << "device_props";
    uint64_t address = 0;
    void *host = nullptr;
    for (uint32_t kind : {QUIRE_BE_MEMORY_DEVICE, QUIRE_BE_MEMORY_HOST}) {
        ASSERT_EQ(api().mem_alloc(rig.device, 64, kind, &address, &host, &rig.error), QUIRE_OK);
        EXPECT_EQ(current(), what) << "mem_alloc";
        api().mem_free(rig.device, address, 64, kind);
        EXPECT_EQ(current(), what) << "mem_free";
    }
    fail(vendor().fill, 1, kOutOfMemory);
    EXPECT_LT(test::fill_range(api(), rig.queue, rig.address, 16, 0, &rig.error), 0);
    EXPECT_EQ(current(), what) << "a call that the driver refused";
    EXPECT_EQ(test::fill_range(api(), nullptr, rig.address, 16, 0, &rig.error), QUIRE_E_ARG);
    EXPECT_EQ(current(), what) << "a call that was refused";
}

TEST_P(Current, is_never_changed) {
    int mine = 0;
    uint64_t other = is_cuda() ? reinterpret_cast<uint64_t>(&mine) : 1;
    put_devices_beside(1);
    for (uint64_t what : {uint64_t{0}, other}) {
        make_current(what);
        expect_kept(what);
        EXPECT_EQ(current(), what) << "closing";
    }
}

INSTANTIATE_TEST_SUITE_P(Vendors, Current, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
