// SPDX-License-Identifier: Apache-2.0
//
// Thirty-two threads on one cache: every call may be made from any of them.

#include <atomic>
#include <random>
#include <thread>

#include "tests/effort.hpp"
#include "tests/unit/manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kThreads = 32;

uint32_t rounds(uint32_t all) {
    return static_cast<uint32_t>(quire::tests::chosen({all, all, all / 4}));
}

// Runs work(thread number) in all threads.
template <typename Work>
void in_threads(uint32_t count, Work work) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < count; ++i) threads.emplace_back(work, i);
    for (std::thread &thread : threads) thread.join();
}

struct Threads : testing::Test {
    Manager m{{.blocks = 512, .host_blocks = 64, .max_sequences = 256}};
    const quire_api &api = m.api();
    std::atomic<uint64_t> steps{0}, wrong{0};

    // `allowed` besides success.
    bool expect(quire_status status, quire_status allowed = QUIRE_OK) {
        if (status >= 0 || status == allowed) return status >= 0;
        ++wrong;
        return false;
    }
    quire_seq create() {
        auto desc = described<quire_seq_desc>();
        quire_seq seq = 0;
        expect(api.seq_create(m.cache(), &desc, &seq, nullptr));
        return seq;
    }
    // Only one step is open at a time: another thread's step makes this one busy.
    bool compute(quire_seq seq, const Tokens &tokens) {
        auto desc = described<quire_step_desc>();
        desc.flags = QUIRE_STEP_MAY_PREEMPT;
        quire_step_item item{seq, 0, static_cast<uint32_t>(tokens.size()), 0, 0, 0, 0, 0, 0, 0, 0};
        quire_step_result result{};
        quire_step step = 0;
        quire_status begun =
            api.step_begin(m.cache(), &desc, &item, 1, sizeof item, tokens.data(), item.token_count,
                           &result, sizeof result, &step, nullptr);
        if (!expect(begun, QUIRE_E_BUSY)) return false;
        expect(api.step_commit(m.cache(), step, nullptr, nullptr));
        expect(api.step_finish(m.cache(), step, nullptr, QUIRE_STEP_OK, nullptr));
        ++steps;
        return result.outcome == QUIRE_ITEM_RUN;
    }
    void look() {
        auto stats = described<quire_cache_stats>();
        expect(api.cache_get_stats(m.cache(), &stats, nullptr));
        if (stats.blocks_free + stats.blocks_cached + stats.blocks_held != 512) ++wrong;
    }
    void expect_all_given_back() {
        EXPECT_EQ(wrong, 0u);
        EXPECT_GT(steps, 0u);
        EXPECT_EQ(m.stats().steps, steps);
        EXPECT_EQ(m.stats().sequences, 0u);
        EXPECT_EQ(m.stats().blocks_held, 0u);
        EXPECT_EQ(m.stats().host_blocks_used, 0u);
        m.check();
    }
};

TEST_F(Threads, thirty_two_engines_share_one_cache) {
    in_threads(kThreads, [&](uint32_t self) {
        for (uint32_t round = 0; round < rounds(1000); ++round) {
            quire_seq seq = create(), child = 0;
            if (compute(seq, tokens_from(round % 5, 10 + self))) {
                if (expect(api.seq_fork(m.cache(), seq, 7, &child, nullptr)))
                    expect(api.seq_end(m.cache(), child, 0, nullptr), QUIRE_E_BUSY);
            }
            look();
            // While another thread's open step has it as a victim, it cannot be ended.
            while (api.seq_end(m.cache(), seq, 0, nullptr) == QUIRE_E_BUSY)
                std::this_thread::yield();
        }
    });
    expect_all_given_back();
}

TEST_F(Threads, one_schedules_and_the_others_do_all_that_a_step_allows) {
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> took_part{0};
    in_threads(kThreads, [&](uint32_t self) {
        if (self == 0) {
            for (uint32_t round = 0; round < rounds(20) || took_part < kThreads - 1; ++round) {
                quire_seq seq = create();
                for (uint32_t i = 0; i < 1000; ++i) {
                    if (!compute(seq, tokens_from(i, 1))) ++wrong;
                }
                expect(api.seq_end(m.cache(), seq, 0, nullptr));
                if (wrong != 0) break;
            }
            stop = true;
            return;
        }
        std::mt19937 dice(self);
        auto ns_desc = described<quire_namespace_desc>();
        for (uint32_t turn = 0; !stop; ++turn) {
            if (turn == 1) ++took_part;
            quire_namespace ns = 0;
            expect(api.namespace_create(m.cache(), &ns_desc, &ns, nullptr));
            auto desc = described<quire_seq_desc>();
            desc.ns = ns;
            quire_seq seq = 0;
            expect(api.seq_create(m.cache(), &desc, &seq, nullptr));
            auto info = described<quire_seq_info>();
            expect(api.seq_get_info(m.cache(), seq, &info, nullptr));
            Tokens tokens = tokens_from(dice() % 100, 20);
            uint32_t hits = 1;
            expect(api.prefix_probe(m.cache(), seq, tokens.data(), 20, &hits, nullptr));
            if (hits != 0) ++wrong;  // its namespace is empty
            look();
            expect(api.seq_end(m.cache(), seq, 0, nullptr));
            // Refused while a step is open.
            while (!expect(api.namespace_destroy(m.cache(), ns, nullptr), QUIRE_E_BUSY)) {
                if (wrong != 0) return;
                std::this_thread::yield();
            }
        }
    });
    expect_all_given_back();
}

TEST_F(Threads, handle_that_another_thread_ends_is_stale_and_no_worse) {
    std::atomic<quire_seq> shared[8] = {};
    in_threads(kThreads, [&](uint32_t self) {
        std::mt19937 dice(self);
        for (uint32_t round = 0; round < rounds(2000); ++round) {
            std::atomic<quire_seq> &place = shared[dice() % 8];
            quire_seq old = place.exchange(create());
            auto info = described<quire_seq_info>();
            quire_seq other = shared[dice() % 8].load();
            if (other != 0)
                expect(api.seq_get_info(m.cache(), other, &info, nullptr), QUIRE_E_STALE);
            if (old != 0) expect(api.seq_end(m.cache(), old, 0, nullptr));
        }
    });
    for (std::atomic<quire_seq> &place : shared) {
        if (place != 0) m.end(place);
    }
    m.compute(m.sequence(), tokens_from(1, 5));
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(m.stats().sequences, 1u);
}

TEST(Handles, are_used_by_another_thread_than_the_one_that_made_them) {
    Manager m;
    quire_seq seq = m.sequence();
    std::thread([&] { m.compute(seq, tokens_from(1, 5)); }).join();
    EXPECT_EQ(m.info(seq).computed_tokens, 5u);
}

}  // namespace
