// SPDX-License-Identifier: Apache-2.0
//
// Engines in threads of their own, each with a queue and a batch, on one cache with memory: the
// cache serialises steps; kernels of a committed batch do not take its lock.
//
// Engine e writes the value e + 1 for every V, so its attention must always return e + 1: a block
// shared by two engines by mistake shows at once.

#include <atomic>
#include <thread>

#include "tests/device/cpu_cache.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kEngines = 8, kWidth = 64, kPrompt = 40, kDecode = 60;

class Engine {
 public:
    Engine(CpuCache *cache, uint32_t number)
        : cache_(*cache), value_(static_cast<float>(number + 1)), first_token_(1000 * number) {
        cache_.must(cache_.api.queue_create(cache_.device, nullptr, &queue_, nullptr));
        auto attention = described<quire_attention_desc>();
        attention.q_heads = 1;
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 1;
        desc.max_blocks_per_row = 8;
        desc.max_query_tokens = kPrompt;
        desc.attention = &attention;
        desc.attention_count = 1;
        desc.attention_stride = sizeof attention;
        cache_.must(cache_.api.batch_create(cache_.cache, &desc, &batch_, nullptr));
        seq_ = cache_.create();
    }
    ~Engine() {
        EXPECT_GE(cache_.api.seq_end(cache_.cache, seq_, 0, nullptr), 0);
        EXPECT_GE(cache_.api.batch_destroy(batch_, nullptr), 0);
        EXPECT_GE(cache_.api.queue_destroy(queue_, nullptr), 0);
    }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    // Returns the number of wrong results.
    uint64_t run() {
        uint64_t wrong = step(kPrompt);
        for (uint32_t i = 0; i < kDecode; ++i) wrong += step(1);
        return wrong;
    }

 private:
    quire_step begin(const std::vector<uint32_t> &tokens) {
        auto desc = described<quire_step_desc>();
        desc.queues = &queue_;
        desc.queue_count = 1;
        quire_step_item item{};
        item.seq = seq_;
        item.token_count = static_cast<uint32_t>(tokens.size());
        quire_step_result result{};
        quire_step step = 0;
        quire_status status = QUIRE_E_BUSY;
        while (status == QUIRE_E_BUSY) {  // another engine's step is open
            status =
                cache_.api.step_begin(cache_.cache, &desc, &item, 1, sizeof item, tokens.data(),
                                      item.token_count, &result, sizeof result, &step, nullptr);
        }
        EXPECT_EQ(status, QUIRE_OK);
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
        return step;
    }

    uint64_t step(uint32_t count) {
        std::vector<uint32_t> tokens(count);
        for (uint32_t &token : tokens) token = first_token_++;
        quire_step handle = begin(tokens);
        cache_.must(cache_.api.step_commit(cache_.cache, handle, batch_, nullptr));
        std::vector<float> q(count * kWidth, 0.5f), k(count * kWidth, 0.25f);
        std::vector<float> v(count * kWidth, value_), out(count * kWidth, -1.0f);
        auto kv = described<quire_kv_args>();
        kv.k = reinterpret_cast<uint64_t>(k.data());
        kv.v = reinterpret_cast<uint64_t>(v.data());
        cache_.must(cache_.api.kv_write(batch_, &kv, queue_, nullptr));
        auto args = described<quire_attend_args>();
        args.q = reinterpret_cast<uint64_t>(q.data());
        args.out = reinterpret_cast<uint64_t>(out.data());
        cache_.must(cache_.api.attend(batch_, &args, queue_, nullptr));
        cache_.must(cache_.api.step_finish(cache_.cache, handle, nullptr, QUIRE_STEP_OK, nullptr));
        cache_.must(cache_.api.queue_sync(queue_, nullptr));
        uint64_t wrong = 0;
        for (float element : out) wrong += element < value_ * 0.999f || element > value_ * 1.001f;
        return wrong;
    }

    CpuCache &cache_;
    float value_;
    uint32_t first_token_;
    quire_queue *queue_ = nullptr;
    quire_batch *batch_ = nullptr;
    quire_seq seq_ = 0;
};

TEST(Kernels, engines_in_their_own_threads_read_only_what_they_wrote) {
    CpuCache cache({.blocks = 8 * kEngines + 1});
    std::atomic<uint64_t> wrong{0};
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kEngines; ++i) {
        threads.emplace_back([&, i] { wrong += Engine(&cache, i).run(); });
    }
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GE(cache.api.cache_check(cache.cache, &cache.error), 0) << cache.error.message;
}

}  // namespace
