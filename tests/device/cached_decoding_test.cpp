// SPDX-License-Identifier: Apache-2.0
//
// The textbook example of why a KV cache exists: one layer, one head, width 64, a prompt of 16
// tokens and 48 more, the last of which is not fed back. Decoding with the cache gives the same
// results as decoding without one, with 1,305,600 multiply-accumulates instead of 41,829,376.
//
// Counted are the projections Q, K, V, O (width * width per token) and QK^T and PV (width per query
// and key each); the prompt's scores are unmasked.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "cpu_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kWidth = 64;
constexpr uint32_t kPrompt = 16;
constexpr uint32_t kTotal = 64;
constexpr uint32_t kVocabulary = 50;

using Vector = std::vector<float>;

struct Model {
    Model() {
        std::mt19937 random(3);
        auto draw = [&](uint32_t count, float scale) {
            Vector out(count);
            for (float &x : out) {
                x = scale * (static_cast<float>(random() % 20001) / 10000.0f - 1.0f);
            }
            return out;
        };
        embedding = draw(kVocabulary * kWidth, 1.0f);
        for (Vector &w : projections) w = draw(kWidth * kWidth, 0.3f);
    }

    // out = w x, with multiplications counted.
    Vector project(uint32_t which, const float *x) {
        Vector out(kWidth, 0.0f);
        for (uint32_t row = 0; row < kWidth; ++row) {
            for (uint32_t i = 0; i < kWidth; ++i) {
                out[row] += projections[which][row * kWidth + i] * x[i];
            }
        }
        multiplications += kWidth * kWidth;
        return out;
    }

    const float *embed(uint32_t token) const { return &embedding[token * kWidth]; }

    // The next token: the one whose embedding is nearest to x plus the attention's output.
    uint32_t choose(const float *x, const Vector &attention) {
        Vector out = project(3, attention.data());
        for (uint32_t i = 0; i < kWidth; ++i) out[i] += x[i];
        uint32_t best = 0;
        float best_score = -INFINITY;
        for (uint32_t token = 0; token < kVocabulary; ++token) {
            float score = 0;
            for (uint32_t i = 0; i < kWidth; ++i) score += out[i] * embed(token)[i];
            if (score > best_score) best = token, best_score = score;
        }
        return best;
    }

    Vector embedding;
    Vector projections[4];  // Q, K, V, O
    uint64_t multiplications = 0;
};

Vector attend(const Vector &q, const std::vector<Vector> &keys, const std::vector<Vector> &values) {
    std::vector<double> weights;
    double sum = 0, largest = -INFINITY;
    for (const Vector &key : keys) {
        double score = 0;
        for (uint32_t i = 0; i < kWidth; ++i) score += static_cast<double>(q[i]) * key[i];
        weights.push_back(score / std::sqrt(static_cast<double>(kWidth)));
        largest = std::max(largest, weights.back());
    }
    for (double &w : weights) sum += w = std::exp(w - largest);
    Vector out(kWidth, 0.0f);
    for (uint32_t k = 0; k < keys.size(); ++k) {
        for (uint32_t i = 0; i < kWidth; ++i) {
            out[i] += static_cast<float>(weights[k] / sum * static_cast<double>(values[k][i]));
        }
    }
    return out;
}

std::vector<uint32_t> prompt() {
    std::vector<uint32_t> tokens;
    for (uint32_t i = 0; i < kPrompt; ++i) tokens.push_back(i * 7 % kVocabulary);
    return tokens;
}

// Computes everything again for each token.
std::vector<uint32_t> decode_without_cache(Model *model) {
    std::vector<uint32_t> tokens = prompt();
    while (tokens.size() < kTotal) {
        std::vector<Vector> keys, values, queries;
        for (uint32_t token : tokens) {
            queries.push_back(model->project(0, model->embed(token)));
            keys.push_back(model->project(1, model->embed(token)));
            values.push_back(model->project(2, model->embed(token)));
        }
        uint32_t next = 0;
        for (size_t i = 0; i < tokens.size(); ++i) {
            std::vector<Vector> seen_keys(keys.begin(), keys.begin() + static_cast<long>(i) + 1);
            std::vector<Vector> seen_values(values.begin(),
                                            values.begin() + static_cast<long>(i) + 1);
            next =
                model->choose(model->embed(tokens[i]), attend(queries[i], seen_keys, seen_values));
        }
        model->multiplications += 2 * tokens.size() * tokens.size() * kWidth;
        tokens.push_back(next);
    }
    return tokens;
}

class CachedDecoder {
 public:
    CachedDecoder() : cache_(CacheShape{8, 16, kWidth}) {
        cache_.must(cache_.api.queue_create(cache_.device, nullptr, &queue_, &cache_.error));
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 1;
        desc.max_blocks_per_row = 8;
        desc.max_query_tokens = kTotal;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        cache_.must(cache_.api.batch_create(cache_.cache, &desc, &batch_, &cache_.error));
        seq_ = cache_.create();
    }
    ~CachedDecoder() {
        EXPECT_GE(cache_.api.batch_destroy(batch_, &cache_.error), 0) << cache_.error.message;
        EXPECT_GE(cache_.api.queue_destroy(queue_, &cache_.error), 0) << cache_.error.message;
    }

    // Feeds tokens and returns the attention of the last one.
    Vector feed(Model *model, const std::vector<uint32_t> &tokens, Vector *all = nullptr) {
        quire_step_result result{};
        quire_step step = cache_.begin(queue_, seq_, tokens, &result);
        EXPECT_EQ(result.compute_count, tokens.size());
        cache_.must(cache_.api.step_commit(cache_.cache, step, batch_, &cache_.error));
        Vector q, k, v, out(tokens.size() * kWidth);
        for (uint32_t token : tokens) {
            Vector parts[3];
            for (uint32_t p = 0; p < 3; ++p) parts[p] = model->project(p, model->embed(token));
            q.insert(q.end(), parts[0].begin(), parts[0].end());
            k.insert(k.end(), parts[1].begin(), parts[1].end());
            v.insert(v.end(), parts[2].begin(), parts[2].end());
        }
        auto kv = described<quire_kv_args>();
        kv.k = reinterpret_cast<uint64_t>(k.data());
        kv.v = reinterpret_cast<uint64_t>(v.data());
        cache_.must(cache_.api.kv_write(batch_, &kv, queue_, &cache_.error));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(q.data());
        args.out = reinterpret_cast<uint64_t>(out.data());
        cache_.must(cache_.api.attend(batch_, &args, queue_, &cache_.error));
        cache_.must(
            cache_.api.step_finish(cache_.cache, step, nullptr, QUIRE_STEP_OK, &cache_.error));
        cache_.must(cache_.api.queue_sync(queue_, &cache_.error));
        length_ += static_cast<uint32_t>(tokens.size());
        model->multiplications += 2 * tokens.size() * length_ * kWidth;
        if (all != nullptr) *all = out;
        return Vector(out.end() - kWidth, out.end());
    }

    // Changes one element of K of a written token.
    void corrupt(uint32_t position) {
        auto pool = described<quire_pool_info>();
        cache_.must(cache_.api.cache_get_pool(cache_.cache, 0, 0, &pool, &cache_.error));
        int32_t block = 0;
        uint32_t count = 0;
        cache_.api.step_blocks(cache_.cache, 0, seq_, 0, position / 16, &block, 1, &count,
                               &cache_.error);
        uint64_t address = pool.address + static_cast<uint64_t>(block * pool.block_stride) +
                           position % 16 * static_cast<uint64_t>(pool.k_token_stride);
        float *element = reinterpret_cast<float *>(address);
        *element += 40.0f;
    }

 private:
    CpuCache cache_;
    quire_queue *queue_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq seq_ = 0;
    uint32_t length_ = 0;
};

std::vector<uint32_t> decode_with_cache(Model *model) {
    CachedDecoder decoder;
    std::vector<uint32_t> tokens = prompt();
    Vector all;
    decoder.feed(model, tokens, &all);
    uint32_t next = 0;
    for (uint32_t i = 0; i < kPrompt; ++i) {  // O for every token of the prompt, as without a cache
        Vector row(all.begin() + i * kWidth, all.begin() + (i + 1) * kWidth);
        next = model->choose(model->embed(tokens[i]), row);
    }
    tokens.push_back(next);
    while (tokens.size() < kTotal) {
        Vector out = decoder.feed(model, {tokens.back()});
        tokens.push_back(model->choose(model->embed(tokens.back()), out));
    }
    return tokens;
}

TEST(CachedDecoding, gives_the_tokens_of_decoding_without_a_cache) {
    Model with, without;
    EXPECT_EQ(decode_with_cache(&with), decode_without_cache(&without));
    EXPECT_EQ(with.multiplications, 1305600u);
    EXPECT_EQ(without.multiplications, 41829376u);
}

TEST(CachedDecoding, one_corrupted_entry_changes_the_output) {
    Model model;
    CachedDecoder right, wrong;
    right.feed(&model, prompt());
    wrong.feed(&model, prompt());
    EXPECT_EQ(right.feed(&model, {5}), wrong.feed(&model, {5}));
    wrong.corrupt(3);
    EXPECT_NE(right.feed(&model, {9}), wrong.feed(&model, {9}));
}

TEST(CachedDecoding, one_missing_entry_changes_the_output) {
    Model model;
    CachedDecoder whole, shorter;
    std::vector<uint32_t> tokens = prompt();
    whole.feed(&model, tokens);
    tokens.erase(tokens.begin() + 3);
    shorter.feed(&model, tokens);
    EXPECT_NE(whole.feed(&model, {9}), shorter.feed(&model, {9}));
}

}  // namespace
