// SPDX-License-Identifier: Apache-2.0
//
// Borders: the border that follows from measured times, including those of a noisy machine or a
// broken driver; and which strings in the environment are valid borders.

#include "border.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace quire::gpu {

namespace {

constexpr uint64_t kKib = 1 << 10;
constexpr double kInfinite = std::numeric_limits<double>::infinity();

uint64_t border(const std::vector<Timing> &timings) {
    return border_of(timings.data(), timings.size());
}

// The kernel takes the same time at any copy size; the driver has a cost per copy.
std::vector<Timing> crossing() {
    return {{16 * kKib, 1.0, 3.7},
            {64 * kKib, 1.0, 1.4},
            {256 * kKib, 1.0, 0.9},
            {1024 * kKib, 1.0, 0.8}};
}

}  // namespace

TEST(Border, is_the_size_from_which_the_driver_is_faster) {
    EXPECT_EQ(border(crossing()), 256 * kKib);
}

TEST(Border, does_not_depend_on_the_order_of_the_timings) {
    std::vector<Timing> timings = crossing();
    auto by_size = [](const Timing &a, const Timing &b) { return a.size_bytes < b.size_bytes; };
    do {
        EXPECT_EQ(border(timings), 256 * kKib);
    } while (std::next_permutation(timings.begin(), timings.end(), by_size));
}

TEST(Border, of_a_driver_that_is_always_faster_is_the_smallest_size) {
    std::vector<Timing> timings = crossing();
    for (Timing &timing : timings) timing.kernel_ms = 5;
    EXPECT_EQ(border(timings), 16 * kKib);
}

TEST(Border, of_a_kernel_that_is_never_slower_is_none) {
    std::vector<Timing> timings = crossing();
    for (Timing &timing : timings) timing.kernel_ms = 0.8;
    EXPECT_EQ(border(timings), kAllByKernel);
    for (Timing &timing : timings) timing.kernel_ms = timing.driver_ms;
    EXPECT_EQ(border(timings), kAllByKernel) << "equal times are no reason for more calls";
}

// Another user slowed the link for a moment, so that the slower way seems a little faster.
TEST(Border, is_not_moved_by_a_little_noise_elsewhere) {
    const std::vector<Timing> sound = {{16 * kKib, 1, 4},
                                       {32 * kKib, 1, 2.5},
                                       {64 * kKib, 1, 0.7},
                                       {256 * kKib, 1, 0.6},
                                       {1024 * kKib, 1, 0.6}};
    ASSERT_EQ(border(sound), 64 * kKib);
    for (size_t i : {0, 3, 4}) {
        std::vector<Timing> noisy = sound;
        bool is_kernels = noisy[i].kernel_ms < noisy[i].driver_ms;
        double &slow = is_kernels ? noisy[i].kernel_ms : noisy[i].driver_ms;
        slow = 1.1 * std::max(noisy[i].kernel_ms, noisy[i].driver_ms);
        EXPECT_EQ(border(noisy), 64 * kKib) << i;
    }
}

TEST(Border, leaves_out_times_that_are_none) {
    for (double bad : {0.0, -1.0, std::nan(""), kInfinite, -kInfinite}) {
        for (size_t i = 0; i < 2; ++i) {
            std::vector<Timing> timings = crossing();
            timings[i].driver_ms = bad;
            EXPECT_EQ(border(timings), 256 * kKib) << bad << " at " << i;
            timings[i].driver_ms = 0.1;
            timings[i].kernel_ms = bad;
            EXPECT_EQ(border(timings), 256 * kKib) << bad << " at " << i;
        }
        std::vector<Timing> timings = crossing();
        timings[2].driver_ms = bad;
        EXPECT_EQ(border(timings), 1024 * kKib) << bad;
        for (Timing &timing : timings) timing.driver_ms = bad;
        EXPECT_EQ(border(timings), kGuessedBorder) << bad;
    }
    EXPECT_EQ(border_of(nullptr, 0), kGuessedBorder);
}

TEST(Border, of_copies_between_memories_of_the_host_is_none) {
    Borders borders;
    std::fill(std::begin(borders.size_bytes), std::end(borders.size_bytes), 64 * kKib);
    quire_be_copy copy{};
    for (uint32_t kind :
         {QUIRE_BE_COPY_D2D, QUIRE_BE_COPY_D2H, QUIRE_BE_COPY_H2D, QUIRE_BE_COPY_H2H}) {
        copy.kind = kind;
        copy.size_bytes = 64 * kKib;
        EXPECT_EQ(borders.is_for_driver(copy), kind != QUIRE_BE_COPY_H2H) << kind;
        copy.size_bytes = 64 * kKib - 1;
        EXPECT_FALSE(borders.is_for_driver(copy)) << kind;
    }
}

TEST(Border, is_read_from_digits_alone) {
    uint64_t read = 7;
    EXPECT_TRUE(parse_border("0", &read));
    EXPECT_EQ(read, 0u);
    EXPECT_TRUE(parse_border("65536", &read));
    EXPECT_EQ(read, 65536u);
    EXPECT_TRUE(parse_border("18446744073709551615", &read));
    EXPECT_EQ(read, kAllByKernel);
    for (const char *wrong :
         {"", " 1", "1 ", "+1", "-1", "64k", "0x10", "1e3", "never", "18446744073709551616"}) {
        EXPECT_FALSE(parse_border(wrong, &read)) << wrong;
    }
}

}  // namespace quire::gpu
