// SPDX-License-Identifier: Apache-2.0
//
// The emulator: kernels compute the right results at both warp widths, and each
// planted mistake is named.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/dialect.hpp"
#include "kernels/fragment.hpp"

namespace quire::gpu {

namespace {

struct Numbers {
    uint64_t in;
    uint64_t out;
    uint32_t count;
    SmallOfA small_of_a;
};

struct SumShared {
    SharedArray<uint32_t, 128> parts;
};

// The sum of each block's numbers, by a tree.
QUIRE_KERNEL(test_sum, 128, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    uint64_t at = group_index() * 128 + thread_index();
    shared.parts[thread_index()] = at < call.count ? load<uint32_t>(call.in + at * 4) : 0u;
    for (uint32_t step = 64; step != 0; step /= 2) {
        barrier();
        if (thread_index() < step) {
            uint32_t other = shared.parts[thread_index() + step];
            shared.parts[thread_index()] = shared.parts[thread_index()] + other;
        }
    }
    if (thread_index() == 0) store<uint32_t>(call.out + group_index() * 4, shared.parts[0]);
}

// As test_sum, but without barriers.
QUIRE_KERNEL(test_race, 128, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    shared.parts[thread_index()] = thread_index();
    uint32_t other = shared.parts[(thread_index() + 1) % 128];
    store<uint32_t>(call.out + thread_index() * 4, other);
}

QUIRE_KERNEL(test_race_of_writes, 64, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    shared.parts[thread_index() / 2] = call.count;
}

QUIRE_KERNEL(test_read_of_nothing, 64, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    if (thread_index() == 0) store<uint32_t>(call.out, shared.parts[5]);
}

QUIRE_KERNEL(test_write_past_shared, 64, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    shared.parts[thread_index() + call.count] = 1u;
}

QUIRE_KERNEL(test_write_past_the_end, 64, Numbers, call) {
    store<uint32_t>(call.out + (thread_index() + group_index() * 64) * 4, 1);
}

QUIRE_KERNEL(test_misaligned, 64, Numbers, call) { load<uint32_t>(call.out + 2); }

QUIRE_KERNEL(test_missing_barrier, 64, Numbers, call) {
    if (thread_index() < call.count) barrier();
}

QUIRE_KERNEL(test_two_barriers, 64, Numbers, call) {
    if (thread_index() < call.count) {
        barrier();
    } else {
        barrier();
    }
}

QUIRE_KERNEL(test_missing_lane, 64, Numbers, call) {
    if (thread_index() % 32 < call.count) ballot(true);
}

QUIRE_KERNEL(test_warp, 64, Numbers, call) {
    store<uint32_t>(call.out + thread_index() * 4, warp_max(thread_index() * 7 % 64));
    uint64_t odd = ballot(thread_index() % 2 == 1);
    if (thread_index() == 0) store<uint64_t>(call.in, odd);
}

// A collective orders lanes of one warp like a barrier; other warps it does not.
QUIRE_KERNEL(test_ordered_by_warp, 64, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    shared.parts[thread_index()] = thread_index();
    ballot(true);
    store<uint32_t>(call.out + thread_index() * 4, shared.parts[thread_index() ^ call.count]);
}

// A lane writes an element that lanes of its warp read before a collective, and another's if asked.
QUIRE_KERNEL(test_write_after_warp, 64, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    uint32_t first = thread_index() / warp_width() * warp_width();
    if (thread_index() == first) shared.parts[first] = first;
    ballot(true);
    store<uint32_t>(call.out + thread_index() * 4, shared.parts[first]);
    ballot(true);
    uint32_t writer = first + call.count;
    if (thread_index() == writer) shared.parts[first] = 1u;
    if (call.count == 2) store<uint32_t>(call.out, shared.parts[first]);
}

// All threads read an element, and one writes it after a collective of its warp.
QUIRE_KERNEL(test_write_after_block, 128, Numbers, call) {
    QUIRE_SHARED(SumShared, shared);
    if (thread_index() == 0) shared.parts[0] = 0u;
    barrier();
    store<uint32_t>(call.out + thread_index() * 4, shared.parts[0]);
    ballot(true);
    if (thread_index() == 127) shared.parts[0] = 1u;
}

// An array of 48 KiB, and one with an element more.
struct FullShared {
    SharedArray<uint32_t, 12288> words;
};
struct OverfullShared {
    SharedArray<uint32_t, 12288> words;
    SharedArray<uint16_t, 1> more;
};
QUIRE_KERNEL(test_full_shared, 32, Numbers, call) {
    QUIRE_SHARED(FullShared, shared);
    shared.words[thread_index()] = call.count;
}
QUIRE_KERNEL(test_overfull_shared, 32, Numbers, call) {
    QUIRE_SHARED(OverfullShared, shared);
    shared.words[thread_index()] = call.count;
}
QUIRE_KERNEL(test_large_shared, 32, Numbers, call) {
    QUIRE_LARGE_SHARED(OverfullShared, shared, 49168);
    shared.words[thread_index()] = call.count;
}

struct CopyShared {
    SharedArray<uint16_t, 1024> halves;
};

// Copies 16 bytes per thread and passes them on: count 0 correctly, 1 without waiting for them, 2
// without a barrier, 3 without ever waiting.
QUIRE_KERNEL(test_late_copy, 64, Numbers, call) {
    QUIRE_SHARED(CopyShared, shared);
    uint32_t self = thread_index();
    copy_async(shared.halves, self * 8, call.in + self * 16);
    if (call.count == 3) return;
    if (call.count != 1) wait_copies();
    if (call.count != 2) barrier();
    uint32_t other = (self + 1) % 64;
    uint16_t half = shared.halves[other * 8];
    store<uint16_t>(call.out + self * 2, half);
    wait_copies();
}

// Two copies of 16 bytes per thread, one ended after the other. Count 0 reads the first after its
// wait, 1 reads the second, 2 overwrites the first without a barrier after its readers.
QUIRE_KERNEL(test_older_copies, 64, Numbers, call) {
    QUIRE_SHARED(CopyShared, shared);
    uint32_t self = thread_index();
    for (uint32_t half = 0; half < 2; ++half) {
        copy_async(shared.halves, half * 512 + self * 8, call.in + self * 16);
        end_copies();
    }
    wait_older_copies();
    barrier();
    uint32_t other = (self + 1) % 64;
    uint16_t number = shared.halves[(call.count == 1 ? 512 : 0) + other * 8];
    store<uint16_t>(call.out + self * 2, number);
    if (call.count == 2) copy_async(shared.halves, self * 8, call.in + self * 16);
    wait_copies();
}

struct MatrixShared {
    SharedArray<uint16_t, 256> a;
    SharedArray<uint16_t, 256> b;
};

// Multiplies the 16 x 16 numbers at `in` by the 16 x 16 after them, as stored, in format `count`.
QUIRE_KERNEL(test_product, 64, Numbers, call) {
    QUIRE_SHARED(MatrixShared, shared);
    for (uint32_t i = thread_index(); i < 256; i += 64) {
        shared.a[i] = load<uint16_t>(call.in + i * 2);
        shared.b[i] = load<uint16_t>(call.in + 512 + i * 2);
    }
    barrier();
    if (thread_index() >= warp_width()) return;
    Tile tile;
    clear(tile);
    add_product(tile, call.count, shared.a, {0, 16, 1}, shared.b, {0, 1, 16}, call.small_of_a);
    for (uint32_t i = 0; i < fragment_elements(); ++i) {
        store<float>(call.out + (row_of_sum(i) * 16 + column_of_sum(i)) * 4, tile.v[i]);
    }
}

struct MinShared {
    SharedArray<int32_t, 1> least;
};
QUIRE_KERNEL(test_atomics, 64, Numbers, call) {
    QUIRE_SHARED(MinShared, shared);
    auto self = static_cast<int32_t>(thread_index());
    if (self == 0) shared.least[0] = 1000;
    barrier();
    atomic_min(shared.least, 0, (self - 20) * (self - 20));
    barrier();
    atomic_max(call.out, static_cast<uint32_t>(self));
    if (self == 0) store<int32_t>(call.out + 4, shared.least[0]);
}

class Simt : public testing::TestWithParam<uint32_t> {
 protected:
    Simt() {
        numbers_.in = fakegpu::allocate(kCount * 4, false);
        numbers_.out = fakegpu::allocate(kCount * 4, false);
        numbers_.count = kCount;
        for (uint32_t i = 0; i < kCount; ++i) word(numbers_.in, i) = i;
    }
    ~Simt() override {
        fakegpu::release(numbers_.in, false);
        fakegpu::release(numbers_.out, false);
    }

    static constexpr uint32_t kCount = 300;

    static uint32_t &word(uint64_t address, uint32_t index) {
        return static_cast<uint32_t *>(fakegpu::find(address, kCount * 4))[index];
    }
    std::string run(const char *name, uint32_t groups = 1) const {
        return fakegpu::run({fakegpu::find_kernel(name), &numbers_, groups, 1, GetParam()});
    }
    static void expect_says(const std::string &wrong, const std::string &what) {
        EXPECT_NE(wrong.find(what), std::string::npos) << "it says: " << wrong;
    }

    Numbers numbers_{};
};

TEST_P(Simt, kernel_computes_what_it_says) {
    EXPECT_EQ(run("test_sum", 3), "");
    EXPECT_EQ(word(numbers_.out, 0), 127u * 128 / 2);
    EXPECT_EQ(word(numbers_.out, 1), 255u * 256 / 2 - 127u * 128 / 2);
    EXPECT_EQ(word(numbers_.out, 2), 299u * 300 / 2 - 255u * 256 / 2);
}

TEST_P(Simt, race_is_named) {
    expect_says(run("test_race"), "shared memory is read before it is written");
    expect_says(run("test_race_of_writes"),
                "race: writes an element of shared memory that thread 0");
}

TEST_P(Simt, race_of_reads_and_writes_is_named) {
    numbers_.count = GetParam() / 2;
    EXPECT_EQ(run("test_ordered_by_warp"), "") << "lanes of one warp";
    numbers_.count = GetParam() == 32 ? 32 : 64;
    if (GetParam() == 32) {
        // The warps have passed no barrier between the write of one and the read of the other.
        expect_says(run("test_ordered_by_warp"), "race: reads");
    }
}

TEST_P(Simt, warp_may_write_after_its_lanes_have_read) {
    numbers_.count = 1;
    EXPECT_EQ(run("test_write_after_warp"), "");
    numbers_.count = 2;  // lanes read again, without a collective
    expect_says(run("test_write_after_warp"), "race: ");
    expect_says(run("test_write_after_block"),
                "race: writes an element of shared memory that several threads touched");
}

TEST_P(Simt, shared_memory_has_an_end_and_is_poisoned) {
    expect_says(run("test_read_of_nothing"), "read before it is written, thread 0");
    numbers_.count = 65;
    expect_says(run("test_write_past_shared"), "element 128 of 128, thread 63");
}

TEST_P(Simt, shared_memory_is_what_may_be_declared_or_was_asked_for) {
    EXPECT_EQ(run("test_full_shared"), "");
    expect_says(run("test_overfull_shared"),
                "a block uses 49168 bytes of shared memory, and may use 49152");
    fakegpu::Launch launch = {fakegpu::find_kernel("test_large_shared"), &numbers_, 1, 1, 32};
    expect_says(fakegpu::run(launch), "a block uses 49168 bytes of shared memory, and asked for 0");
    launch.asked_bytes = 49167;
    expect_says(fakegpu::run(launch),
                "a block uses 49168 bytes of shared memory, and asked for 49167");
    launch.asked_bytes = 49168;
    EXPECT_EQ(fakegpu::run(launch), "");
}

TEST_P(Simt, write_out_of_bounds_is_named) {
    EXPECT_EQ(run("test_write_past_the_end", 4), "");
    std::string wrong = run("test_write_past_the_end", 5);
    expect_says(wrong, "4 bytes at 0x");
    expect_says(wrong, "outside device memory, thread 44");
    expect_says(wrong, "kernel test_write_past_the_end, block 4");
    expect_says(run("test_misaligned"), "is not a multiple of 4");
}

TEST_P(Simt, missing_barrier_is_named) {
    numbers_.count = 64;
    EXPECT_EQ(run("test_missing_barrier"), "");
    numbers_.count = 63;
    expect_says(run("test_missing_barrier"), "thread 63 does not arrive, it has ended");
    expect_says(run("test_two_barriers"), "thread 0 does not arrive, it is at simt_test.cpp");
}

TEST_P(Simt, missing_lane_is_named) {
    numbers_.count = 32;
    EXPECT_EQ(run("test_missing_lane"), "");
    numbers_.count = 31;
    expect_says(run("test_missing_lane"), "lane 31 is missing, it has ended");
}

TEST_P(Simt, warp_collectives_reach_the_warp) {
    ASSERT_EQ(run("test_warp"), "");
    for (uint32_t i = 0; i < 64; ++i) {
        uint32_t most = 0;
        uint32_t first = i / GetParam() * GetParam();
        for (uint32_t j = first; j < first + GetParam(); ++j) most = std::max(most, j * 7 % 64);
        EXPECT_EQ(word(numbers_.out, i), most) << i;
    }
    EXPECT_EQ(word(numbers_.in, 0), 0xAAAAAAAAu);
    EXPECT_EQ(word(numbers_.in, 1), GetParam() == 64 ? 0xAAAAAAAAu : 0u);
}

TEST_P(Simt, copy_lands_when_it_is_waited_for) {
    numbers_.count = 0;
    ASSERT_EQ(run("test_late_copy"), "");
    EXPECT_EQ(word(numbers_.out, 0), 4u | 8u << 16);
    numbers_.count = 1;
    expect_says(run("test_late_copy"), "shared memory is read before it is written");
    numbers_.count = 2;
    expect_says(run("test_late_copy"), "shared memory is read before it is written");
    numbers_.count = 3;
    expect_says(run("test_late_copy"), "a copy was never waited for");
}

TEST_P(Simt, older_copies_land_before_newer_ones) {
    numbers_.count = 0;
    ASSERT_EQ(run("test_older_copies"), "");
    EXPECT_EQ(word(numbers_.out, 0), 4u | 8u << 16);
    numbers_.count = 1;
    expect_says(run("test_older_copies"), "shared memory is read before it is written");
    numbers_.count = 2;
    expect_says(run("test_older_copies"), "shared memory");
}

TEST_P(Simt, fragments_make_a_product) {
    auto *halves = reinterpret_cast<uint16_t *>(&word(numbers_.in, 0));
    for (uint32_t format : {kF16, kBf16}) {
        for (uint32_t i = 0; i < 512; ++i) {
            float value = std::sin(static_cast<float>(i) + 0.5f);  // none is subnormal
            halves[i] = static_cast<uint16_t>(format == kF16 ? f32_to_f16(bits_of(value))
                                                             : f32_to_bf16(bits_of(value)));
        }
        auto number = [&](uint32_t i) { return float_of(half_to_f32(format, halves[i])); };
        numbers_.count = format;
        ASSERT_EQ(run("test_product"), "");
        for (uint32_t i = 0; i < 256; ++i) {
            float wanted = 0.0f;
            for (uint32_t k = 0; k < 16; ++k) {
                wanted += number(i / 16 * 16 + k) * number(256 + k * 16 + i % 16);
            }
            EXPECT_NEAR(float_of(word(numbers_.out, i)), wanted, 1e-5f) << i;
        }
    }
}

TEST(Codes, become_halves_of_the_same_value) {
    for (uint32_t format : {kI8, kE4m3, kE5m2}) {
        for (uint32_t half_format : {kF16, kBf16}) {
            for (uint32_t code = 0; code < 256; ++code) {
                // The other three codes differ: each has its own place.
                uint32_t codes = code | (code ^ 1u) << 8 | (code ^ 2u) << 16 | (code ^ 3u) << 24;
                TwoPairs pairs = codes_to_halves(format, half_format, codes);
                for (uint32_t i = 0; i < 4; ++i) {
                    float wanted = float_of(byte_to_f32(format, code ^ i));
                    float is = float_of(
                        half_to_f32(half_format, pairs.v[i / 2] >> (i % 2 * 16) & 0xFFFFu));
                    if (std::isnan(wanted)) {
                        EXPECT_TRUE(std::isnan(is)) << format << ' ' << code;
                    } else {
                        EXPECT_EQ(is, wanted) << format << ' ' << code;
                        EXPECT_EQ(std::signbit(is), std::signbit(wanted)) << format << ' ' << code;
                    }
                }
            }
        }
    }
}

// Like MI200, whose matrix instructions flush subnormal numbers. Those of f16 count if the kernel
// asks to keep them.
TEST_P(Simt, fragments_of_64_lanes_flush_what_is_subnormal) {
    auto *halves = reinterpret_cast<uint16_t *>(&word(numbers_.in, 0));
    struct Number {
        uint32_t format;
        uint16_t bits, one;
        float value;
    };
    for (Number number :
         {Number{kF16, 0x03FF, 0x3C00, 0x1.FF8p-15f}, Number{kF16, 0x0400, 0x3C00, 0x1p-14f},
          Number{kBf16, 0x0040, 0x3F80, 0x1p-127f}}) {
        for (SmallOfA small_of_a : {SmallOfA::any, SmallOfA::kept}) {
            std::fill_n(halves, 512, uint16_t{0});
            halves[0] = number.bits;
            halves[256] = number.one;
            numbers_.count = number.format;
            numbers_.small_of_a = small_of_a;
            ASSERT_EQ(run("test_product"), "");
            bool is_flushed =
                number.bits != 0x0400 && (number.format == kBf16 || small_of_a == SmallOfA::any);
            float wanted = GetParam() == 64 && is_flushed ? 0.0f : number.value;
            EXPECT_EQ(float_of(word(numbers_.out, 0)), wanted) << number.bits;
        }
    }
}

// Row 3 of A and column 5 of B become subnormal: their sums include that, all
// others keep their bits.
TEST_P(Simt, subnormal_numbers_change_the_sums_of_their_row_and_column_alone) {
    auto *halves = reinterpret_cast<uint16_t *>(&word(numbers_.in, 0));
    for (uint32_t i = 0; i < 512; ++i) {
        float value = std::sin(static_cast<float>(i) + 0.5f);
        halves[i] = static_cast<uint16_t>(f32_to_f16(bits_of(value)));
    }
    numbers_.count = kF16;
    numbers_.small_of_a = SmallOfA::kept;
    ASSERT_EQ(run("test_product"), "");
    uint32_t before[256];
    for (uint32_t i = 0; i < 256; ++i) before[i] = word(numbers_.out, i);
    for (uint32_t k = 0; k < 16; ++k) {
        halves[3 * 16 + k] = static_cast<uint16_t>(0x0101 + k);
        halves[256 + k * 16 + 5] = static_cast<uint16_t>(0x8201 + k);
    }
    ASSERT_EQ(run("test_product"), "");
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t row = i / 16, column = i % 16;
        if (row != 3 && column != 5) {
            EXPECT_EQ(word(numbers_.out, i), before[i]) << row << ' ' << column;
            continue;
        }
        double wanted = 0.0, terms = 0.0;
        for (uint32_t k = 0; k < 16; ++k) {
            double term = double{float_of(half_to_f32(kF16, halves[row * 16 + k]))} *
                          double{float_of(half_to_f32(kF16, halves[256 + k * 16 + column]))};
            wanted += term;
            terms += std::fabs(term);
        }
        EXPECT_NEAR(float_of(word(numbers_.out, i)), wanted, 1e-6 * terms) << i;
    }
}

TEST_P(Simt, atomics_are_no_race) {
    word(numbers_.out, 0) = 3;
    ASSERT_EQ(run("test_atomics"), "");
    EXPECT_EQ(word(numbers_.out, 0), 63u);
    EXPECT_EQ(word(numbers_.out, 1), 0u);
}

INSTANTIATE_TEST_SUITE_P(Widths, Simt, testing::Values(32u, 64u));

}  // namespace

}  // namespace quire::gpu
