// SPDX-License-Identifier: Apache-2.0
//
// Fills: a byte over ranges, and no byte outside them.

#include <algorithm>
#include <vector>

#include "subject.hpp"
#include "tests/device/fill_range.hpp"

namespace quire::conformance {

class FillTest : public SubjectTest {};

TEST_F(FillTest, sets_its_bytes_and_no_others) {
    Rig rig;
    Guarded memory(rig, 9000);
    rig.fill(rig.queue(), memory.address() + 1, 1, 0xEE);
    rig.fill(rig.queue(), memory.address() + 3, 8000, 0);
    rig.fill(rig.queue(), memory.address() + 8999, 1, 255);
    rig.sync();
    auto bytes = memory.read();
    for (uint64_t i = 0; i < bytes.size(); ++i) {
        unsigned char expected = Guarded::unwritten(i);
        if (i == 1) expected = 0xEE;
        if (i >= 3 && i < 8003) expected = 0;
        if (i == 8999) expected = 255;
        ASSERT_EQ(bytes[i], expected) << i;
    }
}

TEST_F(FillTest, large_fill_sets_every_byte) {
    Rig rig;
    constexpr uint64_t kSize = (17 << 20) + 3;
    Memory memory(rig, kSize + 1);
    rig.fill(rig.queue(), memory.address(), kSize, 0x5A);
    auto bytes = rig.read(memory.address(), kSize + 1);
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), 0x5A), static_cast<int64_t>(kSize));
    EXPECT_EQ(bytes.back(), 0);
}

// Sizes and distances of all kinds, and empty ranges; more of them than
// fit into the arguments of one launch.
TEST_F(FillTest, of_many_ranges_sets_theirs_and_no_others) {
    Rig rig;
    constexpr uint64_t kSize = 1 << 20;
    Guarded memory(rig, kSize);
    std::vector<quire_be_range> ranges;
    uint64_t end = 0;
    for (uint64_t i = 0; end < kSize - 30'000; ++i) {
        uint64_t begin = end + (i % 3 == 0 ? 16 - end % 16 : i % 5);
        uint64_t size_bytes = i % 7 == 0 ? 16 * (i % 1100) : i * 37 % 2'500;
        if (i % 11 == 0) size_bytes = 0;
        ranges.push_back({size_bytes == 0 ? 0 : memory.address() + begin, size_bytes});
        end = begin + size_bytes;
    }
    ASSERT_GT(ranges.size(), 600u);
    std::vector<bool> is_filled(kSize);
    for (const quire_be_range &range : ranges) {
        if (range.size_bytes == 0) continue;
        auto first = is_filled.begin() + static_cast<int64_t>(range.address - memory.address());
        std::fill_n(first, range.size_bytes, true);
    }
    Error error;
    ASSERT_EQ(
        api().fill(rig.queue(), ranges.data(), static_cast<uint32_t>(ranges.size()), 0xC4, &error),
        QUIRE_OK)
        << error.message;
    std::fill(ranges.begin(), ranges.end(), quire_be_range{});  // they are the caller's again
    rig.sync();
    auto bytes = memory.read();
    for (uint64_t i = 0; i < bytes.size(); ++i) {
        ASSERT_EQ(bytes[i], is_filled[i] ? 0xC4 : Guarded::unwritten(i)) << i;
    }
}

TEST_F(FillTest, nothing_to_fill_is_done) {
    Rig rig;
    Error error;
    EXPECT_EQ(test::fill_range(api(), rig.queue(), 0, 0, 1, &error), QUIRE_OK);
    EXPECT_EQ(api().fill(rig.queue(), nullptr, 0, 1, &error), QUIRE_OK);
    quire_be_range empty[3] = {{8, 0}, {0, 0}, {0, 0}};
    EXPECT_EQ(api().fill(rig.queue(), empty, 3, 1, &error), QUIRE_OK);
    rig.sync();
}

TEST_F(FillTest, bad_arguments_are_refused) {
    Rig rig;
    Memory memory(rig, 64);
    Error error;
    expect_refused(test::fill_range(api(), nullptr, memory.address(), 8, 0, &error), error,
                   QUIRE_E_ARG);
    expect_refused(test::fill_range(api(), rig.queue(), memory.address(), 8, 256, &error), error,
                   QUIRE_E_ARG);
    expect_refused(test::fill_range(api(), rig.queue(), 0, 8, 0, &error), error, QUIRE_E_ARG);
    expect_refused(test::fill_range(api(), rig.queue(), 64, UINT64_MAX, 0, &error), error,
                   QUIRE_E_ARG);
    expect_refused(api().fill(rig.queue(), nullptr, 1, 0, &error), error, QUIRE_E_ARG);
}

TEST_F(FillTest, with_one_bad_range_fills_none) {
    Rig rig;
    Guarded memory(rig, 4096);
    Error error;
    for (uint64_t bad : {uint64_t{0}, UINT64_MAX - 7}) {
        quire_be_range ranges[] = {{memory.address(), 1024}, {bad, 64}};
        expect_refused(api().fill(rig.queue(), ranges, 2, 5, &error), error, QUIRE_E_ARG);
    }
    quire_be_range ranges[] = {{memory.address(), 1024}, {memory.address() + 2048, 64}};
    expect_refused(api().fill(rig.queue(), ranges, 2, 999, &error), error, QUIRE_E_ARG);
    rig.sync();
    auto bytes = memory.read();
    for (uint64_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], Guarded::unwritten(i)) << i;
}

}  // namespace quire::conformance
