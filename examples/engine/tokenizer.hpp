// SPDX-License-Identifier: Apache-2.0
//
// tokenizer: text to token ids and back: byte-pair encoding with scores, as in llama2.c.
//
// Vocabulary: 0 unknown, 1 BOS, 2 EOS, 3..258 the raw bytes, then learned pieces. Format of a file
// (run.c `build_tokenizer`): int32 longest piece in bytes, then per token float32 score, int32
// length in bytes, the bytes.
//
// Threads: immutable after construction.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace engine {

constexpr uint32_t kBosToken = 1;
constexpr uint32_t kEosToken = 2;

// llama2.c's training data separates documents by BOS, so either token ends a text.
constexpr bool ends_text(uint32_t token) { return token == kBosToken || token == kEosToken; }

class Tokenizer {
 public:
    // Reads a llama2.c tokenizer of exactly `vocab_size` tokens.
    //
    // Errors  throws Failure naming the file, the token and the byte at which it becomes invalid.
    static Tokenizer load(const std::string &path, size_t vocab_size);

    // Bytes, and syllables for the rest of the vocabulary, so that a seeded model's text is
    // readable.
    //
    // vocab_size  [259, 512].
    static Tokenizer syllables(size_t vocab_size);

    // BOS, then the pieces of `text` after a leading space, as the models were trained.
    std::vector<uint32_t> encode(std::string_view text) const;

    // The text that `token` prints after `previous`: no leading space after BOS, nothing for BOS
    // and EOS, a raw byte for a byte token unless it is a control character other than white space.
    std::string decode(uint32_t previous, uint32_t token) const;

    // A text of more than token_limit * longest_piece_bytes() bytes never fits into token_limit
    // tokens.
    size_t longest_piece_bytes() const { return longest_piece_bytes_; }

 private:
    struct Piece {
        std::string text;
        float score = 0.0F;
    };

    Tokenizer() = default;
    void add(std::string text, float score);
    void append_text(std::vector<uint32_t> &tokens, std::string_view text) const;
    void merge(std::vector<uint32_t> &tokens) const;
    int64_t merged(uint32_t left, uint32_t right) const;

    std::vector<Piece> pieces_;
    std::unordered_map<std::string, uint32_t> ids_;  // the first of equal pieces
    size_t longest_piece_bytes_ = 1;
};

}  // namespace engine
