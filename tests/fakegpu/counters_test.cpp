// SPDX-License-Identifier: Apache-2.0
//
// What the emulator counts of kernels whose requests can be counted by hand, and that the limits
// catch a copy in which lanes are strided and an array whose rows begin in one bank.

#include <gtest/gtest.h>

#include "count_limits.hpp"
#include "kernels/dialect.hpp"

namespace quire::gpu {

namespace {

struct CountCall {
    uint64_t in;
    uint32_t way;
};

struct CountShared {
    SharedArray<uint32_t, 1> pad;  // the next array begins at byte 16
    SharedArray<uint16_t, 2048> halves;
    SharedArray<float, 2560> floats;
    SharedArray<uint64_t, 64> longs;
};

// Each warp copies 1 KiB in two requests. Way 0: lanes take neighbouring 16 bytes. Way 1: each lane
// takes 32 bytes of its own.
QUIRE_KERNEL(count_copies, 64, CountCall, call) {
    QUIRE_SHARED(CountShared, shared);
    for (uint32_t half = 0; half < 2; ++half) {
        uint32_t self = thread_index();
        uint32_t at = call.way == 0 ? half * 64 + self : self * 2 + half;
        copy_async(shared.halves, at * 8, call.in + at * 16);
    }
    wait_copies();
}

// The scores of a tile as mma.sync scatters them: lane / 4 is the row, lane % 4 the column.
QUIRE_KERNEL(count_rows, 32, CountCall, call) {
    QUIRE_SHARED(CountShared, shared);
    shared.floats[thread_index() / 4 * call.way + thread_index() % 4] = 1.0f;
}

QUIRE_KERNEL(count_widths, 64, CountCall, call) {
    QUIRE_SHARED(CountShared, shared);
    uint32_t self = thread_index();
    shared.longs[self] = self;
    shared.floats[self] = 1.0f;
    barrier();
    if (self % 32 < 5) load<uint16_t>(call.in + self * 2);
    load<uint32_t>(call.in);
    // Lanes leave the loop one after another.
    for (uint32_t i = 0; i <= self % 4; ++i) load<uint8_t>(call.in + i * 32);
    ballot(true);
    shuffle_xor(self, 1);
}

class Counting : public testing::TestWithParam<uint32_t> {
 protected:
    Counting() : address_(fakegpu::allocate(4096, false)) {}
    ~Counting() override { fakegpu::release(address_, false); }

    const std::vector<fakegpu::SiteCount> &run(const char *kernel, uint32_t way,
                                               uint32_t width = GetParam()) {
        CountCall call = {address_, way};
        counters_.clear();
        fakegpu::Launch launch = {fakegpu::find_kernel(kernel), &call, 1, 1, width};
        launch.counters = &counters_;
        EXPECT_EQ(fakegpu::run(launch), "");
        counts_ = counters_.counts();
        return counts_;
    }
    // The sum over sites of this kind and width.
    fakegpu::SiteCount sum(fakegpu::Kind kind, uint32_t size_bytes) const {
        fakegpu::SiteCount sum{};
        for (const fakegpu::SiteCount &count : counts_) {
            if (count.kind != kind || count.size_bytes != size_bytes) continue;
            sum.requests += count.requests;
            sum.bytes += count.bytes;
            sum.units += count.units;
            sum.least += count.least;
        }
        return sum;
    }
    void expect(fakegpu::Kind kind, uint32_t size_bytes, uint64_t requests, uint64_t bytes,
                uint64_t units, uint64_t least) const {
        fakegpu::SiteCount is = sum(kind, size_bytes);
        EXPECT_EQ(is.requests, requests) << name_of(kind);
        EXPECT_EQ(is.bytes, bytes) << name_of(kind);
        EXPECT_EQ(is.units, units) << name_of(kind);
        EXPECT_EQ(is.least, least) << name_of(kind);
    }

    uint64_t address_;
    fakegpu::Counters counters_;
    std::vector<fakegpu::SiteCount> counts_;
};

using fakegpu::Kind;

TEST_P(Counting, strided_lanes_take_twice_the_sectors_and_wavefronts) {
    // 64 threads are two warps of 32 lanes, or one of 64; each thread copies twice.
    uint64_t warps = 64 / GetParam();
    run("count_copies", 0);
    expect(Kind::global_copy, 16, 2 * warps, 2048, 64, 64);
    expect(Kind::shared_copy, 16, 2 * warps, 2048, 16, 16);
    run("count_copies", 1);
    expect(Kind::global_copy, 16, 2 * warps, 2048, 128, 64);
    expect(Kind::shared_copy, 16, 2 * warps, 2048, 32, 16);
}

TEST_P(Counting, rows_of_64_floats_begin_in_one_bank) {
    run("count_rows", 64, 32);
    expect(Kind::shared_store, 4, 1, 128, 8, 1);
    run("count_rows", 72, 32);
    expect(Kind::shared_store, 4, 1, 128, 2, 1);
    run("count_rows", 68, 32);
    expect(Kind::shared_store, 4, 1, 128, 1, 1);
}

TEST_P(Counting, widths_masks_and_collectives) {
    run("count_widths", 0);
    uint64_t warps = 64 / GetParam();
    expect(Kind::shared_store, 8, warps, 512, 4, 4);
    expect(Kind::shared_store, 4, warps, 256, 2, 2);
    // Lanes 0 to 4, and 32 to 36, which are lanes 0 to 4 of a second warp or more of the first.
    expect(Kind::global_load, 2, warps, 20, 2, GetParam() == 32 ? 2 : 1);
    expect(Kind::global_load, 4, warps, 4 * warps, warps, warps);
    expect(Kind::global_load, 1, 4 * warps, 4 * warps, 4 * warps, 4 * warps);
    for (Kind kind : {Kind::barrier, Kind::ballot, Kind::shuffle}) {
        expect(kind, 0, warps, 0, warps, warps);
    }
}

TEST_P(Counting, sites_have_a_file_and_a_line) {
    run("count_rows", 64, 32);
    ASSERT_EQ(counts_.size(), 1u);
    EXPECT_STREQ(counts_[0].file, "counters_test.cpp");
    EXPECT_STREQ(counts_[0].kernel, "count_rows");
    EXPECT_NE(
        counters_.json().find("\"kind\": \"shared_store\", \"size_bytes\": 4, \"requests\": 1"),
        std::string::npos)
        << counters_.json();
}

TEST_P(Counting, limits_catch_strided_lanes_and_one_bank) {
    fakegpu::Limits limits = {1, 1, 2, 8, 0};
    EXPECT_EQ(judge(limits, fakegpu::measure(run("count_copies", 0, 32), "count_copies", 2048)),
              std::vector<std::string>());
    std::vector<std::string> problems =
        judge(limits, fakegpu::measure(run("count_copies", 1, 32), "count_copies", 2048));
    ASSERT_EQ(problems.size(), 3u);
    EXPECT_NE(problems[0].find("sectors 2.000000 at counters_test.cpp"), std::string::npos);
    EXPECT_NE(problems[1].find("wavefronts 2.000000 at counters_test.cpp"), std::string::npos);
    EXPECT_NE(problems[2].find("passes 16.000000 exceed"), std::string::npos);
    problems =
        judge({0, 1, 1, 1, 0}, fakegpu::measure(run("count_rows", 64, 32), "count_rows", 1024));
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_NE(problems[0].find("wavefronts 8.000000"), std::string::npos) << problems[0];
}

TEST_P(Counting, limits_catch_barriers_and_a_limit_that_is_loose) {
    run("count_widths", 0, 32);
    fakegpu::Measured is = fakegpu::measure(counts_, "count_widths", 2048);
    EXPECT_EQ(judge(is, is), std::vector<std::string>());
    fakegpu::Limits without = is;
    without.barriers = 0;
    EXPECT_EQ(judge(without, is).size(), 1u);
    fakegpu::Limits loose = is;
    loose.instructions *= 1.2;
    ASSERT_EQ(judge(loose, is).size(), 1u);
    EXPECT_NE(judge(loose, is)[0].find("lower the limit"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Widths, Counting, testing::Values(32u, 64u));

}  // namespace

}  // namespace quire::gpu
