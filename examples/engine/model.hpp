// SPDX-License-Identifier: Apache-2.0
//
// model: the sizes and weights of a Llama-architecture network, f32, all in one allocation.
//
// Two origins: a llama2.c checkpoint (legacy version 0, format: run.c `memory_map_weights` in
// github.com/karpathy/llama2.c), or pseudo-random weights from a seed where there is no file.
//
// Threads: immutable after construction.  Units: sizes are element counts unless named bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace engine {

struct ModelConfig {
    size_t dim = 0;
    size_t hidden_dim = 0;
    size_t layer_count = 0;
    size_t head_count = 0;
    size_t kv_head_count = 0;
    size_t vocab_size = 0;
    size_t seq_len = 0;  // maximum tokens of a sequence
    bool shared_classifier = false;

    size_t head_dim() const { return dim / head_count; }
    size_t kv_dim() const { return kv_head_count * head_dim(); }
};

struct LayerWeights {
    std::span<const float> attention_norm;  // [dim]
    std::span<const float> wq, wk, wv, wo;  // [dim or kv_dim][dim]
    std::span<const float> ffn_norm;        // [dim]
    std::span<const float> gate, down, up;  // w1 [hidden][dim], w2 [dim][hidden], w3 [hidden][dim]
};

class Model {
 public:
    // Reads a llama2.c checkpoint.
    //
    // Errors  throws Failure naming the file, the tensor and the byte at which the content becomes
    //         invalid, and what to do: missing, truncated, longer than its header says, another
    //         format, or a weight that is not finite.
    static Model load(const std::string &path);

    // A network that babbles; the same arguments give the same network on every machine.
    static Model seeded(const ModelConfig &config, uint64_t seed);

    // A copy whose weights are each off by a random share of up to `amount`: a worse model of the
    // same kind, for making drafts. The same arguments give the same copy.
    static Model perturbed(const Model &model, float amount, uint64_t seed);

    // Small enough for a few dozen chats in seconds on two cores; GQA 2:1, head_dim 32.
    static ModelConfig demo_config();

    // `layers` and the spans point into storage_, whose buffer survives a move but not a copy.
    Model(Model &&) noexcept = default;
    Model &operator=(Model &&) noexcept = default;
    Model(const Model &) = delete;
    Model &operator=(const Model &) = delete;

    const ModelConfig &config() const { return config_; }
    std::span<const float> embedding(size_t token) const;
    const LayerWeights &layer(size_t index) const { return layers_[index]; }
    std::span<const float> final_norm() const { return final_norm_; }
    std::span<const float> classifier() const { return classifier_; }
    std::span<const float> weights() const { return storage_; }  // all of them

 private:
    Model() = default;
    void bind();

    ModelConfig config_;
    std::vector<float> storage_;
    std::span<const float> embedding_;  // [vocab_size][dim]
    std::vector<LayerWeights> layers_;
    std::span<const float> final_norm_;
    std::span<const float> classifier_;  // [vocab_size][dim]
};

}  // namespace engine
