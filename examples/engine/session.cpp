// SPDX-License-Identifier: Apache-2.0

#include "session.hpp"

#include "failure.hpp"
#include "random.hpp"

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace engine {
namespace {

constexpr uint64_t kHeaderBytes = 256;
constexpr uint64_t kTableBytes = 8;  // of each group's table shape

uint32_t number_at(const std::vector<char> &bytes, size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
}

std::vector<char> read_bytes(std::ifstream &file, uint64_t count) {
    std::vector<char> bytes(count);
    file.read(bytes.data(), static_cast<std::streamsize>(count));
    return bytes;
}

}  // namespace

Fingerprint fingerprint_of(const Model &model) {
    std::array<uint64_t, 4> lanes{1, 2, 3, 4};
    const auto add = [&](uint64_t word) {
        for (uint64_t &lane : lanes) {
            lane = mix(lane, word);
        }
    };
    const ModelConfig &config = model.config();
    for (const size_t size : {config.dim, config.hidden_dim, config.layer_count, config.head_count,
                              config.kv_head_count, config.vocab_size, config.seq_len}) {
        add(size);
    }
    for (const float weight : model.weights()) {
        add(std::bit_cast<uint32_t>(weight));
    }
    Fingerprint fingerprint;
    static_assert(sizeof fingerprint == sizeof lanes);
    std::memcpy(fingerprint.data(), lanes.data(), sizeof lanes);
    return fingerprint;
}

std::vector<uint32_t> session_tokens(const std::string &path, size_t vocab_size) {
    std::error_code unknown;
    const uint64_t file_bytes = std::filesystem::file_size(path, unknown);
    std::ifstream file(path, std::ios::binary);
    if (unknown || !file) {
        throw Failure(path + " cannot be read; a run with --save-session makes one");
    }
    const Failure foreign(path + " is no session; a run with --save-session makes one");
    if (file_bytes < kHeaderBytes) {
        throw foreign;
    }
    const std::vector<char> header = read_bytes(file, kHeaderBytes);
    if (std::memcmp(header.data(), "QUIRESEQ", 8) != 0) {
        throw foreign;
    }
    const uint64_t known = number_at(header, 40), groups = number_at(header, 52);
    const uint64_t before = groups * kTableBytes, size_bytes = known * sizeof(uint32_t);
    if (known == 0 || file_bytes - kHeaderBytes < before + size_bytes) {
        throw foreign;
    }
    read_bytes(file, before);
    const std::vector<char> bytes = read_bytes(file, size_bytes);
    if (!file) {
        throw foreign;
    }
    std::vector<uint32_t> tokens(known);
    std::memcpy(tokens.data(), bytes.data(), size_bytes);
    for (const uint32_t token : tokens) {
        if (token >= vocab_size) {
            throw Failure(path + " was saved with another model: it has token " +
                          std::to_string(token) + ", and this one has " +
                          std::to_string(vocab_size));
        }
    }
    return tokens;
}

}  // namespace engine
