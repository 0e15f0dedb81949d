// SPDX-License-Identifier: Apache-2.0
//
// Frequencies compared with values computed by hand from the published formulas.

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "core/device/rope.hpp"
#include "host.hpp"

namespace {

using namespace quire;
using namespace quire::test;

class RopeTest : public testing::Test {
 protected:
    RopeTest() { desc.struct_size = sizeof desc; }
    double frequency(uint32_t i, uint32_t head_dim = 128) {
        Rope rope(host());
        EXPECT_EQ(compute_rope(desc, head_dim, &rope).code, QUIRE_OK);
        return static_cast<double>(rope.frequencies[i]);
    }
    float magnitude() {
        Rope rope(host());
        EXPECT_EQ(compute_rope(desc, 128, &rope).code, QUIRE_OK);
        return rope.magnitude;
    }
    quire_status refused(uint32_t head_dim = 128) {
        Rope rope(host());
        return compute_rope(desc, head_dim, &rope).code;
    }

    quire_rope_desc desc{};
};

TEST_F(RopeTest, plain_frequencies_fall_from_one_by_powers_of_the_base) {
    EXPECT_DOUBLE_EQ(frequency(0), 1.0);
    EXPECT_NEAR(frequency(32), 0.01, 1e-9);  // 10000^(-64/128)
    EXPECT_NEAR(frequency(63), std::pow(10000.0, -126.0 / 128), 1e-11);
    desc.base = 500000;
    EXPECT_NEAR(frequency(32), 1 / std::sqrt(500000.0), 1e-9);
    desc.rotated_dim = 64;  // a partly rotated head has its own, shorter row
    EXPECT_NEAR(frequency(16), 1 / std::sqrt(500000.0), 1e-9);
    EXPECT_EQ(magnitude(), 1.0f);
}

TEST_F(RopeTest, linear_scaling_divides_all) {
    desc.scaling = QUIRE_ROPE_LINEAR;
    desc.factor = 4;
    EXPECT_DOUBLE_EQ(frequency(0), 0.25);
    EXPECT_NEAR(frequency(32), 0.0025, 1e-9);
    EXPECT_EQ(magnitude(), 1.0f);
}

// Llama 3.1: base 500,000, factor 8, low 1, high 4, 8,192 tokens; wavelengths below 2,048 stay,
// those above 8,192 are divided by 8.
TEST_F(RopeTest, llama3_scaling_keeps_short_waves_and_divides_long_ones) {
    desc.scaling = QUIRE_ROPE_LLAMA3;
    desc.original_context = 8192;
    desc.base = 500000;
    desc.factor = 8;
    auto plain = [](uint32_t i) { return std::pow(500000.0, -2.0 * i / 128); };
    double shortest_blended = 0, longest_blended = 0;
    for (uint32_t i = 0; i < 64; ++i) {
        double wave = 2 * std::numbers::pi / plain(i);
        if (wave < 2048) {
            ASSERT_NEAR(frequency(i) / plain(i), 1.0, 1e-6) << i;
        } else if (wave > 8192) {
            ASSERT_NEAR(frequency(i) / plain(i), 0.125, 1e-6) << i;
        } else {
            double smooth = (8192 / wave - 1) / 3;
            double wanted = (1 - smooth) * plain(i) / 8 + smooth * plain(i);
            ASSERT_NEAR(frequency(i) / wanted, 1.0, 1e-6) << i;
            if (shortest_blended == 0) shortest_blended = wave;
            longest_blended = wave;
        }
    }
    EXPECT_GT(longest_blended, shortest_blended);
}

// YaRN with base 10,000, 128 elements, 4,096 tokens, factor 16: 32 turns fit at index 64 ln(4096 /
// (32 * 2 pi)) / ln 10000 = 20.95, one turn at 45.03; so 20 and 46 bound the blend.
TEST_F(RopeTest, yarn_blends_between_the_indices_of_its_turns) {
    desc.scaling = QUIRE_ROPE_YARN;
    desc.factor = 16;
    desc.original_context = 4096;
    auto plain = [](uint32_t i) { return std::pow(10000.0, -2.0 * i / 128); };
    for (uint32_t i : {0u, 10u, 20u}) EXPECT_NEAR(frequency(i) / plain(i), 1.0, 1e-6) << i;
    for (uint32_t i : {46u, 50u, 63u}) EXPECT_NEAR(frequency(i) / plain(i), 1.0 / 16, 1e-6) << i;
    double divided = (33 - 20) / 26.0;
    EXPECT_NEAR(frequency(33) / plain(33), 1 - divided + divided / 16, 1e-6);
    EXPECT_NEAR(magnitude(), 0.1 * std::log(16.0) + 1, 1e-6);
    desc.magnitude = 1.5f;
    EXPECT_EQ(magnitude(), 1.5f);
}

TEST_F(RopeTest, own_frequencies_take_the_place_of_all) {
    float own[] = {3.0f, 0.5f};
    desc.frequencies = own;
    desc.rotated_dim = 4;
    EXPECT_EQ(frequency(0), 3.0);
    EXPECT_EQ(frequency(1), 0.5);
    own[1] = NAN;
    EXPECT_EQ(refused(), QUIRE_E_ARG);
    own[1] = 0.5f;
    desc.base = 500000;
    EXPECT_EQ(refused(), QUIRE_E_ARG) << "it would not be read";
}

TEST_F(RopeTest, wrong_descriptions_are_refused) {
    auto refuse = [&](auto change, quire_status expected) {
        quire_rope_desc before = desc;
        change(&desc);
        EXPECT_EQ(refused(), expected);
        desc = before;
    };
    using D = quire_rope_desc *;
    refuse([](D d) { d->pairing = 2; }, QUIRE_E_UNSUPPORTED);
    refuse([](D d) { d->scaling = 4; }, QUIRE_E_UNSUPPORTED);
    refuse([](D d) { d->rotated_dim = 7; }, QUIRE_E_ARG);
    refuse([](D d) { d->rotated_dim = 130; }, QUIRE_E_ARG);
    refuse([](D d) { d->base = -1; }, QUIRE_E_ARG);
    refuse([](D d) { d->base = INFINITY; }, QUIRE_E_ARG);
    refuse([](D d) { d->magnitude = NAN; }, QUIRE_E_ARG);
    refuse([](D d) { d->scaling = QUIRE_ROPE_LINEAR; }, QUIRE_E_ARG);  // without a factor
    refuse([](D d) { d->scaling = QUIRE_ROPE_LINEAR, d->factor = 0.5f; }, QUIRE_E_ARG);
    refuse([](D d) { d->scaling = QUIRE_ROPE_YARN, d->factor = 2, d->original_context = 0; },
           QUIRE_E_ARG);
    auto llama3 = [](D d) {
        d->scaling = QUIRE_ROPE_LLAMA3, d->factor = 8, d->original_context = 8192;
    };
    auto yarn = [](D d) {
        d->scaling = QUIRE_ROPE_YARN, d->factor = 8, d->original_context = 8192;
    };
    refuse([&](D d) { llama3(d), d->low_freq_factor = 4; }, QUIRE_E_ARG);
    refuse([&](D d) { yarn(d), d->beta_slow = 40; }, QUIRE_E_ARG);
    // Parameters that the scaling does not read.
    refuse([](D d) { d->factor = 8; }, QUIRE_E_ARG);
    refuse([](D d) { d->original_context = 8192; }, QUIRE_E_ARG);
    refuse([&](D d) { yarn(d), d->high_freq_factor = 4; }, QUIRE_E_ARG);
    refuse([&](D d) { llama3(d), d->beta_fast = 32; }, QUIRE_E_ARG);
    EXPECT_EQ(refused(0), QUIRE_E_ARG) << "a latent row without a rotated part";
}

}  // namespace
