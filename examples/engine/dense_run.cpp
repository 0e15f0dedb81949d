// SPDX-License-Identifier: Apache-2.0

#include "dense_run.hpp"

#include "tokenizer.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace engine {

DenseRun::DenseRun(const Model &model)
    : model_(model),
      rope_(model.config().head_dim(), model.config().seq_len),
      keys_(model.config().layer_count * model.config().seq_len * model.config().kv_dim()),
      values_(keys_.size()),
      x_(model.config().dim),
      normed_(model.config().dim),
      q_(model.config().dim),
      attended_(model.config().dim),
      projected_(model.config().dim),
      gate_(model.config().hidden_dim),
      up_(model.config().hidden_dim),
      scores_(model.config().seq_len),
      logits_(model.config().vocab_size) {}

void DenseRun::feed(uint32_t token, size_t position) {
    const ModelConfig &config = model_.config();
    const size_t kv_dim = config.kv_dim();
    std::ranges::copy(model_.embedding(token), x_.begin());
    for (size_t index = 0; index < config.layer_count; ++index) {
        const LayerWeights &layer = model_.layer(index);
        const size_t slot = (index * config.seq_len + position) * kv_dim;
        const std::span<float> k(&keys_[slot], kv_dim);
        const std::span<float> v(&values_[slot], kv_dim);
        rmsnorm(normed_, x_, layer.attention_norm);
        matmul(q_, normed_, layer.wq, config.dim);
        matmul(k, normed_, layer.wk, config.dim);
        matmul(v, normed_, layer.wv, config.dim);
        rope_.rotate(q_, position);
        rope_.rotate(k, position);
        attend(index, position);
        matmul(projected_, attended_, layer.wo, config.dim);
        add(x_, projected_);

        rmsnorm(normed_, x_, layer.ffn_norm);
        matmul(gate_, normed_, layer.gate, config.dim);
        matmul(up_, normed_, layer.up, config.dim);
        swiglu(gate_, up_);
        matmul(projected_, gate_, layer.down, config.hidden_dim);
        add(x_, projected_);
    }
}

std::span<const float> DenseRun::logits() {
    rmsnorm(normed_, x_, model_.final_norm());
    matmul(logits_, normed_, model_.classifier(), model_.config().dim);
    return logits_;
}

// Causal attention of the newest token over positions [0, position], grouped query heads.
void DenseRun::attend(size_t layer, size_t position) {
    const ModelConfig &config = model_.config();
    const size_t head_dim = config.head_dim();
    const size_t kv_dim = config.kv_dim();
    const size_t queries_per_kv = config.head_count / config.kv_head_count;
    const float scale = 1.0F / std::sqrt(static_cast<float>(head_dim));
    const std::span<float> scores(scores_.data(), position + 1);
    std::ranges::fill(attended_, 0.0F);
    for (size_t head = 0; head < config.head_count; ++head) {
        const size_t first = layer * config.seq_len * kv_dim + head / queries_per_kv * head_dim;
        const float *query = &q_[head * head_dim];
        for (size_t t = 0; t <= position; ++t) {
            const float *key = &keys_[first + t * kv_dim];
            float score = 0.0F;
            for (size_t i = 0; i < head_dim; ++i) {
                score += query[i] * key[i];
            }
            scores[t] = score * scale;
        }
        softmax(scores);
        float *out = &attended_[head * head_dim];
        for (size_t t = 0; t <= position; ++t) {
            const float *value = &values_[first + t * kv_dim];
            for (size_t i = 0; i < head_dim; ++i) {
                out[i] += scores[t] * value[i];
            }
        }
    }
}

std::vector<Generated> DenseRun::generate(const Request &request, uint64_t seed) {
    for (size_t position = 0; position < request.prompt.size(); ++position) {
        feed(request.prompt[position], position);
    }
    const std::span<const float> last = logits();
    const std::vector<float> prompt_logits(last.begin(), last.end());
    std::vector<Generated> texts;
    for (uint32_t sample = 0; sample < request.sample_count; ++sample) {
        if (sample > 0 && request.temperature == 0.0F) {
            texts.push_back(texts.front());  // greedy samples do not differ
            continue;
        }
        texts.push_back(continue_prompt(request, sample, seed, prompt_logits));
    }
    return texts;
}

Generated DenseRun::continue_prompt(const Request &request, uint32_t sample, uint64_t seed,
                                    std::span<const float> prompt_logits) {
    Generated text;
    std::span<const float> next_logits = prompt_logits;
    for (size_t position = request.prompt.size(); text.size() < request.generate_limit;
         ++position) {
        const DrawKey key{seed, request.id, sample, static_cast<uint32_t>(position)};
        text.push_back(choose(next_logits, request.temperature, key));
        if (ends_text(text.back().token) || text.size() == request.generate_limit) {
            break;
        }
        feed(text.back().token, position);
        next_logits = logits();
    }
    return text;
}

std::vector<std::vector<Generated>> dense_texts(const Model &model,
                                                std::span<const Request> requests, uint64_t seed,
                                                unsigned thread_count) {
    std::vector<std::vector<Generated>> texts(requests.size());
    std::atomic<size_t> next = 0;
    const auto work = [&] {
        DenseRun run(model);
        for (size_t i = next++; i < requests.size(); i = next++) {
            texts[i] = run.generate(requests[i], seed);
        }
    };
    std::vector<std::jthread> threads;
    for (unsigned i = 1; i < thread_count; ++i) {
        threads.emplace_back(work);
    }
    work();
    threads.clear();  // joins
    return texts;
}

}  // namespace engine
