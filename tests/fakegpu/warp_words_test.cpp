// SPDX-License-Identifier: Apache-2.0
//
// The words of kernels/dialect_warp.hpp on the emulator: matrices that ldmatrix loads make the
// product that they should, whichever way round they lie in memory, and a ring of copies lands in
// its order.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "kernels/dialect_warp.hpp"
#include "kernels/number.hpp"

namespace quire::gpu {

namespace {

// in: three matrices of 16 x 16 bf16, row by row: A, and B twice. out: 16 x 16 f32.
struct Matrices {
    uint64_t in;
    uint64_t out;
    uint32_t is_turned;  // B's rows are columns of the product, or its rows
    uint32_t mistake;
};

struct MatricesShared {
    SharedArray<FourWords, 32> units;  // of B, two per row
};

QUIRE_KERNEL(test_load_matrices, 32, Matrices, call) {
    QUIRE_SHARED(MatricesShared, shared);
    uint32_t lane = thread_index();
    copy_unit_async(shared.units, lane, call.in + 512 + lane * 16, call.mistake != 1 || lane != 9);
    end_copies();
    wait_copies_but<0>();
    if (call.mistake != 2) warp_barrier();
    uint32_t a[4], b[4];
    for (uint32_t i = 0; i < 4; ++i) {
        uint32_t row = row_of_a(2 * i), k = k_of_a(2 * i);
        a[i] = load<uint32_t>(call.in + (row * 16 + k) * 2);
    }
    uint32_t matrix = lane / 8, inner = lane % 8;
    if (call.is_turned == 0) {
        load_matrices(shared.units, (matrix / 2 * 8 + inner) * 2 + matrix % 2, b);
    } else {
        load_matrices_turned(shared.units, (matrix % 2 * 8 + inner) * 2 + matrix / 2, b);
    }
    float sums[8] = {};
    multiply_matrices<true>(a, b, sums);
    for (uint32_t i = 0; i < 8; ++i) {
        store<float>(call.out + (row_of_sum(i) * 16 + column_of_sum(i)) * 4, sums[i]);
    }
}

struct RingShared {
    SharedArray<FourWords, 96> units;
};

// Three copies, of which one, two or all are waited for; then the first two are read.
QUIRE_KERNEL(test_ring, 32, Matrices, call) {
    QUIRE_SHARED(RingShared, shared);
    uint32_t lane = thread_index();
    for (uint32_t i = 0; i < 3; ++i) {
        copy_unit_async(shared.units, i * 32 + lane, call.in + i * 512 + lane * 16, true);
        end_copies();
    }
    if (call.mistake == 0) wait_copies_but<1>();
    if (call.mistake == 1) wait_copies_but<2>();
    FourWords first = shared.units[lane];
    FourWords second = shared.units[32 + lane];
    wait_copies_but<0>();
    store<uint32_t>(call.out + lane * 8, first.v[0]);
    store<uint32_t>(call.out + lane * 8 + 4, second.v[0]);
}

class WarpWords : public testing::Test {
 protected:
    WarpWords() {
        call_.in = fakegpu::allocate(1536, false);
        call_.out = fakegpu::allocate(1024, false);
        auto *halves = static_cast<uint16_t *>(fakegpu::find(call_.in, 1536));
        for (uint32_t i = 0; i < 768; ++i) {
            float value = std::sin(static_cast<float>(i) + 0.5f);
            halves[i] = static_cast<uint16_t>(f32_to_bf16(bits_of(value)));
        }
    }
    ~WarpWords() override {
        fakegpu::release(call_.in, false);
        fakegpu::release(call_.out, false);
    }

    std::string run(const char *name) const {
        return fakegpu::run({fakegpu::find_kernel(name), &call_, 1, 1, 32});
    }
    float number(uint32_t matrix, uint32_t row, uint32_t column) const {
        auto *halves = static_cast<uint16_t *>(fakegpu::find(call_.in, 1536));
        return float_of(uint32_t{halves[matrix * 256 + row * 16 + column]} << 16);
    }
    float result(uint32_t row, uint32_t column) const {
        return static_cast<float *>(fakegpu::find(call_.out, 1024))[row * 16 + column];
    }
    // The largest difference from A times B, or times B turned.
    float worst() const {
        float worst = 0.0f;
        for (uint32_t row = 0; row < 16; ++row) {
            for (uint32_t column = 0; column < 16; ++column) {
                float sum = 0.0f;
                for (uint32_t k = 0; k < 16; ++k) {
                    float of_b = call_.is_turned == 0 ? number(1, column, k) : number(1, k, column);
                    sum += number(0, row, k) * of_b;
                }
                worst = std::fmax(worst, std::fabs(sum - result(row, column)));
            }
        }
        return worst;
    }

    Matrices call_ = {};
};

}  // namespace

TEST_F(WarpWords, loaded_matrices_make_the_product) {
    for (uint32_t is_turned : {0u, 1u}) {
        call_.is_turned = is_turned;
        ASSERT_EQ(run("test_load_matrices"), "");
        EXPECT_LT(worst(), 1e-5f);
        call_.is_turned = 1 - is_turned;
        EXPECT_GT(worst(), 0.1f) << "the other way round is another product";
    }
}

TEST_F(WarpWords, unseen_unit_is_zeros) {
    call_.mistake = 1;
    ASSERT_EQ(run("test_load_matrices"), "");
    EXPECT_GT(worst(), 0.01f);
    auto *halves = static_cast<uint16_t *>(fakegpu::find(call_.in, 1536));
    std::memset(&halves[256 + 9 * 8], 0, 16);
    EXPECT_LT(worst(), 1e-5f);
}

TEST_F(WarpWords, lane_that_reads_what_another_copied_must_wait_for_it) {
    call_.mistake = 2;
    EXPECT_NE(run("test_load_matrices").find("shared memory is read before it is written"),
              std::string::npos);
}

TEST_F(WarpWords, copies_but_the_newest_have_landed) {
    ASSERT_EQ(run("test_ring"), "");
    call_.mistake = 1;
    EXPECT_NE(run("test_ring").find("shared memory is read before it is written"),
              std::string::npos);
}

}  // namespace quire::gpu
