// SPDX-License-Identifier: Apache-2.0
//
// host_memory: arrays, buffers that are kept for reuse, and the checked arithmetic under them.

#include "core/base/host_memory.hpp"

#include <gtest/gtest.h>

#include "host.hpp"

namespace {

using namespace quire;

TEST(BufferPool, a_buffer_given_back_serves_the_next_of_its_size) {
    test::Host host;
    {
        BufferPool pool(&host.allocator);
        Buffer a, b;
        ASSERT_TRUE(pool.grow(&a, 20, 0));
        EXPECT_EQ(a.capacity, 32u);
        uint32_t *memory = a.data;
        pool.give_back(&a);
        EXPECT_EQ(a.data, nullptr);
        ASSERT_TRUE(pool.grow(&b, 30, 0));
        EXPECT_EQ(b.data, memory);
        EXPECT_EQ(host.calls, 1u);
        pool.give_back(&b);
    }
    EXPECT_EQ(host.live(), 0u);
    EXPECT_EQ(host.wrong_releases, 0u);
}

TEST(BufferPool, growing_keeps_what_it_is_told_to) {
    BufferPool pool(test::host());
    Buffer buffer;
    ASSERT_TRUE(pool.grow(&buffer, 16, 0));
    for (uint32_t i = 0; i < 16; ++i) buffer.data[i] = i * i;
    ASSERT_TRUE(pool.grow(&buffer, 1000, 16));
    for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(buffer.data[i], i * i);
    pool.give_back(&buffer);
}

TEST(BufferPool, a_failed_growth_leaves_the_buffer) {
    test::Host host;
    BufferPool pool(&host.allocator);
    Buffer buffer;
    ASSERT_TRUE(pool.grow(&buffer, 16, 0));
    buffer.data[3] = 7;
    host.fail_at = 2;
    EXPECT_FALSE(pool.grow(&buffer, 17, 16));
    EXPECT_EQ(buffer.capacity, 16u);
    EXPECT_EQ(buffer.data[3], 7u);
    EXPECT_FALSE(pool.grow(&buffer, 0xFFFFFFFF, 16)) << "larger than any class";
    pool.give_back(&buffer);
}

TEST(Array, a_size_that_overflows_is_refused) {
    test::Host host;
    Array<uint64_t> array(&host.allocator);
    EXPECT_FALSE(array.create(uint64_t{1} << 61));
    EXPECT_FALSE(array.reserve((uint64_t{1} << 60) + 1));
    EXPECT_EQ(host.calls, 0u);
}

TEST(Array, reserve_keeps_contents_and_a_failure_keeps_the_array) {
    test::Host host;
    {
        Array<uint32_t> array(&host.allocator);
        for (uint32_t i = 0; i < 100; ++i) ASSERT_TRUE(array.push_growing(i));
        host.fail_at = host.calls + 1;
        EXPECT_FALSE(array.reserve(1000));
        ASSERT_EQ(array.size(), 100u);
        for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(array[i], i);
    }
    EXPECT_EQ(host.live(), 0u);
    EXPECT_EQ(host.wrong_releases, 0u);
}

TEST(Checked, overflow_is_seen_at_the_border) {
    uint64_t out = 0;
    EXPECT_TRUE(checked_mul(UINT64_MAX, 1, &out));
    EXPECT_TRUE(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1, &out));
    EXPECT_FALSE(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32, &out));
    EXPECT_TRUE(checked_add(UINT64_MAX - 1, 1, &out));
    EXPECT_EQ(out, UINT64_MAX);
    EXPECT_FALSE(checked_add(UINT64_MAX, 1, &out));
}

TEST(Checked, ceil_div_does_not_overflow) {
    EXPECT_EQ(ceil_div(0, 16), 0u);
    EXPECT_EQ(ceil_div(16, 16), 1u);
    EXPECT_EQ(ceil_div(17, 16), 2u);
    EXPECT_EQ(ceil_div(0xFFFFFFFF, 16), 0x10000000u);
}

TEST(Checked, powers_of_two) {
    EXPECT_FALSE(is_power_of_two(0));
    EXPECT_TRUE(is_power_of_two(1));
    EXPECT_FALSE(is_power_of_two(6));
    EXPECT_EQ(next_power_of_two(0), 1u);
    EXPECT_EQ(next_power_of_two(64), 64u);
    EXPECT_EQ(next_power_of_two(65), 128u);
}

}  // namespace
