// SPDX-License-Identifier: Apache-2.0
//
// Lifetime of objects: what is counted, what may outlive what, and that nothing leaks.

#include <unistd.h>

#include <cstdio>

#include "attention_case.hpp"
#include "shapes.hpp"

namespace quire::conformance {

class LifeTest : public SubjectTest {};

namespace {

uint64_t live_objects() {
    Error error;
    uint64_t live = 0;
    must(api().shutdown(&live, &error), error);
    return live;
}

// Resident memory of this process, which includes what a plugin keeps on the host.
uint64_t resident_bytes() {
    unsigned long total = 0, resident = 0;
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    if (file != nullptr) std::fclose(file);
    return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void come_and_go(Rig &rig, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
        Fence fence(rig);
        rig.signal(rig.queue(), fence, 1);
        if (i % 256 == 0) rig.sync();
    }
    rig.sync();
}

}  // namespace

TEST_F(LifeTest, shutdown_counts_what_was_not_released) {
    uint64_t before = live_objects();
    {
        Rig rig;  // a device and a queue
        EXPECT_EQ(live_objects(), before + 2);
        Memory memory(rig, 1);
        Memory host(rig, 1, QUIRE_BE_MEMORY_HOST);
        EXPECT_EQ(live_objects(), before + 4);
        Fence fence(rig);
        EXPECT_EQ(live_objects(), before + 5);
    }
    EXPECT_EQ(live_objects(), before);
    Error error;
    expect_refused(api().shutdown(nullptr, &error), error, QUIRE_E_ARG);
}

TEST_F(LifeTest, shutdown_counts_plans) {
    if (const char *function = missing_function(Needs::attention))
        GTEST_SKIP() << function << " is NULL";
    Rig rig;
    uint64_t before = live_objects();
    quire_be_plan_desc desc{};
    desc.struct_size = sizeof desc;
    desc.shape = plain_shape(rig);
    desc.max_rows = desc.max_query_tokens = desc.max_blocks_per_row = 1;
    Error error;
    quire_be_plan *plan = nullptr;
    must(api().plan_create(rig.device(), &desc, &plan, &error), error);
    EXPECT_EQ(live_objects(), before + 1);
    api().plan_destroy(plan);
    EXPECT_EQ(live_objects(), before);
}

TEST_F(LifeTest, failed_calls_leave_no_object) {
    Rig rig;
    uint64_t before = live_objects();
    Error error;
    uint64_t address = 0;
    void *host = nullptr;
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    quire_native unknown{};
    unknown.kind = 0x7777;
    EXPECT_LT(api().mem_alloc(rig.device(), UINT64_MAX / 2, 0, &address, &host, &error), 0);
    quire_be_device_desc nowhere = device_desc(UINT32_MAX, 0);
    EXPECT_LT(api().device_open(&nowhere, &device, &error), 0);
    EXPECT_LT(api().queue_bind(rig.device(), &unknown, &queue, &error), 0);
    EXPECT_EQ(live_objects(), before);
}

TEST_F(LifeTest, extension_of_an_unknown_type_is_refused) {
    uint64_t before = live_objects();
    quire_chain unknown = {0x7777, sizeof unknown, nullptr};
    quire_be_device_desc desc = device_desc(0, 0);
    desc.next = &unknown;
    quire_be_device *device = nullptr;
    Error error;
    expect_refused(api().device_open(&desc, &device, &error), error, QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(device, nullptr);
    EXPECT_EQ(live_objects(), before);
}

TEST_F(LifeTest, shutdown_with_live_objects_counts_them_and_breaks_nothing) {
    Rig rig;
    Memory memory(rig, 4096);
    EXPECT_GE(live_objects(), 3u);
    rig.fill(rig.queue(), memory.address(), 4096, 5);
    EXPECT_EQ(rig.read(memory.address(), 4096), std::vector<unsigned char>(4096, 5));
}

TEST_F(LifeTest, fences_and_queues_may_be_released_after_their_device_was_closed) {
    uint64_t before = live_objects();
    Error error;
    quire_be_device *device = nullptr;
    quire_be_queue *queue = nullptr;
    quire_be_fence *fence = nullptr;
    quire_be_device_desc desc = device_desc(0, 0);
    must(api().device_open(&desc, &device, &error), error);
    must(api().queue_bind(device, nullptr, &queue, &error), error);
    must(api().fence_create(device, 0, &fence, &error), error);
    must(api().fence_signal(queue, fence, 3, &error), error);
    EXPECT_EQ(api().fence_wait_host(fence, 3, patience_ns(), &error), QUIRE_OK);
    api().device_close(device);
    EXPECT_EQ(live_objects(), before + 2);
    uint64_t value = 0;
    EXPECT_EQ(api().fence_read(fence, &value, &error), QUIRE_OK);
    EXPECT_EQ(value, 3u);
    api().fence_destroy(fence);
    api().queue_release(queue);
    EXPECT_EQ(live_objects(), before);
}

TEST_F(LifeTest, devices_come_and_go) {
    uint64_t before = live_objects();
    for (int i = 0; i < (options().is_short ? 10 : 50); ++i) {
        Rig rig(2);
        Memory memory(rig, 100'000);
        Fence fence(rig);
        rig.fill(rig.queue(), memory.address(), 100'000, 1);
        rig.sync();
        rig.signal(rig.queue(), fence, 1);  // may still be in flight when everything is released
    }
    EXPECT_EQ(live_objects(), before);
}

// A count can be wrong; memory cannot. A leaked fence is at least 32 bytes: 60,000 are 1.9 MB.
TEST_F(LifeTest, fences_that_come_and_go_leave_no_memory_behind) {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "the address sanitizer keeps freed memory";
#endif
    Rig rig;
    come_and_go(rig, 20'000);  // fills the pools
    uint64_t before = resident_bytes();
    come_and_go(rig, options().is_short ? 60'000 : 200'000);
    EXPECT_LT(resident_bytes(), before + (1 << 20));
}

}  // namespace quire::conformance
