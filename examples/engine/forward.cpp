// SPDX-License-Identifier: Apache-2.0

#include "forward.hpp"

#include <algorithm>
#include <utility>

namespace engine {

Forward::Forward(const Model &model, Cache &cache, Fault fault, Ranks *others,
                 std::vector<HeadRange> ranges)
    : model_(model),
      cache_(cache),
      fault_(fault),
      others_(others),
      ranges_(std::move(ranges)),
      rope_(model.config().head_dim(), model.config().seq_len) {}

void Forward::announce(const Step &step, std::span<const ForwardRow> rows) {
    if (others_ == nullptr) {
        return;
    }
    RankStep told;
    told.log = step.log();
    for (const ForwardRow &row : rows) {
        told.rows.push_back(
            {static_cast<uint32_t>(row.tokens.size()), static_cast<uint32_t>(row.first_position)});
        told.tokens.insert(told.tokens.end(), row.tokens.begin(), row.tokens.end());
    }
    others_->send_step(told);
}

void Forward::take_reports(bool waits) {
    if (others_ == nullptr) {
        return;
    }
    for (const std::vector<uint8_t> &report : others_->collect_reports(waits)) {
        if (!report.empty()) {
            cache_.take_report(report);
        }
    }
}

void Forward::drop_log_if_asked() {
    if (others_ == nullptr || !others_->drops_next_log()) {
        return;
    }
    Step step(cache_, 0, {}, {});
    step.commit();
    step.finish();
}

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

// Embeds the tokens of all rows, row after row.
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
    attended_.resize(x_.size());
    projected_.resize(x_.size());
    gate_.resize(positions_.size() * config.hidden_dim);
    up_.resize(gate_.size());
}

void Forward::run_layer(size_t index) {
    const ModelConfig &config = model_.config();
    const LayerWeights &layer = model_.layer(index);
    rmsnorm(normed_, x_, layer.attention_norm);
    attend(index);
    matmul(projected_, attended_, layer.wo, config.dim);
    add(x_, projected_);

    rmsnorm(normed_, x_, layer.ffn_norm);
    matmul(gate_, normed_, layer.gate, config.dim);
    matmul(up_, normed_, layer.up, config.dim);
    swiglu(gate_, up_);
    matmul(projected_, gate_, layer.down, config.hidden_dim);
    add(x_, projected_);
}

// Computes the shard's heads of Q, K and V. K is rotated before it enters the cache: a cached
// position never changes, so one rotation is enough.
void Forward::project(const Shard &shard, const LayerWeights &layer) {
    const size_t dim = model_.config().dim, head_dim = model_.config().head_dim();
    const size_t count = positions_.size();
    const auto heads = [&](std::span<float> out, std::span<const float> weight, size_t begin,
                           size_t number) {
        const size_t row = number * head_dim;
        const std::span<float> numbers = out.first(count * row);
        matmul(numbers, normed_, weight.subspan(begin * head_dim * dim, row * dim), dim);
        return numbers;
    };
    const HeadRange &held = shard.heads;
    const auto q = heads(shard.q.numbers(), layer.wq, held.q_begin, held.q_count);
    const auto k = heads(shard.k.numbers(), layer.wk, held.kv_begin, held.kv_count);
    heads(shard.v.numbers(), layer.wv, held.kv_begin, held.kv_count);
    const size_t q_row = held.q_count * head_dim, k_row = held.kv_count * head_dim;
    for (size_t i = 0; i < count; ++i) {
        rope_.rotate(q.subspan(i * q_row, q_row), positions_[i]);
        rope_.rotate(k.subspan(i * k_row, k_row), positions_[i]);
    }
}

void Forward::attend(size_t index) {
    const size_t dim = model_.config().dim, head_dim = model_.config().head_dim();
    for (const Shard &shard : cache_.shards()) {
        project(shard, model_.layer(index));
    }
    cache_.attend(static_cast<uint32_t>(index), positions_.size());
    for (const Shard &shard : cache_.shards()) {
        const size_t row = shard.heads.q_count * head_dim;
        for (size_t i = 0; i < positions_.size(); ++i) {
            std::ranges::copy(shard.attended.numbers().subspan(i * row, row),
                              &attended_[i * dim + shard.heads.q_begin * head_dim]);
        }
    }
    if (others_ != nullptr) {
        others_->gather(attended_, ranges_, head_dim);
    }
    if (fault_ == Fault::zero_attention) {
        std::ranges::fill(attended_, 0.0F);
    }
}

std::span<const float> Forward::classify(std::span<const ForwardRow> rows) {
    const size_t dim = model_.config().dim;
    size_t last = 0;  // index after the row's last token, over all rows
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
