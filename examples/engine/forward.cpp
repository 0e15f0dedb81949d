// SPDX-License-Identifier: Apache-2.0

#include "forward.hpp"

#include <algorithm>

namespace engine {

Forward::Forward(const Model &model, Cache &cache, Fault fault)
    : model_(model),
      cache_(cache),
      fault_(fault),
      rope_(model.config().head_dim(), model.config().seq_len) {}

std::span<const float> Forward::run(std::span<const ForwardRow> rows) {
    load(rows);
    if (fault_ == Fault::wrong_block) {
        cache_.plant_wrong_block();
    }
    for (size_t index = 0; index < model_.config().layer_count; ++index) {
        run_layer(index);
    }
    return classify(rows);
}

// Embeds the tokens of all rows, one behind another.
void Forward::load(std::span<const ForwardRow> rows) {
    const ModelConfig &config = model_.config();
    positions_.clear();
    x_.clear();
    for (const ForwardRow &row : rows) {
        for (size_t i = 0; i < row.tokens.size(); ++i) {
            const std::span<const float> embedding = model_.embedding(row.tokens[i]);
            x_.insert(x_.end(), embedding.begin(), embedding.end());
            const bool given = !row.positions.empty();
            positions_.push_back(given ? row.positions[i] : row.first_position + i);
        }
    }
    normed_.resize(x_.size());
    projected_.resize(x_.size());
    gate_.resize(positions_.size() * config.hidden_dim);
    up_.resize(gate_.size());
}

void Forward::run_layer(size_t index) {
    const ModelConfig &config = model_.config();
    const LayerWeights &layer = model_.layer(index);
    rmsnorm(normed_, x_, layer.attention_norm);
    attend(index);
    matmul(projected_, cache_.attended().first(x_.size()), layer.wo, config.dim);
    add(x_, projected_);

    rmsnorm(normed_, x_, layer.ffn_norm);
    matmul(gate_, normed_, layer.gate, config.dim);
    matmul(up_, normed_, layer.up, config.dim);
    swiglu(gate_, up_);
    matmul(projected_, gate_, layer.down, config.hidden_dim);
    add(x_, projected_);
}

// Rotated K goes into the cache: a cached position never changes, so it is rotated once.
void Forward::attend(size_t index) {
    const ModelConfig &config = model_.config();
    const LayerWeights &layer = model_.layer(index);
    const size_t count = positions_.size();
    const std::span<float> q = cache_.q().first(count * config.dim);
    const std::span<float> k = cache_.k().first(count * config.kv_dim());
    const std::span<float> v = cache_.v().first(count * config.kv_dim());
    matmul(q, normed_, layer.wq, config.dim);
    matmul(k, normed_, layer.wk, config.dim);
    matmul(v, normed_, layer.wv, config.dim);
    for (size_t i = 0; i < count; ++i) {
        rope_.rotate(q.subspan(i * config.dim, config.dim), positions_[i]);
        rope_.rotate(k.subspan(i * config.kv_dim(), config.kv_dim()), positions_[i]);
    }
    cache_.attend(static_cast<uint32_t>(index));
    if (fault_ == Fault::zero_attention) {
        std::ranges::fill(cache_.attended(), 0.0F);
    }
}

std::span<const float> Forward::classify(std::span<const ForwardRow> rows) {
    const size_t dim = model_.config().dim;
    size_t last = 0;  // token behind the row, over all rows
    size_t picked = 0;
    for (const ForwardRow &row : rows) {
        const size_t first = last;
        last += row.tokens.size();
        const size_t wanted_from = row.wants_all ? first : row.wants_logits ? last - 1 : last;
        for (size_t token = wanted_from; token < last; ++token, ++picked) {
            const std::span<const float> x(&x_[token * dim], dim);
            rmsnorm(std::span(&normed_[picked * dim], dim), x, model_.final_norm());
        }
    }
    logits_.resize(picked * model_.config().vocab_size);
    matmul(logits_, std::span(normed_).first(picked * dim), model_.classifier(), dim);
    return logits_;
}

}  // namespace engine
