// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a calibration, which ones are refused, and the scales that are computed from it.

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/scales/static_scales.hpp"
#include "host.hpp"

namespace quire {
namespace {

using Bytes = std::vector<uint8_t>;

template <typename T>
void put(Bytes *to, T value) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&value);
    to->insert(to->end(), bytes, bytes + sizeof value);
}

// The layout of docs/calibration.md, written down a second time: per layer kv_heads, k_head_dim and
// v_head_dim.
struct Layer {
    uint32_t kv_heads, k_head_dim, v_head_dim;
};

void seal(Bytes *bytes) {
    std::fill_n(bytes->begin() + 24, 8, uint8_t{0});
    uint64_t sum = XXH3_64bits_withSeed(bytes->data() + 32, bytes->size() - 32,
                                        XXH3_64bits(bytes->data(), 32));
    std::memcpy(bytes->data() + 24, &sum, sizeof sum);
}

Bytes bytes_of(const std::vector<Layer> &layers, const std::vector<float> &numbers) {
    Bytes out;
    for (char letter : std::string("QUIRECAL")) put(&out, letter);
    put(&out, uint32_t{1});
    put(&out, static_cast<uint32_t>(layers.size()));
    put(&out, uint64_t{32 + 16 * layers.size() + 4 * numbers.size()});
    put(&out, uint64_t{0});
    for (const Layer &layer : layers) {
        for (uint32_t word : {layer.kv_heads, layer.k_head_dim, layer.v_head_dim, 0u}) {
            put(&out, word);
        }
    }
    for (float number : numbers) put(&out, number);
    seal(&out);
    return out;
}

// Three layers: 0 and 2 in group 0 with two KV heads, 1 in group 1 with one.
struct Model {
    Model() {
        geometry.group_count = 2;
        geometry.layer_count = 3;
        for (uint32_t g = 0; g < 2; ++g) {
            GroupGeometry &group = geometry.groups[g];
            group.layer_count = 2 - g;
            group.kv_heads = 2 - g;
            group.k_head_dim = group.v_head_dim = 16;
            group.k_dtype = QUIRE_DTYPE_I8;
            group.v_dtype = QUIRE_DTYPE_F8_E4M3FN;
            group.k_scale = QUIRE_SCALE_HEAD;
            group.v_scale = QUIRE_SCALE_TENSOR;
        }
        geometry.groups[1].k_dtype = QUIRE_DTYPE_I4;
        geometry.groups[1].v_dtype = QUIRE_DTYPE_F8_E5M2;
        bytes = bytes_of(layers, numbers);
    }

    // The message of a refusal; empty if the scales were made.
    std::string refusal(const Bytes *given, float margin = 0.0f) {
        quire_cache_desc desc{};
        desc.calibration = given != nullptr ? given->data() : nullptr;
        desc.calibration_bytes = given != nullptr ? given->size() : 0;
        desc.calibration_margin = margin;
        Status status = scales.create(desc, geometry, places);
        return status.ok() ? "" : status.text;
    }

    std::vector<Layer> layers = {{2, 16, 16}, {1, 16, 16}, {2, 16, 16}};
    std::vector<float> numbers = {3.0f, 0.1f, 7.0f, 2.0f, 5.0f, 0.3f, 1.5f, 1e-3f, 60.0f, 90.0f};
    Bytes bytes;
    Geometry geometry;
    LayerInGroup places[3] = {{0, 0}, {1, 0}, {0, 1}};
    StaticScales scales{test::host()};
};

Status opened(const Bytes &bytes) {
    Calibration calibration;
    // Exactly as large as its size says, so that a sanitizer detects a read past the end.
    Bytes exact(bytes);
    exact.shrink_to_fit();
    return Calibration::open(exact.data(), exact.size(), &calibration);
}

TEST(Calibration, has_the_bytes_of_the_page) {
    Model model;
    Bytes written(calibration_bytes(model.geometry, model.places));
    write_calibration(model.geometry, model.places, model.numbers.data(), written.size(),
                      written.data());
    EXPECT_TRUE(written == model.bytes);
    Calibration read;
    ASSERT_TRUE(Calibration::open(written.data(), written.size(), &read).ok());
    EXPECT_EQ(read.layer_count(), 3u);
    EXPECT_EQ(read.layer(1).kv_heads, 1u);
    float last[4] = {};
    read.read_numbers(2, last);
    EXPECT_EQ(std::vector<float>(last, last + 4), std::vector<float>({1.5f, 1e-3f, 60.0f, 90.0f}));
}

TEST(Calibration, every_flipped_bit_is_refused_in_words) {
    Model model;
    for (size_t i = 0; i < model.bytes.size(); ++i) {
        for (uint32_t bit = 0; bit < 8; ++bit) {
            Bytes damaged = model.bytes;
            damaged[i] = static_cast<uint8_t>(damaged[i] ^ 1u << bit);
            Status status = opened(damaged);
            ASSERT_FALSE(status.ok()) << "byte " << i << ", bit " << bit;
            bool is_version = i >= 8 && i < 12;
            EXPECT_EQ(status.code, is_version ? QUIRE_E_INCOMPATIBLE : QUIRE_E_ARG) << i;
            EXPECT_NE(std::string(status.text).find("calibration"), std::string::npos);
        }
    }
}

TEST(Calibration, every_other_length_is_refused) {
    Model model;
    for (size_t length = 0; length < model.bytes.size() + 40; ++length) {
        if (length == model.bytes.size()) continue;
        Bytes cut = model.bytes;
        cut.resize(length);
        EXPECT_EQ(opened(cut).code, QUIRE_E_ARG) << length;
    }
}

// Errors that a checksum cannot detect, because the bytes were sealed with them.
TEST(Calibration, sealed_nonsense_is_refused) {
    auto status = [](auto change) {
        Bytes bytes = Model().bytes;
        change(&bytes);
        uint64_t size = bytes.size();
        std::memcpy(bytes.data() + 16, &size, sizeof size);
        seal(&bytes);
        return opened(bytes).code;
    };
    auto word = [&](size_t at, uint32_t value) {
        return status([=](Bytes *b) { std::memcpy(b->data() + at, &value, sizeof value); });
    };
    EXPECT_EQ(status([](Bytes *) {}), QUIRE_OK);
    EXPECT_EQ(word(12, 0), QUIRE_E_ARG) << "no layers";
    EXPECT_EQ(word(12, 2), QUIRE_E_ARG) << "numbers left over";
    EXPECT_EQ(word(12, 4097), QUIRE_E_ARG);
    EXPECT_EQ(word(12, 0xFFFFFFFF), QUIRE_E_ARG);
    EXPECT_EQ(word(32, 0), QUIRE_E_ARG) << "a layer without heads";
    EXPECT_EQ(word(32, 0xFFFFFFFF), QUIRE_E_ARG) << "more heads than bytes";
    EXPECT_EQ(word(36, 0), QUIRE_E_ARG);
    EXPECT_EQ(word(44, 1), QUIRE_E_ARG) << "reserved bytes";
    for (float wrong : {-1.0f, -0.0f, INFINITY, NAN}) {
        EXPECT_EQ(word(80, std::bit_cast<uint32_t>(wrong)), QUIRE_E_ARG) << wrong;
    }
    EXPECT_EQ(word(80, 0), QUIRE_OK) << "an unwritten number is not damage";
    EXPECT_EQ(status([](Bytes *b) { b->push_back(0); }), QUIRE_E_ARG);
    EXPECT_EQ(status([](Bytes *b) { b->resize(36); }), QUIRE_E_ARG);
}

TEST(Calibration, merge_takes_the_larger_number_of_each_place) {
    Model model;
    std::vector<float> other(10, 2.5f), larger;
    for (float number : model.numbers) larger.push_back(std::fmax(number, 2.5f));
    Bytes second = bytes_of(model.layers, other), expected = bytes_of(model.layers, larger);
    Calibration a, b;
    ASSERT_TRUE(Calibration::open(model.bytes.data(), model.bytes.size(), &a).ok());
    ASSERT_TRUE(Calibration::open(second.data(), second.size(), &b).ok());
    ASSERT_TRUE(check_mergeable(a, b).ok());
    Bytes out(expected.size());
    merge_calibrations(a, b, out.data());
    EXPECT_TRUE(out == expected);
    merge_calibrations(a, b, second.data());
    EXPECT_TRUE(second == expected) << "out is the second input";
    merge_calibrations(a, b, model.bytes.data());
    EXPECT_TRUE(model.bytes == expected) << "out is the first input";
    for (const std::vector<Layer> &layers :
         {std::vector<Layer>{{2, 16, 16}, {1, 16, 16}, {2, 16, 8}}, {{5, 16, 16}}}) {
        Bytes foreign = bytes_of(layers, other);
        ASSERT_TRUE(Calibration::open(foreign.data(), foreign.size(), &b).ok());
        EXPECT_EQ(check_mergeable(a, b).code, QUIRE_E_ARG);
    }
}

TEST(StaticScales, are_magnitude_times_margin_over_the_largest_code) {
    for (float margin : {0.0f, 1.0f, 1.25f}) {
        Model model;
        ASSERT_EQ(model.refusal(&model.bytes, margin), "");
        float by = margin == 0.0f ? 1.0f : margin;
        const float *first = model.scales.of(0, 0), *last = model.scales.of(0, 1);
        const float *other = model.scales.of(1, 0);
        EXPECT_EQ(first[0], 3.0f * by / 127.0f);
        EXPECT_EQ(first[1], 0.1f * by / 127.0f);
        EXPECT_EQ(first[2], 7.0f * by / 448.0f);
        EXPECT_EQ(first[3], 7.0f * by / 448.0f) << "all heads of a tensor share one scale";
        EXPECT_EQ(last[0], 1.5f * by / 127.0f);
        EXPECT_EQ(last[3], 90.0f * by / 448.0f);
        EXPECT_EQ(other[0], 5.0f * by / 7.0f);
        EXPECT_EQ(other[1], 0.3f * by / 57344.0f);
    }
}

TEST(StaticScales, without_a_calibration_say_how_to_get_one) {
    Model model;
    std::string words = model.refusal(nullptr);
    for (const char *part :
         {"QUIRE_CACHE_CALIBRATE", "quire_cache_save_calibration_wait", "QUIRE_SCALE_TOKEN_HEAD"}) {
        EXPECT_NE(words.find(part), std::string::npos) << words;
    }
    for (GroupGeometry &group : model.geometry.groups) {
        group.k_scale = QUIRE_SCALE_TOKEN_HEAD;
        group.v_scale = QUIRE_SCALE_NONE;
    }
    EXPECT_EQ(model.refusal(nullptr), "") << "no group needs one";
    EXPECT_EQ(model.scales.of(0, 0), nullptr);
}

TEST(StaticScales, head_that_was_never_written_gets_no_scale) {
    Model model;
    model.numbers[1] = 0.0f;  // K of layer 0, head 1
    Bytes bytes = bytes_of(model.layers, model.numbers);
    EXPECT_NE(model.refusal(&bytes).find("no magnitude for K"), std::string::npos);
    model.geometry.groups[0].k_scale = QUIRE_SCALE_TENSOR;
    EXPECT_EQ(model.refusal(&bytes), "") << "the layer's other head has one";
    model.numbers[8] = model.numbers[9] = 0.0f;  // V of layer 2
    bytes = bytes_of(model.layers, model.numbers);
    EXPECT_NE(model.refusal(&bytes).find("no magnitude for V"), std::string::npos);
}

TEST(StaticScales, calibration_of_another_model_is_refused) {
    Model model;
    auto refusal = [&](const std::vector<Layer> &layers, size_t count) {
        Bytes bytes = bytes_of(layers, std::vector<float>(count, 1.0f));
        return model.refusal(&bytes);
    };
    EXPECT_EQ(refusal(model.layers, 10), "");
    for (std::string words : {refusal({{2, 16, 16}, {1, 16, 16}}, 6),
                              refusal({{2, 16, 16}, {2, 16, 16}, {1, 16, 16}}, 10),
                              refusal({{2, 16, 16}, {1, 16, 16}, {2, 16, 8}}, 10)}) {
        EXPECT_NE(words.find("another model"), std::string::npos) << words;
    }
    Bytes nothing;
    quire_cache_desc desc{};
    desc.calibration_bytes = 80;
    EXPECT_EQ(model.scales.create(desc, model.geometry, model.places).code, QUIRE_E_ARG);
}

TEST(StaticScales, margin_and_scales_stay_in_range) {
    Model model;
    for (float margin : {-1.0f, INFINITY, NAN}) {
        EXPECT_NE(model.refusal(&model.bytes, margin).find("calibration_margin"),
                  std::string::npos);
    }
    EXPECT_NE(model.refusal(&model.bytes, 1e38f).find("out of f32's range"), std::string::npos);
    EXPECT_NE(model.refusal(&model.bytes, 1e-44f).find("out of f32's range"), std::string::npos);
}

}  // namespace
}  // namespace quire
