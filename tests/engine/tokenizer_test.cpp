// SPDX-License-Identifier: Apache-2.0
//
// tokenizer: text survives conversion to tokens and back, and damaged files are refused.

#include "tokenizer.hpp"

#include "fixtures.hpp"

namespace engine {
namespace {

using testing::bytes_of;
using testing::failure_of;
using testing::ScratchFile;

constexpr size_t kVocabSize = 263;

std::string entry(float score, const std::string &piece) {
    return bytes_of(std::vector<float>{score}) +
           bytes_of(std::vector<int32_t>{static_cast<int32_t>(piece.size())}) + piece;
}

// 259 tokens that every vocabulary has, then " a", "b", "ab", " ab".
std::string vocabulary() {
    std::string bytes = bytes_of(std::vector<int32_t>{6});
    bytes += entry(0, "<unk>") + entry(0, "<s>") + entry(0, "</s>");
    for (int byte = 0; byte < 256; ++byte) {
        char piece[8];
        std::snprintf(piece, sizeof piece, "<0x%02X>", static_cast<unsigned>(byte));
        bytes += entry(0, piece);
    }
    return bytes + entry(-1, " ") + entry(-2, "a") + entry(-3, "b") + entry(-1, "ab");
}

std::string decoded(const Tokenizer &tokenizer, const std::vector<uint32_t> &tokens) {
    std::string text;
    for (size_t i = 1; i < tokens.size(); ++i) {
        text += tokenizer.decode(tokens[i - 1], tokens[i]);
    }
    return text;
}

TEST(Tokenizer, encoding_starts_with_bos_and_merges_what_scores_best) {
    const ScratchFile file(vocabulary());
    const Tokenizer tokenizer = Tokenizer::load(file.path(), kVocabSize);
    EXPECT_EQ(tokenizer.encode(""), (std::vector<uint32_t>{kBosToken}));
    EXPECT_EQ(tokenizer.encode("ab"), (std::vector<uint32_t>{kBosToken, 259, 262}));
    EXPECT_EQ(tokenizer.encode("ba"), (std::vector<uint32_t>{kBosToken, 259, 261, 260}));
}

TEST(Tokenizer, characters_without_a_piece_become_their_bytes) {
    const ScratchFile file(vocabulary());
    const Tokenizer tokenizer = Tokenizer::load(file.path(), kVocabSize);
    EXPECT_EQ(tokenizer.encode("\xC3\xA9"),
              (std::vector<uint32_t>{kBosToken, 259, 3 + 0xC3, 3 + 0xA9}));
}

TEST(Tokenizer, decoding_drops_the_space_behind_bos_only) {
    const ScratchFile file(vocabulary());
    const Tokenizer tokenizer = Tokenizer::load(file.path(), kVocabSize);
    EXPECT_EQ(tokenizer.decode(kBosToken, 259), "");
    EXPECT_EQ(tokenizer.decode(262, 259), " ");
    EXPECT_EQ(tokenizer.decode(262, 3 + '\n'), "\n");
    EXPECT_EQ(tokenizer.decode(262, 3 + 7), "") << "a control character would ring the bell";
    EXPECT_EQ(tokenizer.decode(262, kEosToken), "");
}

TEST(Tokenizer, any_text_comes_back) {
    const ScratchFile file(vocabulary());
    for (const Tokenizer &tokenizer :
         {Tokenizer::load(file.path(), kVocabSize), Tokenizer::syllables(512)}) {
        for (const std::string text : {"abba", "a b\tc\n", "Größe \xE2\x82\xAC", "<0x41>"}) {
            const std::string back = decoded(tokenizer, tokenizer.encode(text));
            EXPECT_EQ(back.substr(back.size() - text.size()), text);
        }
    }
}

TEST(Tokenizer, every_truncation_is_refused) {
    const std::string whole = vocabulary();
    for (size_t size = 0; size < whole.size(); size += 7) {
        const ScratchFile file(whole.substr(0, size));
        const auto why = failure_of([&] { Tokenizer::load(file.path(), kVocabSize); });
        EXPECT_NE(why.find("truncated at token"), std::string::npos) << size;
    }
}

TEST(Tokenizer, a_vocabulary_of_another_size_is_refused) {
    const ScratchFile file(vocabulary());
    EXPECT_NE(failure_of([&] { Tokenizer::load(file.path(), kVocabSize - 1); }).find("bytes after"),
              std::string::npos);
    EXPECT_NE(failure_of([&] { Tokenizer::load(file.path(), kVocabSize + 1); }).find("truncated"),
              std::string::npos);
    EXPECT_NE(failure_of([&] { Tokenizer::load(file.path(), 100); }).find("not supported"),
              std::string::npos);
}

TEST(Tokenizer, lengths_that_make_no_sense_are_refused) {
    const std::string longest = bytes_of(std::vector<int32_t>{4});
    for (const int32_t length : {-1, 5, 1 << 30}) {
        const ScratchFile file(longest + bytes_of(std::vector<float>{0}) +
                               bytes_of(std::vector<int32_t>{length}) + "abcdefgh");
        const auto why = failure_of([&] { Tokenizer::load(file.path(), kVocabSize); });
        EXPECT_NE(why.find("is invalid"), std::string::npos) << length;
    }
}

}  // namespace
}  // namespace engine
