// SPDX-License-Identifier: Apache-2.0
//
// Which requests fit in a pool of blocks, and what happens to those that do not.

#include <algorithm>
#include <random>

#include "manager.hpp"

namespace {

using namespace quire::test;

TEST(Capacity, twelve_short_sequences_fit_where_contiguous_reservation_fits_two) {
    // 12 blocks of 16 tokens hold 192; two reservations of the maximum length, 96, fill them.
    Manager m({.blocks = 12, .block_tokens = 16, .max_sequence_tokens = 96});
    auto info = described<quire_cache_info>();
    ASSERT_EQ(m.api().cache_get_info(m.cache(), &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.pool_tokens, 192u);
    EXPECT_EQ(info.max_sequences, 2u);
    for (uint32_t i = 0; i < 12; ++i) m.compute(m.sequence(), tokens_from(1000 * i, 10));
    EXPECT_EQ(m.stats().blocks_held, 12u);
    EXPECT_EQ(m.stats().blocks_free, 0u);
}

uint64_t pool_tokens_of(const std::vector<GroupOptions> &groups) {
    Manager m({.groups = groups});
    auto info = described<quire_cache_info>();
    EXPECT_EQ(m.api().cache_get_info(m.cache(), &info, m.error()), QUIRE_OK);
    return info.pool_tokens;
}

TEST(Capacity, pool_tokens_are_those_of_full_attention_where_there_is_any) {
    // Four tokens per block.
    EXPECT_EQ(pool_tokens_of({{.blocks = 20}, {.window = 8, .blocks = 5}}), 80u);
    EXPECT_EQ(pool_tokens_of({{.blocks = 20}, {.blocks = 30}, {.window = 8, .blocks = 5}}), 80u);
    EXPECT_EQ(pool_tokens_of({{.window = 8, .blocks = 9}, {.window = 12, .blocks = 7}}), 28u);
}

TEST(Capacity, blocks_of_a_fragmented_pool_gather_back_in_logical_order) {
    Manager m({.blocks = 16, .flags = QUIRE_CACHE_NO_PREFIX});
    std::vector<quire_seq> small;
    for (uint32_t i = 0; i < 16; ++i) {
        small.push_back(m.sequence());
        m.compute(small.back(), tokens_from(100 * i, 3));
    }
    for (uint32_t i : {13u, 2u, 9u, 4u, 7u}) m.end(small[i]);
    quire_seq seq = m.sequence();
    Tokens tokens = tokens_from(5000, 19);
    m.compute(seq, tokens);
    Blocks ids = m.table(seq);
    ASSERT_EQ(ids.size(), 5u);
    EXPECT_FALSE(std::is_sorted(ids.begin(), ids.end())) << "the pool is not fragmented";
    // An engine writes each token at its slot ...
    std::vector<quire_token> pool(17 * 4, 0);
    for (uint32_t p = 0; p < 19; ++p)
        pool[static_cast<uint32_t>(ids[p / 4]) * 4 + p % 4] = tokens[p];
    // ... and reads the blocks one after another.
    Tokens gathered;
    for (int32_t id : ids) {
        for (uint32_t slot = 0; slot < 4; ++slot) {
            gathered.push_back(pool[static_cast<uint32_t>(id) * 4 + slot]);
        }
    }
    gathered.resize(19);
    EXPECT_EQ(gathered, tokens);
}

TEST(Capacity, allocation_past_the_pool_is_a_result_that_says_how_much_is_missing) {
    Manager m({.blocks = 4});
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.begin();
    quire_step_result result = m.add(b, tokens_from(100, 17));  // 5 blocks, 2 are left
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_POOL});
    EXPECT_EQ(result.blocks_short, 3u);
    EXPECT_EQ(m.info(b).known_tokens, 0u);
    result = m.add(b, tokens_from(100, 8));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
}

TEST(Capacity, the_null_block_is_never_handed_out) {
    Manager m({.blocks = 8});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 32));
    for (int32_t id : m.table(a)) EXPECT_NE(id, 0);
    EXPECT_EQ(m.stats().blocks_total, 8u);
}

TEST(Capacity, lru_evicts_the_least_recent_and_free_blocks_go_first) {
    Manager m({.blocks = 4});
    Tokens a = tokens_from(100, 5), b = tokens_from(200, 5), c = tokens_from(300, 5);
    for (const Tokens &tokens : {a, b, c, a}) {  // a again, so that it is the most recent
        quire_seq seq = m.sequence();
        m.compute(seq, tokens);
        m.end(seq);
    }
    EXPECT_EQ(m.stats().blocks_cached, 3u);
    EXPECT_EQ(m.stats().evictions, 0u);
    m.compute(m.sequence(), tokens_from(900, 8));  // the free block and a cached one
    EXPECT_EQ(m.stats().evictions, 1u);
    EXPECT_EQ(m.probe(b), 0u);
    EXPECT_EQ(m.probe(c), 4u);
    EXPECT_EQ(m.probe(a), 4u);
}

TEST(Capacity, a_prompt_is_evicted_from_its_end) {
    Manager m({.blocks = 4});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 12));
    m.end(a);
    m.compute(m.sequence(), tokens_from(900, 8));
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 8u);
}

TEST(Capacity, a_watermark_keeps_newcomers_from_what_the_running_will_need) {
    Manager m({.blocks = 8, .watermark = 2});
    quire_seq running = m.sequence(), newcomer = m.sequence();
    m.compute(running, tokens_from(1, 4));
    m.begin();
    quire_step_result result = m.add(newcomer, tokens_from(100, 24));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_WATERMARK});
    EXPECT_EQ(result.blocks_short, 1u);
    EXPECT_EQ(m.add(newcomer, tokens_from(100, 20)).outcome, uint32_t{QUIRE_ITEM_RUN});
    // The running sequence may use the reserve.
    EXPECT_EQ(m.add(running, tokens_from(5, 8)).outcome, uint32_t{QUIRE_ITEM_RUN});
    EXPECT_EQ(m.stats().blocks_held, 8u);
}

TEST(Capacity, a_watermark_never_stops_the_only_sequence) {
    Manager m({.blocks = 4, .watermark = 2});
    EXPECT_EQ(m.compute(m.sequence(), tokens_from(1, 16)).compute_count, 16u);
}

TEST(Capacity, a_namespace_holds_no_more_than_its_quota) {
    Manager m;
    quire_namespace ns = m.name_space(2);
    quire_seq a = m.sequence({.ns = ns});
    m.begin();
    quire_step_result result = m.add(a, tokens_from(1, 9));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_QUOTA});
    EXPECT_EQ(result.blocks_short, 1u);
    EXPECT_EQ(m.add(a, tokens_from(1, 8)).outcome, uint32_t{QUIRE_ITEM_RUN});
    // The quota does not apply to another tenant.
    EXPECT_EQ(m.add(m.sequence(), tokens_from(1, 40)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.finish(m.commit());
    auto info = described<quire_namespace_info>();
    ASSERT_EQ(m.api().namespace_get_info(m.cache(), ns, &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.blocks_held, 2u);
    m.end(a);
    ASSERT_EQ(m.api().namespace_get_info(m.cache(), ns, &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.blocks_held, 0u);
}

TEST(Capacity, a_quota_counts_shared_blocks_too) {
    Manager m;
    quire_namespace ns = m.name_space(3);
    quire_seq a = m.sequence({.ns = ns}), b = m.sequence({.ns = ns});
    m.compute(a, tokens_from(1, 5));
    m.begin();
    quire_step_result result = m.add(b, tokens_from(1, 5));  // one block hit, one new
    EXPECT_EQ(result.reason, uint32_t{QUIRE_WAIT_QUOTA});
    EXPECT_EQ(result.blocks_short, 1u);
}

uint64_t charged(Manager &m, quire_namespace ns) {
    auto info = described<quire_namespace_info>();
    EXPECT_EQ(m.api().namespace_get_info(m.cache(), ns, &info, m.error()), QUIRE_OK);
    return info.blocks_held;
}

TEST(Capacity, a_fork_is_charged_to_its_own_namespace_and_its_end_credits_it) {
    Manager m;
    quire_namespace ns = m.name_space(6);
    quire_seq parent = m.sequence({.ns = ns});
    m.compute(parent, tokens_from(1, 7));
    for (int i = 0; i < 5; ++i) {
        quire_seq child = m.fork(parent, 7);
        EXPECT_EQ(charged(m, ns), 4u);
        EXPECT_EQ(charged(m, 0), 0u);
        m.end(child);
        EXPECT_EQ(charged(m, ns), 2u);
    }
    m.end(parent);
    EXPECT_EQ(charged(m, ns), 0u);
}

TEST(Capacity, a_fork_past_the_quota_is_refused_and_changes_nothing) {
    Manager m({.groups = {GroupOptions{}, GroupOptions{6, 0}}});
    quire_namespace ns = m.name_space(10);
    quire_seq parent = m.sequence({.ns = ns});
    m.compute(parent, tokens_from(1, 9));
    m.compute(parent, {10});  // the window is past the first block: 3 entries, 2 of them held
    uint64_t own = charged(m, ns);
    m.fork(parent, 10);
    ASSERT_EQ(charged(m, ns), 2 * own);
    std::string before = m.books();
    quire_seq out = 0;
    EXPECT_EQ(m.api().seq_fork(m.cache(), parent, 10, &out, m.error()), QUIRE_E_LIMIT);
    EXPECT_NE(m.message().find("quota is 10 blocks"), std::string::npos) << m.message();
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(out, 0u);
    m.fork(parent, 0);
    EXPECT_EQ(charged(m, ns), 2 * own);
}

// Slots after the last planned token, except those reserved as lookahead.
class Waste {
 public:
    explicit Waste(const CacheOptions &options) : options_(options), m_(options) {}

    void run(uint64_t seed, int steps) {
        std::mt19937_64 dice(seed);
        std::vector<quire_seq> seqs;
        std::vector<uint32_t> reserved;
        for (int i = 0; i < steps; ++i) {
            if (seqs.size() < 8) seqs.push_back(m_.sequence()), reserved.push_back(0);
            uint32_t who = static_cast<uint32_t>(dice() % seqs.size());
            quire_seq seq = seqs[who];
            uint32_t known = m_.info(seq).known_tokens;
            m_.begin({.may_preempt = true});
            ItemOptions item{
                .max_compute = static_cast<uint32_t>(dice() % 3 == 0 ? 1 + dice() % 5 : 0),
                .lookahead = static_cast<uint32_t>(dice() % 4 == 0 ? dice() % 7 : 0)};
            auto count = static_cast<uint32_t>(dice() % 3 == 0 ? 1 + dice() % 20 : 1);
            bool ran = m_.add(seq, tokens_from(known % 7, count), item).outcome == QUIRE_ITEM_RUN;
            quire_seq_info info = m_.info(seq);
            if (ran && info.lookahead_tokens != 0) {  // an earlier reservation stays
                reserved[who] = std::max(reserved[who], info.known_tokens + info.lookahead_tokens);
            }
            expect_little_waste(seqs, &reserved);
            m_.finish(m_.commit());
            expect_little_waste(seqs, &reserved);
            if (!ran || dice() % 9 == 0) {
                m_.end(seq);
                seqs.erase(seqs.begin() + who), reserved.erase(reserved.begin() + who);
            } else if (dice() % 5 == 0) {
                uint32_t kept = m_.info(seq).known_tokens / 2;
                m_.api().seq_truncate(m_.cache(), seq, kept, nullptr);
                reserved[who] = 0;
            }
            expect_little_waste(seqs, &reserved);
        }
    }

 private:
    void expect_little_waste(const std::vector<quire_seq> &seqs, std::vector<uint32_t> *reserved) {
        for (size_t i = 0; i < seqs.size(); ++i) {
            uint32_t computed = m_.info(seqs[i]).computed_tokens;
            if (m_.table(seqs[i]).empty()) (*reserved)[i] = 0;  // it was preempted
            for (uint32_t g = 0; g < options_.groups.size(); ++g) {
                auto slots =
                    static_cast<uint32_t>(m_.table(seqs[i], g).size()) * options_.block_tokens;
                ASSERT_LT(slots, std::max(computed, (*reserved)[i]) + options_.block_tokens);
            }
        }
    }

    CacheOptions options_;
    Manager m_;
};

TEST(Capacity, waste_behind_the_last_planned_token_is_less_than_a_block_at_every_moment) {
    Waste({.blocks = 40}).run(1, 1500);
    Waste({.blocks = 24, .block_tokens = 8, .groups = {{}, {.window = 9}}}).run(2, 1500);
}

TEST(Capacity, a_fork_beside_a_preemption_leaves_room_for_its_abort) {
    Manager m;
    quire_namespace ns = m.name_space(4);
    quire_seq a = m.sequence({.ns = ns}), b = m.sequence({.ns = ns});
    m.compute(a, tokens_from(1, 7));
    m.compute(b, tokens_from(100, 7));
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    quire_seq child = 0;
    EXPECT_EQ(m.api().seq_fork(m.cache(), b, 7, &child, m.error()), QUIRE_E_LIMIT);
    m.abort();
    EXPECT_EQ(m.info(a).computed_tokens, 7u);
}

}  // namespace
