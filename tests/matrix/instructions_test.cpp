// SPDX-License-Identifier: Apache-2.0
//
// The stand-in computes what the manual says, which plain loops over whole matrices repeat; and so
// does the processor, if it has such instructions.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "kernels/processor.hpp"
#include "products.hpp"

namespace quire::cpu {

class InstructionsTest : public testing::Test {
 protected:
    void SetUp() override {
        if (!has_avx512()) GTEST_SKIP() << "the stand-in is compiled for AVX-512";
    }
};

namespace {

constexpr size_t kStride = 80;  // unlike any tile's

// Left is rows by contracted, right contracted by columns, in elements of four bytes.
struct Sizes {
    uint8_t rows;
    uint8_t contracted;
    uint8_t columns;
};
constexpr Sizes kSizes[] = {{16, 16, 16}, {1, 1, 1},   {15, 16, 16}, {3, 16, 16},
                            {16, 5, 16},  {16, 16, 7}, {9, 3, 11},   {1, 16, 1}};

TileShapes shapes_of(const Sizes &sizes) {
    TileShapes shapes = {};
    shapes.palette = 1;
    auto set = [&](int tile, uint8_t rows, uint8_t elements) {
        shapes.rows[tile] = rows;
        shapes.row_bytes[tile] = static_cast<uint16_t>(4 * elements);
    };
    set(0, sizes.rows, sizes.columns);
    set(4, sizes.rows, sizes.contracted);
    set(6, sizes.contracted, sizes.columns);
    return shapes;
}

// Memory of three tiles. A product may write only its own elements of it.
struct Matrices {
    std::vector<uint32_t> left, right, sums;

    explicit Matrices(std::mt19937 *random, uint32_t (*element)(std::mt19937 *)) {
        for (auto *one : {&left, &right, &sums}) {
            one->resize(16 * kStride / 4);
            for (uint32_t &word : *one) word = element(random);
        }
    }
    void run(void (*multiply)(const Product &), const Sizes &sizes) {
        TileShapes shapes = shapes_of(sizes);
        multiply({&shapes, left.data(), kStride, right.data(), kStride, sums.data(), kStride});
    }
    static size_t at(size_t row, size_t column) { return row * kStride / 4 + column; }
};

uint32_t any_word(std::mt19937 *random) { return static_cast<uint32_t>((*random)()); }

// Two bf16 near 1 or, one time in sixteen, anything, denormals too; no infinities or NaNs.
uint32_t any_pair(std::mt19937 *random) {
    uint32_t pair = 0;
    for (int i = 0; i < 2; ++i) {
        uint32_t word = any_word(random);
        uint32_t exponent = word >> 16 & 0xFF;
        if (exponent == 0xFF || word >> 28 != 0) exponent = 120 + exponent % 12;
        pair = pair << 16 | (word & 0x807F) | exponent << 7;
    }
    return pair;
}

float flush(float a) { return a != 0.0f && std::fabs(a) < 0x1p-126f ? std::copysign(0.0f, a) : a; }

float half_at(uint32_t pair, size_t i) {
    return flush(std::bit_cast<float>(i == 0 ? pair << 16 : pair & 0xFFFF0000u));
}

uint32_t halves_by_hand(const Matrices &m, const Sizes &sizes, size_t row, size_t column) {
    float totals[2] = {};
    for (size_t i = 0; i < 2; ++i) {
        for (size_t k = 0; k < sizes.contracted; ++k) {
            totals[i] = flush(std::fma(half_at(m.left[Matrices::at(row, k)], i),
                                       half_at(m.right[Matrices::at(k, column)], i), totals[i]));
        }
    }
    float before = flush(std::bit_cast<float>(m.sums[Matrices::at(row, column)]));
    return std::bit_cast<uint32_t>(flush(before + flush(totals[0] + totals[1])));
}

uint32_t bytes_by_hand(const Matrices &m, const Sizes &sizes, size_t row, size_t column) {
    int64_t total = static_cast<int32_t>(m.sums[Matrices::at(row, column)]);
    for (size_t k = 0; k < sizes.contracted; ++k) {
        for (int i = 0; i < 4; ++i) {
            auto a = static_cast<int8_t>(m.left[Matrices::at(row, k)] >> (8 * i));
            auto b = static_cast<int8_t>(m.right[Matrices::at(k, column)] >> (8 * i));
            total += int64_t{a} * b;
        }
    }
    return static_cast<uint32_t>(total);
}

void expect_products(void (*multiply)(const Product &), uint32_t (*element)(std::mt19937 *),
                     uint32_t (*by_hand)(const Matrices &, const Sizes &, size_t, size_t)) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; ++round) {
        for (const Sizes &sizes : kSizes) {
            Matrices before(&random, element);
            Matrices after = before;
            after.run(multiply, sizes);
            for (size_t row = 0; row < 16; ++row) {
                for (size_t column = 0; column < kStride / 4; ++column) {
                    bool is_sum = row < sizes.rows && column < sizes.columns;
                    size_t at = Matrices::at(row, column);
                    uint32_t expected =
                        is_sum ? by_hand(before, sizes, row, column) : before.sums[at];
                    ASSERT_EQ(after.sums[at], expected)
                        << int{sizes.rows} << " by " << int{sizes.contracted} << " by "
                        << int{sizes.columns} << ", at " << row << ", " << column;
                }
            }
        }
    }
}

void expect_pairs_of_halves(const Instructions &instructions) {
    std::mt19937 random(8);
    for (int round = 0; round < 1000; ++round) {
        float sums[16], to[16];
        uint32_t a[16], b[16];
        for (size_t n = 0; n < 16; ++n) {
            sums[n] = half_at(any_pair(&random), 0);
            a[n] = any_pair(&random);
            b[n] = any_pair(&random);
        }
        instructions.add_pairs_of_halves(sums, a, b, to);
        for (size_t n = 0; n < 16; ++n) {
            float odd = flush(std::fma(half_at(a[n], 1), half_at(b[n], 1), sums[n]));
            float both = flush(std::fma(half_at(a[n], 0), half_at(b[n], 0), odd));
            ASSERT_EQ(std::bit_cast<uint32_t>(to[n]), std::bit_cast<uint32_t>(both)) << n;
        }
    }
}

void expect_bytes_at(const Instructions &instructions) {
    std::mt19937 random(9);
    uint8_t table[128], places[64], to[64];
    for (uint8_t &byte : table) byte = static_cast<uint8_t>(random());
    for (uint8_t &byte : places) byte = static_cast<uint8_t>(random());
    instructions.bytes_at(table, places, to);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(to[i], table[places[i] % 128]) << i;
}

void expect_cleared(const Instructions &instructions) {
    std::mt19937 random(10);
    Matrices before(&random, any_word);
    Matrices after = before;
    after.run(instructions.clear, {5, 6, 7});
    for (size_t row = 0; row < 16; ++row) {
        for (size_t column = 0; column < kStride / 4; ++column) {
            size_t at = Matrices::at(row, column);
            EXPECT_EQ(after.sums[at], row < 5 && column < 7 ? 0 : before.sums[at]);
        }
    }
}

// Runs a product in which `spoil` has made one thing wrong.
void run_with(const std::function<void(TileShapes *)> &spoil) {
    TileShapes shapes = shapes_of({16, 16, 16});
    spoil(&shapes);
    std::vector<std::byte> bytes(16 * 64);
    stand_in::instructions.multiply_halves(
        {&shapes, bytes.data(), 64, bytes.data(), 64, bytes.data(), 64});
}

}  // namespace

TEST_F(InstructionsTest, products_of_bf16_are_summed_as_the_manual_says) {
    expect_products(stand_in::instructions.multiply_halves, any_pair, halves_by_hand);
}

TEST_F(InstructionsTest, products_of_bytes_wrap_around_and_are_exact_else) {
    expect_products(stand_in::instructions.multiply_bytes, any_word, bytes_by_hand);
}

TEST_F(InstructionsTest, pair_of_bf16_is_added_odd_element_first) {
    expect_pairs_of_halves(stand_in::instructions);
}

TEST_F(InstructionsTest, byte_is_found_by_the_lowest_seven_bits_of_its_place) {
    expect_bytes_at(stand_in::instructions);
}

TEST_F(InstructionsTest, cleared_tile_is_zeros_and_nothing_beside_it_is_written) {
    expect_cleared(stand_in::instructions);
}

TEST_F(InstructionsTest, denormals_count_as_zeros) {
    Matrices m = [] {
        std::mt19937 random(0);
        return Matrices(&random, [](std::mt19937 *) -> uint32_t { return 0; });
    }();
    m.left[0] = 0x00010001;   // two denormals
    m.right[0] = 0x7F007F00;  // 2^127
    m.sums[0] = 0x00000001;
    m.run(stand_in::instructions.multiply_halves, {1, 1, 1});
    EXPECT_EQ(m.sums[0], 0u);
    m.left[0] = 0x00000D80;   // 2^-100
    m.right[0] = 0x00002F80;  // 2^-32: together a denormal
    m.run(stand_in::instructions.multiply_halves, {1, 1, 1});
    EXPECT_EQ(m.sums[0], 0u);
}

TEST_F(InstructionsTest, what_a_processor_refuses_ends_the_process) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    auto expect_end = [](const char *word, const std::function<void(TileShapes *)> &spoil) {
        EXPECT_DEATH(run_with(spoil), word);
    };
    expect_end("invalid palette", [](TileShapes *s) { s->palette = 2; });
    expect_end("reserved", [](TileShapes *s) { s->reserved[13] = 1; });
    expect_end("without a configuration", [](TileShapes *s) { s->palette = 0; });
    expect_end("larger than", [](TileShapes *s) { s->rows[4] = 17; });
    expect_end("larger than", [](TileShapes *s) { s->row_bytes[6] = 68; });
    expect_end("without bytes", [](TileShapes *s) { s->row_bytes[3] = 4; });
    expect_end("invalid tile", [](TileShapes *s) { s->rows[8] = s->row_bytes[8] = 4; });
    expect_end("differ in rows", [](TileShapes *s) { s->rows[4] = 15; });
    expect_end("differ in columns", [](TileShapes *s) { s->row_bytes[6] = 60; });
    expect_end("dimensions differ in length", [](TileShapes *s) { s->rows[6] = 15; });
    expect_end("ends within", [](TileShapes *s) { s->row_bytes[0] = s->row_bytes[6] = 62; });
    std::byte bytes[1024];
    EXPECT_DEATH(stand_in::instructions.store_unconfigured(bytes), "without a configuration");
}

TEST_F(InstructionsTest, tiles_of_the_processor_compute_the_same) {
    if (!has_amx()) GTEST_SKIP() << "this processor has no AMX";
    expect_products(processor::instructions.multiply_halves, any_pair, halves_by_hand);
    expect_products(processor::instructions.multiply_bytes, any_word, bytes_by_hand);
    expect_bytes_at(processor::instructions);
    expect_cleared(processor::instructions);
}

TEST_F(InstructionsTest, bf16_instructions_of_the_processor_compute_the_same) {
    if (!has_avx512_bf16()) GTEST_SKIP() << "this processor has no AVX512-BF16";
    expect_pairs_of_halves(processor::instructions);
}

}  // namespace quire::cpu
