// SPDX-License-Identifier: Apache-2.0

#include "tokenizer.hpp"

#include "failure.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace engine {
namespace {

constexpr size_t kFirstByteToken = 3;
constexpr size_t kFirstLearnedToken = kFirstByteToken + 256;
constexpr int64_t kNoMerge = -1;

std::string byte_piece(size_t byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02zX>", byte);
    return text.data();
}

std::optional<unsigned char> byte_of(const std::string &piece) {
    unsigned byte = 0;
    char close = 0;
    if (piece.size() == 6 && std::sscanf(piece.c_str(), "<0x%2X%c", &byte, &close) == 2 &&
        close == '>') {
        return static_cast<unsigned char>(byte);
    }
    return std::nullopt;
}

// Length in bytes of the first UTF-8 sequence in `text`; a stray byte counts as one.
size_t character_bytes(std::string_view text) {
    size_t length = 1;
    while (length < text.size() && length < 4 &&
           (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) {
        ++length;
    }
    return length;
}

std::string_view take_bytes(const std::string &path, std::string_view &rest, size_t token,
                            size_t size_bytes) {
    if (rest.size() < size_bytes) {
        throw Failure("tokenizer " + path + ": truncated at token " + std::to_string(token) +
                      ". Give the tokenizer that belongs to the weights, whole.");
    }
    const std::string_view taken = rest.substr(0, size_bytes);
    rest.remove_prefix(size_bytes);
    return taken;
}

template <typename T>
T take(const std::string &path, std::string_view &rest, size_t token) {
    T value{};
    std::memcpy(&value, take_bytes(path, rest, token, sizeof(T)).data(), sizeof(T));
    return value;
}

std::string read_file(const std::string &path) {
    std::error_code error;
    std::ifstream file(path, std::ios::binary);
    if (!file || !std::filesystem::is_regular_file(path, error)) {
        throw Failure("tokenizer " + path +
                      ": cannot be read; check the path and its permissions.");
    }
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Tokenizer Tokenizer::load(const std::string &path, size_t vocab_size) {
    const std::string bytes = read_file(path);
    std::string_view rest = bytes;
    const auto longest = take<int32_t>(path, rest, 0);
    if (vocab_size < kFirstLearnedToken) {
        throw Failure("tokenizer " + path + ": the model has " + std::to_string(vocab_size) +
                      " tokens, fewer than the " + std::to_string(kFirstLearnedToken) +
                      " that bytes need; these weights are not supported.");
    }
    Tokenizer tokenizer;
    for (size_t token = 0; token < vocab_size; ++token) {
        const auto score = take<float>(path, rest, token);
        const auto length = take<int32_t>(path, rest, token);
        if (length < 0 || length > longest || !std::isfinite(score)) {
            throw Failure("tokenizer " + path + ": token " + std::to_string(token) +
                          " is invalid (length " + std::to_string(length) + ", longest " +
                          std::to_string(longest) + "). Give a llama2.c tokenizer.bin.");
        }
        const auto piece = take_bytes(path, rest, token, static_cast<size_t>(length));
        tokenizer.add(std::string(piece), score);
    }
    if (!rest.empty()) {
        throw Failure("tokenizer " + path + ": " + std::to_string(rest.size()) +
                      " bytes after the model's " + std::to_string(vocab_size) +
                      " tokens. Give the tokenizer that belongs to the weights.");
    }
    return tokenizer;
}

Tokenizer Tokenizer::syllables(size_t vocab_size) {
    Tokenizer tokenizer;
    tokenizer.add("<unk>", 0.0F);
    tokenizer.add("<s>", 0.0F);
    tokenizer.add("</s>", 0.0F);
    for (size_t byte = 0; byte < 256; ++byte) {
        tokenizer.add(byte_piece(byte), 0.0F);
    }
    constexpr std::string_view kConsonants = "bcdfghjklmnpqrstvwxyz";
    constexpr std::string_view kVowels = "aeiouy";
    for (const std::string_view prefix : {" ", ""}) {
        for (const char consonant : kConsonants) {
            for (const char vowel : kVowels) {
                if (tokenizer.pieces_.size() < vocab_size) {
                    tokenizer.add(std::string(prefix) + consonant + vowel, 0.0F);
                }
            }
        }
    }
    while (tokenizer.pieces_.size() < vocab_size) {
        tokenizer.add(". ", 0.0F);
    }
    return tokenizer;
}

void Tokenizer::add(std::string text, float score) {
    longest_piece_bytes_ = std::max(longest_piece_bytes_, text.size());
    ids_.emplace(text, static_cast<uint32_t>(pieces_.size()));
    pieces_.push_back({std::move(text), score});
}

std::vector<uint32_t> Tokenizer::encode(std::string_view text) const {
    std::vector<uint32_t> tokens{kBosToken};
    if (!text.empty()) {
        append_text(tokens, " ");
        append_text(tokens, text);
        merge(tokens);
    }
    return tokens;
}

// A character that is a piece becomes that piece; any other becomes its bytes.
void Tokenizer::append_text(std::vector<uint32_t> &tokens, std::string_view text) const {
    while (!text.empty()) {
        const std::string character(text.substr(0, character_bytes(text)));
        if (const auto found = ids_.find(character); found != ids_.end()) {
            tokens.push_back(found->second);
        } else {
            for (const char byte : character) {
                tokens.push_back(static_cast<uint32_t>(kFirstByteToken) +
                                 static_cast<unsigned char>(byte));
            }
        }
        text.remove_prefix(character.size());
    }
}

// Joins the neighbours whose union scores best until no union is a piece. The result of a pair is
// looked up once per pair, so a long prompt costs comparisons of numbers, not of strings.
void Tokenizer::merge(std::vector<uint32_t> &tokens) const {
    std::vector<int64_t> joined;  // joined[i] = piece of tokens[i] and tokens[i + 1]
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
        joined.push_back(merged(tokens[i], tokens[i + 1]));
    }
    for (;;) {
        size_t best = joined.size();
        for (size_t i = 0; i < joined.size(); ++i) {
            if (joined[i] != kNoMerge &&
                (best == joined.size() || pieces_[static_cast<size_t>(joined[i])].score >
                                              pieces_[static_cast<size_t>(joined[best])].score)) {
                best = i;
            }
        }
        if (best == joined.size()) {
            return;
        }
        tokens[best] = static_cast<uint32_t>(joined[best]);
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
        joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(best));
        if (best < joined.size()) {
            joined[best] = merged(tokens[best], tokens[best + 1]);
        }
        if (best > 0) {
            joined[best - 1] = merged(tokens[best - 1], tokens[best]);
        }
    }
}

int64_t Tokenizer::merged(uint32_t left, uint32_t right) const {
    const auto found = ids_.find(pieces_[left].text + pieces_[right].text);
    return found == ids_.end() ? kNoMerge : static_cast<int64_t>(found->second);
}

std::string Tokenizer::decode(uint32_t previous, uint32_t token) const {
    if (ends_text(token)) {
        return "";
    }
    const std::string &piece = pieces_[token].text;
    if (const auto byte = byte_of(piece)) {
        const bool white_space = *byte == '\n' || *byte == '\t' || *byte == '\r';
        const bool control = *byte < 0x20 || *byte == 0x7F;
        return control && !white_space ? "" : std::string(1, static_cast<char>(*byte));
    }
    return previous == kBosToken && piece.starts_with(' ') ? piece.substr(1) : piece;
}

}  // namespace engine
