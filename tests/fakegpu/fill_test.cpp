// SPDX-License-Identifier: Apache-2.0
//
// Fills on the emulated drivers: one range by the driver, any number of ranges by one launch.

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine_rig.hpp"

namespace quire::gpu_tests {

class Fills : public Engine {
 protected:
    static constexpr uint64_t kRange = 5, kDistance = 8;  // bytes

    struct Count {
        uint64_t fills, launches;
        bool operator==(const Count &) const = default;
    };
    Count count() const { return {calls(vendor().fill), calls(vendor().launch)}; }
    // Enqueues this many ranges.
    quire_status fill(uint64_t range_count) {
        std::vector<quire_be_range> ranges(range_count);
        for (uint64_t i = 0; i < range_count; ++i) {
            ranges[i] = {rig_->address + i * kDistance, kRange};
        }
        return api().fill(rig_->queue, ranges.data(), static_cast<uint32_t>(range_count), 0x6B,
                          &rig_->error);
    }
    Count counted(uint64_t range_count) {
        Count before = count();
        EXPECT_EQ(fill(range_count), QUIRE_OK) << rig_->error.message;
        Count now = count();
        return {now.fills - before.fills, now.launches - before.launches};
    }
    // Checks that the enqueued work sets these bytes and no others, then zeroes them again.
    void expect(uint64_t range_count) {
        std::vector<unsigned char> wanted(Rig::kBytes), zeros(Rig::kBytes);
        for (uint64_t i = 0; i < range_count; ++i) {
            std::fill_n(wanted.begin() + static_cast<int64_t>(i * kDistance), kRange, 0x6B);
        }
        copy_to_host(rig_->queue, rig_->address, Rig::kBytes);
        await();
        EXPECT_EQ(std::memcmp(rig_->host, wanted.data(), wanted.size()), 0);
        quire_be_range all = {rig_->address, Rig::kBytes};
        ASSERT_EQ(api().fill(rig_->queue, &all, 1, 0, &rig_->error), QUIRE_OK);
        await();
    }

    void await() {
        ASSERT_EQ(api().fence_signal(rig_->queue, rig_->fence, ++rig_->value, &rig_->error),
                  QUIRE_OK);
        ASSERT_EQ(rig_->sync(), QUIRE_OK) << rig_->error.message;
    }
};

TEST_P(Fills, of_one_range_is_the_drivers_and_of_many_takes_one_launch) {
    for (uint64_t range_count : {1, 2, 160, 161, 8'000}) {
        Count wanted = range_count == 1 ? Count{1, 0} : Count{0, 1};
        EXPECT_EQ(counted(range_count), wanted) << range_count;
        expect(range_count);
    }
}

// More than fits into the arguments and the ring, in pieces of a copy's size.
TEST_P(Fills, of_large_ranges_takes_one_launch) {
    constexpr uint64_t kLarge = uint64_t{300} << 20;
    uint64_t at = 0;
    void *none = nullptr;
    ASSERT_EQ(
        api().mem_alloc(rig_->device, 2 * kLarge, QUIRE_BE_MEMORY_DEVICE, &at, &none, &rig_->error),
        QUIRE_OK)
        << rig_->error.message;
    quire_be_range ranges[] = {{at, kLarge}, {at + kLarge + 16, kLarge - 16}};
    Count before = count();
    ASSERT_EQ(api().fill(rig_->queue, ranges, 2, 0xD2, &rig_->error), QUIRE_OK);
    EXPECT_EQ(calls(vendor().launch) - before.launches, 1u);
    const uint64_t ends[] = {at, at + kLarge - 16, at + kLarge, at + kLarge + 16,
                             at + 2 * kLarge - 16};
    for (uint64_t i = 0; i < std::size(ends); ++i) {
        quire_be_copy copy = {rig_->host_address + i * 16, ends[i], 16, QUIRE_BE_COPY_D2H, 0};
        ASSERT_EQ(api().copy(rig_->queue, &copy, 1, &rig_->error), QUIRE_OK);
    }
    await();
    for (uint64_t i = 0; i < std::size(ends) * 16; ++i) {
        ASSERT_EQ(rig_->host[i], i / 16 == 2 ? 0 : 0xD2) << i;
    }
    api().mem_free(rig_->device, at, 2 * kLarge, QUIRE_BE_MEMORY_DEVICE);
}

TEST_P(Fills, of_many_ranges_needs_no_room) {
    ASSERT_EQ(fill(1), QUIRE_OK);
    Engine::fail(vendor().host_alloc, 1, kOutOfMemory);
    EXPECT_EQ(counted(8'000), (Count{0, 50})) << "160 by a launch's arguments";
    expect(8'000);
}

TEST_P(Fills, that_are_held_have_their_ranges_themselves) {
    quire_be_fence *go = nullptr;
    ASSERT_EQ(api().fence_create(rig_->device, 0, &go, &rig_->error), QUIRE_OK);
    ASSERT_EQ(api().fence_wait(rig_->queue, go, 1, &rig_->error), QUIRE_OK);
    EXPECT_EQ(counted(1'000), (Count{0, 0})) << "the queue is held";
    ASSERT_EQ(api().fence_signal_host(go, 1, &rig_->error), QUIRE_OK);
    expect(1'000);
    api().fence_destroy(go);
}

TEST_P(Fills, that_the_driver_refuses_change_nothing) {
    Engine::fail(vendor().launch, 1, kOutOfMemory);
    EXPECT_LT(fill(3), 0);
    Engine::fail(vendor().fill, 1, kOutOfMemory);
    EXPECT_LT(fill(1), 0);
    expect(0);
    EXPECT_EQ(counted(3), (Count{0, 1})) << "the queue goes on";
    expect(3);
}

INSTANTIATE_TEST_SUITE_P(Vendors, Fills, testing::Values(0, 1), name_of);

}  // namespace quire::gpu_tests
