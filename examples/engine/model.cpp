// SPDX-License-Identifier: Apache-2.0

#include "model.hpp"

#include "failure.hpp"
#include "random.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>

namespace engine {
namespace {

constexpr size_t kHeaderBytes = 7 * sizeof(int32_t);

// No size in a header may exceed this. A tensor kind multiplies three sizes, a file has 14 kinds of
// 4-byte numbers: 2^(3*19) * 14 * 4 < 2^63, so that no product or sum of sizes here can wrap.
constexpr size_t kSizeLimit = size_t{1} << 19;

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

enum class Role { norm, embedding, query_key, projection, residual, rope, classifier };

// One kind of tensor as stored in the file: `count` tensors of `rows` x `columns`, back to back.
struct TensorKind {
    const char *name;
    Role role;
    size_t count, rows, columns;

    size_t element_count() const { return count * rows * columns; }
};

// The only description of the order of tensors; loading, seeding and binding all walk it.
std::array<TensorKind, 14> tensor_kinds(const ModelConfig &c) {
    const size_t layers = c.layer_count;
    return {{
        {"token embedding", Role::embedding, 1, c.vocab_size, c.dim},
        {"attention norm", Role::norm, layers, 1, c.dim},
        {"wq", Role::query_key, layers, c.dim, c.dim},
        {"wk", Role::query_key, layers, c.kv_dim(), c.dim},
        {"wv", Role::projection, layers, c.kv_dim(), c.dim},
        {"wo", Role::residual, layers, c.dim, c.dim},
        {"ffn norm", Role::norm, layers, 1, c.dim},
        {"w1", Role::projection, layers, c.hidden_dim, c.dim},
        {"w2", Role::residual, layers, c.dim, c.hidden_dim},
        {"w3", Role::projection, layers, c.hidden_dim, c.dim},
        {"final norm", Role::norm, 1, 1, c.dim},
        {"RoPE cosines (unused)", Role::rope, 1, c.seq_len, c.head_dim() / 2},
        {"RoPE sines (unused)", Role::rope, 1, c.seq_len, c.head_dim() / 2},
        {"classifier", Role::classifier, c.shared_classifier ? size_t{0} : 1, c.vocab_size, c.dim},
    }};
}

size_t total_elements(const ModelConfig &config) {
    size_t total = 0;
    for (const TensorKind &kind : tensor_kinds(config)) {
        total += kind.element_count();
    }
    return total;
}

[[noreturn]] void foreign(const std::string &path, const std::string &what) {
    throw Failure("weights " + path + ": " + what +
                  ". Give a llama2.c checkpoint of the legacy format (export.py --version 0), for "
                  "example stories15M.bin.");
}

void refuse_known_formats(const std::string &path, const std::array<int32_t, 7> &header) {
    char magic[9] = {};
    std::memcpy(magic, header.data(), 8);
    if (std::memcmp(magic, "GGUF", 4) == 0) {
        foreign(path, "this is a GGUF file");
    }
    if (header[0] == 0x616b3432) {  // "ak42"
        foreign(path, "this is a llama2.c checkpoint of version " + std::to_string(header[1]));
    }
    if (std::memcmp(magic, "PK\x03\x04", 4) == 0) {
        foreign(path, "this is a zip archive, probably a PyTorch checkpoint");
    }
    uint64_t json_bytes = 0;
    std::memcpy(&json_bytes, header.data(), sizeof json_bytes);
    if (json_bytes < (uint64_t{1} << 32) && (header[2] & 0xFF) == '{') {
        foreign(path, "this is a safetensors file");
    }
}

ModelConfig parse_header(const std::string &path, const std::array<int32_t, 7> &header) {
    refuse_known_formats(path, header);
    constexpr const char *kNames[] = {"dim",           "hidden_dim", "layer count", "head count",
                                      "KV head count", "vocab size", "seq_len"};
    std::array<size_t, 7> sizes{};
    for (size_t i = 0; i < header.size(); ++i) {
        const int64_t value = i == 5 ? std::abs(int64_t{header[i]}) : int64_t{header[i]};
        if (value < 1 || value > static_cast<int64_t>(kSizeLimit)) {
            foreign(path, std::string(kNames[i]) + " at byte " + std::to_string(4 * i) + " is " +
                              std::to_string(header[i]) + ", not a number from 1 to " +
                              std::to_string(kSizeLimit));
        }
        sizes[i] = static_cast<size_t>(value);
    }
    ModelConfig config{.dim = sizes[0],
                       .hidden_dim = sizes[1],
                       .layer_count = sizes[2],
                       .head_count = sizes[3],
                       .kv_head_count = sizes[4],
                       .vocab_size = sizes[5],
                       .seq_len = sizes[6],
                       .shared_classifier = header[5] > 0};
    if (config.dim % config.head_count != 0 || config.head_dim() % 2 != 0) {
        foreign(path, "dim " + std::to_string(config.dim) + " does not split into " +
                          std::to_string(config.head_count) + " heads of even size");
    }
    if (config.head_count % config.kv_head_count != 0) {
        foreign(path, std::to_string(config.head_count) + " heads cannot share " +
                          std::to_string(config.kv_head_count) + " KV heads evenly");
    }
    return config;
}

// Names the tensor that holds the first missing byte.
[[noreturn]] void truncated(const std::string &path, const ModelConfig &config, uint64_t file_bytes,
                            uint64_t expected_bytes) {
    uint64_t end_bytes = kHeaderBytes;
    for (const TensorKind &kind : tensor_kinds(config)) {
        end_bytes += kind.element_count() * sizeof(float);
        if (end_bytes > file_bytes) {
            throw Failure("weights " + path + ": truncated inside tensor '" + kind.name +
                          "': the file ends at byte " + std::to_string(file_bytes) +
                          ", its header asks for " + std::to_string(expected_bytes) +
                          ". Download or copy it again.");
        }
    }
    throw Failure("weights " + path + ": truncated at byte " + std::to_string(file_bytes));
}

void require_finite(const std::string &path, const ModelConfig &config,
                    std::span<const float> storage) {
    size_t offset = 0;
    for (const TensorKind &kind : tensor_kinds(config)) {
        for (size_t i = 0; i < kind.element_count(); ++i, ++offset) {
            if (kind.role != Role::rope && !std::isfinite(storage[offset])) {
                throw Failure("weights " + path + ": tensor '" + kind.name +
                              "' holds a number that is not finite at byte " +
                              std::to_string(kHeaderBytes + offset * sizeof(float)) +
                              ". The file is damaged; download or copy it again.");
            }
        }
    }
}

// Standard deviation of a seeded weight that keeps activations near 1 through the layers.
float seeded_scale(const TensorKind &kind, const ModelConfig &config) {
    const float fan_in = 1.0F / std::sqrt(static_cast<float>(kind.columns));
    switch (kind.role) {
        case Role::embedding:
            return 1.0F;
        case Role::query_key:
            // Scores then spread by about 3, so that attention picks a few tokens instead of
            // averaging all, and a wrong block shows in the text.
            return 1.7F * fan_in;
        case Role::classifier:
            return 3.0F * fan_in;  // a distribution that sampling neither flattens nor freezes
        case Role::residual:
            return 2.0F * fan_in / std::sqrt(static_cast<float>(config.layer_count));
        case Role::norm:
        case Role::projection:
        case Role::rope:
            break;
    }
    return fan_in;
}

// Roughly normal with variance 1: the sum of four uniform numbers (Irwin-Hall), exact in binary
// floating point, so that every machine makes the same weights without calling its libm.
float seeded_normal(uint64_t bits) {
    double sum = 0.0;
    for (int part = 0; part < 4; ++part) {
        sum += static_cast<double>((bits >> (16 * part)) & 0xFFFF) / 65536.0;
    }
    return static_cast<float>((sum - 2.0) * std::numbers::sqrt3);
}

}  // namespace

Model Model::load(const std::string &path) {
    std::error_code error;
    std::ifstream file(path, std::ios::binary);
    if (!file || !std::filesystem::is_regular_file(path, error)) {
        throw Failure("weights " + path + ": cannot be read; check the path and its permissions.");
    }
    const uint64_t file_bytes = std::filesystem::file_size(path);
    std::array<int32_t, 7> header{};
    if (!file.read(reinterpret_cast<char *>(header.data()), kHeaderBytes)) {
        foreign(path, "has no " + std::to_string(kHeaderBytes) + "-byte header");
    }
    Model model;
    model.config_ = parse_header(path, header);
    const uint64_t payload_bytes = uint64_t{total_elements(model.config_)} * sizeof(float);
    const uint64_t expected_bytes = kHeaderBytes + payload_bytes;
    if (file_bytes < expected_bytes) {
        truncated(path, model.config_, file_bytes, expected_bytes);
    }
    if (file_bytes > expected_bytes) {
        foreign(path, "has " + std::to_string(file_bytes - expected_bytes) +
                          " bytes after its last tensor, which ends at byte " +
                          std::to_string(expected_bytes));
    }
    model.storage_.resize(total_elements(model.config_));
    if (!file.read(reinterpret_cast<char *>(model.storage_.data()),
                   static_cast<std::streamsize>(payload_bytes))) {
        throw Failure("weights " + path + ": reading failed; did the file change meanwhile?");
    }
    require_finite(path, model.config_, model.storage_);
    model.bind();
    return model;
}

Model Model::seeded(const ModelConfig &config, uint64_t seed) {
    Model model;
    model.config_ = config;
    model.storage_.reserve(total_elements(config));
    uint64_t counter = 0;
    for (const TensorKind &kind : tensor_kinds(config)) {
        const float scale = seeded_scale(kind, config);
        for (size_t i = 0; i < kind.element_count(); ++i, ++counter) {
            const bool norm = kind.role == Role::norm;
            model.storage_.push_back(norm ? 1.0F : scale * seeded_normal(mix(seed, counter)));
        }
    }
    model.bind();
    return model;
}

Model Model::perturbed(const Model &model, float amount, uint64_t seed) {
    Model copy;
    copy.config_ = model.config_;
    copy.storage_ = model.storage_;
    for (size_t i = 0; i < copy.storage_.size(); ++i) {
        const double share = 2.0 * unit_interval(mix(seed, i)) - 1.0;
        copy.storage_[i] *= 1.0F + amount * static_cast<float>(share);
    }
    copy.bind();
    return copy;
}

ModelConfig Model::demo_config() {
    return {.dim = 128,
            .hidden_dim = 352,
            .layer_count = 4,
            .head_count = 4,
            .kv_head_count = 2,
            .vocab_size = 512,
            .seq_len = 512,
            .shared_classifier = false};
}

std::span<const float> Model::embedding(size_t token) const {
    return embedding_.subspan(token * config_.dim, config_.dim);
}

void Model::bind() {
    const auto kinds = tensor_kinds(config_);
    std::array<std::span<const float>, kinds.size()> all;
    size_t offset = 0;
    for (size_t i = 0; i < kinds.size(); ++i) {
        all[i] = std::span<const float>(storage_).subspan(offset, kinds[i].element_count());
        offset += kinds[i].element_count();
    }
    const auto of_layer = [&](size_t kind, size_t layer) {
        const size_t count = kinds[kind].rows * kinds[kind].columns;
        return all[kind].subspan(layer * count, count);
    };
    embedding_ = all[0];
    for (size_t layer = 0; layer < config_.layer_count; ++layer) {
        layers_.push_back({.attention_norm = of_layer(1, layer),
                           .wq = of_layer(2, layer),
                           .wk = of_layer(3, layer),
                           .wv = of_layer(4, layer),
                           .wo = of_layer(5, layer),
                           .ffn_norm = of_layer(6, layer),
                           .gate = of_layer(7, layer),
                           .down = of_layer(8, layer),
                           .up = of_layer(9, layer)});
    }
    final_norm_ = all[10];
    classifier_ = config_.shared_classifier ? embedding_ : all[13];
}

}  // namespace engine
