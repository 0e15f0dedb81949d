// SPDX-License-Identifier: Apache-2.0
//
// Calibrations that were changed by someone who knows the format, so that the checksum is right:
// every function refuses them in the same words, or takes them for what they say.

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tests/device/cpu_cache.hpp"
#include "tests/fuzz/sealed.hpp"

namespace {

using namespace quire::test;

using Bytes = std::vector<uint8_t>;

constexpr uint32_t kLayers = 3, kHeads = 2, kHeaderBytes = 32, kRecordBytes = 16;

void put(Bytes *bytes, uint32_t word) {
    const auto *at = reinterpret_cast<const uint8_t *>(&word);
    bytes->insert(bytes->end(), at, at + sizeof word);
}

// As docs/calibration.md describes it.
Bytes sample() {
    Bytes bytes;
    for (char c : std::string("QUIRECAL")) bytes.push_back(static_cast<uint8_t>(c));
    put(&bytes, 1);
    put(&bytes, kLayers);
    for (uint32_t i = 0; i < 4; ++i) put(&bytes, 0);
    for (uint32_t i = 0; i < kLayers; ++i) {
        for (uint32_t word : {kHeads, 64u, 48u, 0u}) put(&bytes, word);
    }
    for (uint32_t i = 0; i < kLayers * kHeads * 2; ++i) {
        const float number = 0.5f + static_cast<float>(i);
        uint32_t word = 0;
        std::memcpy(&word, &number, sizeof word);
        put(&bytes, word);
    }
    quire::fuzz::seal(&bytes, quire::fuzz::kCalibrationSeal);
    return bytes;
}

class CalibrationBytes : public testing::Test {
 protected:
    CalibrationBytes() { error.struct_size = sizeof error; }

    quire_status info(const Bytes &bytes) {
        auto out = described<quire_calibration_info>();
        return api.calibration_get_info(bytes.data(), bytes.size(), &out, &error);
    }
    // Without the name of the function.
    std::string words() const {
        const std::string all = error.message;
        return all.substr(all.find(": ") + 2);
    }
    // get_layer and merge answer as get_info does.
    void compare(const Bytes &bytes) {
        const quire_status wanted = info(bytes);
        const std::string said = words();
        auto layer = described<quire_calibration_layer>();
        float numbers[2 * kHeads] = {};
        const quire_status read = api.calibration_get_layer(bytes.data(), bytes.size(), 0, &layer,
                                                            numbers, 2 * kHeads, &error);
        Bytes out(bytes.size());
        uint64_t size_bytes = 0;
        if (wanted < 0) {
            EXPECT_EQ(read, wanted);
            EXPECT_EQ(said, words());
        }
        const quire_status merged =
            api.calibration_merge(bytes.data(), bytes.size(), bytes.data(), bytes.size(),
                                  out.data(), out.size(), &size_bytes, &error);
        EXPECT_EQ(merged, wanted) << error.message;
        if (wanted == QUIRE_OK) {
            EXPECT_EQ(out, bytes) << "the larger of equal numbers";
        } else {
            EXPECT_EQ(said, words());
        }
    }

    const quire_api &api = library();
    quire_error error{};
};

TEST_F(CalibrationBytes, of_the_page_are_read) {
    const Bytes bytes = sample();
    ASSERT_EQ(info(bytes), QUIRE_OK) << error.message;
    auto layer = described<quire_calibration_layer>();
    float numbers[2 * kHeads] = {};
    ASSERT_EQ(api.calibration_get_layer(bytes.data(), bytes.size(), 2, &layer, numbers, 2 * kHeads,
                                        &error),
              QUIRE_OK)
        << error.message;
    EXPECT_EQ(numbers[3], 0.5f + 11);
    EXPECT_EQ(layer.v_head_dim, 48u);
    EXPECT_EQ(api.calibration_get_layer(bytes.data(), bytes.size(), 0, &layer, numbers, 3, &error),
              QUIRE_S_INCOMPLETE);
    EXPECT_EQ(api.calibration_get_layer(bytes.data(), bytes.size(), 3, &layer, numbers, 4, &error),
              QUIRE_E_ARG);
}

TEST_F(CalibrationBytes, with_any_word_changed_get_one_answer) {
    const Bytes good = sample();
    uint32_t refused = 0, taken = 0;
    for (uint32_t at = 0; at + 4 <= good.size(); at += 4) {
        for (uint32_t word : {0u, 1u, 2u, 5u, 4'097u, 0x7F800000u, 0x7FC00000u, 0x80000000u,
                              0xBF800000u, UINT32_MAX}) {
            Bytes bytes = good;
            std::memcpy(&bytes[at], &word, sizeof word);
            quire::fuzz::seal_sum(&bytes, quire::fuzz::kCalibrationSeal);
            compare(bytes);
            ++(info(bytes) < 0 ? refused : taken);
        }
    }
    EXPECT_GT(refused, 100u);
    EXPECT_GT(taken, 50u) << "a number that is finite and positive is as good as another";
}

TEST_F(CalibrationBytes, that_are_cut_or_too_long_are_refused) {
    const Bytes good = sample();
    for (size_t size = 0; size < good.size() + 5; ++size) {
        if (size == good.size()) continue;
        Bytes bytes = good;
        bytes.resize(size);
        EXPECT_LT(info(bytes), 0) << size;
        quire::fuzz::seal(&bytes, quire::fuzz::kCalibrationSeal);
        EXPECT_LT(info(bytes), 0) << size << " bytes, sealed";
    }
    Bytes other = sample();
    const uint32_t heads = 1;
    std::memcpy(&other[kHeaderBytes + 2 * kRecordBytes], &heads, sizeof heads);
    other.resize(other.size() - 8);
    quire::fuzz::seal(&other, quire::fuzz::kCalibrationSeal);
    ASSERT_EQ(info(other), QUIRE_OK) << error.message;
    uint64_t size_bytes = 0;
    EXPECT_EQ(api.calibration_merge(good.data(), good.size(), other.data(), other.size(), nullptr,
                                    0, &size_bytes, &error),
              QUIRE_E_ARG);
}

}  // namespace
