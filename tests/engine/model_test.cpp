// SPDX-License-Identifier: Apache-2.0
//
// model: checkpoints are read completely or refused with a reason.

#include "model.hpp"

#include "fixtures.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace engine {
namespace {

using testing::bytes_of;
using testing::failure_of;
using testing::ScratchFile;

// dim 4, hidden 6, 2 layers, 2 heads, 1 KV head, vocab 5 (shared classifier), seq_len 3.
const std::vector<int32_t> kHeader = {4, 6, 2, 2, 1, 5, 3};
// Embedding 20; per layer: norms 4 + 4, wq 16, wk 8, wv 8, wo 16, w1, w2, w3 24 each; final norm 4;
// two RoPE tables of 3 x 1.
constexpr size_t kFloatCount = 20 + 2 * (4 + 4 + 16 + 8 + 8 + 16 + 3 * 24) + 4 + 2 * 3;

std::vector<float> counting_floats(size_t count) {
    std::vector<float> floats;
    for (size_t i = 0; i < count; ++i) {
        floats.push_back(static_cast<float>(i));
    }
    return floats;
}

std::string checkpoint() { return bytes_of(kHeader) + bytes_of(counting_floats(kFloatCount)); }

std::string load_failure(const std::string &bytes) {
    const ScratchFile file(bytes);
    return failure_of([&] { Model::load(file.path()); });
}

std::string header_failure(size_t field, int32_t value) {
    std::vector<int32_t> header = kHeader;
    header[field] = value;
    return load_failure(bytes_of(header) + bytes_of(counting_floats(kFloatCount)));
}

TEST(Model, tensors_are_found_where_the_format_puts_them) {
    const ScratchFile file(checkpoint());
    const Model model = Model::load(file.path());
    EXPECT_EQ(model.config().head_dim(), 2U);
    EXPECT_EQ(model.embedding(1)[0], 4.0F);
    EXPECT_EQ(model.layer(0).attention_norm[0], 20.0F);
    EXPECT_EQ(model.layer(1).attention_norm[0], 24.0F);
    EXPECT_EQ(model.layer(0).wq[0], 28.0F);
    EXPECT_EQ(model.layer(1).wk[0], 28.0F + 2 * 16 + 8);
    EXPECT_EQ(model.layer(1).up.back(), static_cast<float>(kFloatCount - 6 - 4 - 1));
    EXPECT_EQ(model.final_norm()[0], static_cast<float>(kFloatCount - 6 - 4));
    EXPECT_EQ(model.classifier().data(), model.embedding(0).data());
}

TEST(Model, negative_vocab_size_means_a_classifier_of_its_own) {
    std::vector<int32_t> header = kHeader;
    header[5] = -5;
    const ScratchFile file(bytes_of(header) + bytes_of(counting_floats(kFloatCount + 20)));
    const Model model = Model::load(file.path());
    EXPECT_EQ(model.classifier()[0], static_cast<float>(kFloatCount));
}

TEST(Model, every_truncation_is_refused_and_names_the_tensor) {
    const std::string whole = checkpoint();
    for (size_t size = 0; size < whole.size(); size += 3) {
        EXPECT_NE(load_failure(whole.substr(0, size)), "") << size;
    }
    EXPECT_NE(load_failure(whole.substr(0, 28 + 4 * 30)).find("truncated inside tensor 'wq'"),
              std::string::npos);
    EXPECT_NE(load_failure(whole.substr(0, 20)).find("no 28-byte header"), std::string::npos);
}

TEST(Model, bytes_behind_the_last_tensor_are_refused) {
    EXPECT_NE(load_failure(checkpoint() + "!").find("1 bytes after its last tensor"),
              std::string::npos);
}

TEST(Model, impossible_sizes_are_refused_by_name) {
    EXPECT_NE(header_failure(0, 0).find("dim at byte 0"), std::string::npos);
    EXPECT_NE(header_failure(2, -1).find("layer count at byte 8"), std::string::npos);
    EXPECT_NE(header_failure(5, std::numeric_limits<int32_t>::min()).find("vocab size at byte 20"),
              std::string::npos);
    EXPECT_NE(header_failure(3, 3).find("3 heads of even size"), std::string::npos);
    EXPECT_NE(header_failure(0, 6).find("2 heads of even size"), std::string::npos);
    EXPECT_NE(header_failure(4, 3).find("cannot share"), std::string::npos);
}

TEST(Model, sizes_whose_product_would_overflow_are_a_truncation) {
    const int32_t most = 1 << 19;
    const std::string bytes =
        bytes_of(std::vector<int32_t>{most, most, most, most / 2, most / 2, most, most});
    EXPECT_NE(load_failure(bytes).find("truncated inside tensor 'token embedding'"),
              std::string::npos);
}

TEST(Model, foreign_formats_are_called_by_name) {
    EXPECT_NE(load_failure("GGUF" + std::string(60, '\1')).find("GGUF"), std::string::npos);
    EXPECT_NE(load_failure("24ka\1\0\0\0" + std::string(60, '\1')).find("llama2.c"),
              std::string::npos);
    EXPECT_NE(load_failure("PK\3\4" + std::string(60, '\1')).find("zip"), std::string::npos);
}

TEST(Model, a_weight_that_is_not_finite_is_refused_with_its_place) {
    std::vector<float> floats = counting_floats(kFloatCount);
    floats[30] = std::nanf("");
    const std::string why = load_failure(bytes_of(kHeader) + bytes_of(floats));
    EXPECT_NE(why.find("tensor 'wq'"), std::string::npos);
    EXPECT_NE(why.find("byte " + std::to_string(28 + 4 * 30)), std::string::npos);
}

TEST(Model, a_path_that_is_no_file_is_refused) {
    EXPECT_NE(failure_of([] { Model::load("/nowhere/model.bin"); }).find("cannot be read"),
              std::string::npos);
    EXPECT_NE(failure_of([] { Model::load("/"); }).find("cannot be read"), std::string::npos);
}

TEST(Model, the_same_seed_makes_the_same_weights) {
    const Model one = Model::seeded(Model::demo_config(), 7);
    const Model two = Model::seeded(Model::demo_config(), 7);
    const Model other = Model::seeded(Model::demo_config(), 8);
    EXPECT_TRUE(std::ranges::equal(one.layer(3).down, two.layer(3).down));
    EXPECT_FALSE(std::ranges::equal(one.layer(3).down, other.layer(3).down));
}

}  // namespace
}  // namespace engine
