// SPDX-License-Identifier: Apache-2.0
//
// Many threads on one cache: every call may be made from any of them.

#include <atomic>
#include <thread>

#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kThreads = 8, kRounds = 300;

TEST(Threads, eight_threads_share_one_cache) {
    Manager m({.blocks = 512, .max_sequences = 64});
    std::atomic<uint64_t> steps{0}, wrong{0};
    auto work = [&](uint32_t self) {
        const quire_api &api = m.api();
        auto seq_desc = described<quire_seq_desc>();
        auto step_desc = described<quire_step_desc>();
        for (uint32_t round = 0; round < kRounds; ++round) {
            quire_seq seq = 0, child = 0;
            if (api.seq_create(m.cache(), &seq_desc, &seq, nullptr) < 0) ++wrong;
            Tokens tokens = tokens_from(round % 5, 10 + self);
            quire_step_item item{seq, 0, 10 + self, 0, 0, 0, 0, 0};
            quire_step_result result{};
            quire_step step = 0;
            // One step is open at a time: another thread's makes it busy.
            quire_status begun =
                api.step_begin(m.cache(), &step_desc, &item, 1, sizeof item, tokens.data(),
                               item.token_count, &result, sizeof result, &step, nullptr);
            if (begun == QUIRE_OK) {
                if (api.step_commit(m.cache(), step, nullptr, nullptr) < 0) ++wrong;
                if (api.step_finish(m.cache(), step, nullptr, 0, nullptr) < 0) ++wrong;
                if (api.seq_fork(m.cache(), seq, 7, &child, nullptr) < 0) ++wrong;
                if (api.seq_end(m.cache(), child, 0, nullptr) < 0) ++wrong;
                ++steps;
            } else if (begun != QUIRE_E_BUSY) {
                ++wrong;
            }
            auto stats = described<quire_cache_stats>();
            if (api.cache_get_stats(m.cache(), &stats, nullptr) < 0) ++wrong;
            if (stats.blocks_free + stats.blocks_cached + stats.blocks_held != 512) ++wrong;
            if (api.seq_end(m.cache(), seq, 0, nullptr) < 0) ++wrong;
        }
    };
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
    for (std::thread &thread : threads) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(steps, 0u);
    EXPECT_EQ(m.stats().steps, steps);
    EXPECT_EQ(m.stats().sequences, 0u);
    EXPECT_EQ(m.stats().blocks_held, 0u);
    m.check();
}

TEST(Threads, a_handle_is_used_by_another_thread_than_the_one_that_made_it) {
    Manager m;
    quire_seq seq = m.sequence();
    std::thread([&] { m.compute(seq, tokens_from(1, 5)); }).join();
    EXPECT_EQ(m.info(seq).computed_tokens, 5u);
}

}  // namespace
