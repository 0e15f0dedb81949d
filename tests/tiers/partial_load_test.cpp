// SPDX-License-Identifier: Apache-2.0
//
// A store that has lost blocks of a load, or damaged them: the item finds the blocks before the
// first of these, whatever the order of the answers, and no host block stays taken.

#include <array>

#include "tests/tiers/tier_rig.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRun = QUIRE_ITEM_RUN, kLoading = QUIRE_ITEM_LOADING;
constexpr uint32_t kBlocks = 6, kTokens = RigCache::kBlockTokens;

// A way in which values are not to be had.
struct Fault {
    std::atomic<bool> StubControl::*flag;
    bool is_damage, is_foreign, is_failure;
};
const Fault kFaults[] = {{&StubControl::forgets, false, false, false},
                         {&StubControl::spoils, true, false, false},
                         {&StubControl::swaps, false, true, false},
                         {&StubControl::cuts, false, true, false},
                         {&StubControl::fails_gets, false, false, true}};

// The GETs of a load, group by group, and the order in which they are answered.
struct Answers {
    uint32_t groups;
    uint64_t bad;  // a bit for each
    uint32_t starts_at = 0;
    bool descends = false;

    uint32_t count() const { return groups * kBlocks; }
    uint32_t at(uint32_t turn) const {
        return (descends ? starts_at + count() - turn : starts_at + turn) % count();
    }
};

struct Outcome {
    uint32_t blocks = kBlocks;      // that the item finds
    uint64_t right = 0, wrong = 0;  // values that were looked at
};

Outcome expected(const Answers &answers) {
    Outcome out;
    for (uint32_t turn = 0; turn < answers.count() && out.blocks != 0; ++turn) {
        const uint32_t index = answers.at(turn) % kBlocks;
        if (index >= out.blocks) continue;
        const bool is_bad = (answers.bad >> answers.at(turn) & 1) != 0;
        ++(is_bad ? out.wrong : out.right);
        if (is_bad) out.blocks = index;
    }
    return out;
}

class PartialLoad : public TierRig {
 protected:
    // A cache over the stub, which has the prompt; the device has lost it.
    void stock(const RigShape &shape) {
        open_stub();
        rig = std::make_unique<RigCache>(instance, shape);
        ASSERT_EQ(rig->attach(tier), QUIRE_OK) << rig->error.message;
        rig->compute(prompt(77, 9));  // the first value, of another prompt
        // Copies to the host are asked one after another whether they have ended, so one that ends
        // meanwhile may be put before the first one.
        rig->settle();
        rig->compute(tokens);
        rig->settle();
        ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
        rig->evict_all();
    }
    void attach(uint32_t min_load_tokens = 0, uint64_t max_load_bytes = 0) {
        auto desc = described<quire_cache_tier_desc>();
        desc.fingerprint[0] = 1;
        desc.load_timeout_ns = desc.load_expiry_ns = UINT64_MAX / 4;
        desc.min_load_tokens = min_load_tokens;
        desc.max_load_bytes = max_load_bytes;
        ASSERT_EQ(api.cache_attach_tier(rig->cache, tier, &desc, &rig->error), QUIRE_OK)
            << rig->error.message;
    }
    ~PartialLoad() override {
        if (rig == nullptr) return;
        EXPECT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
        EXPECT_EQ(host_blocks(), 0u);
        rig->check();
        rig.reset();
    }
    uint64_t host_blocks() {
        auto stats = described<quire_cache_stats>();
        EXPECT_EQ(api.cache_get_stats(rig->cache, &stats, &error), QUIRE_OK);
        return stats.host_blocks_used;
    }
    // Begins a load with a fault in the values that `bad` says, of those that it will ask for.
    quire_seq begin_load(const Fault &fault, uint64_t bad) {
        stub->gets = 0;
        stub->picks = bad;
        stub->*fault.flag = true;
        quire_seq seq = rig->create();
        EXPECT_EQ(rig->run(seq, tokens).outcome, kLoading);
        return seq;
    }
    void wait() {
        ASSERT_EQ(api.cache_load_wait(rig->cache, UINT64_MAX, nullptr, &rig->error), QUIRE_OK)
            << rig->error.message;
        rig->check();
    }
    // The item runs, and again after an abort.
    void use(quire_seq seq, uint32_t blocks) {
        ASSERT_EQ(rig->begin({{seq, tokens}}), QUIRE_OK) << rig->error.message;
        rig->check();
        EXPECT_EQ(rig->results[0].hit_tokens, blocks * kTokens);
        rig->abort();
        const quire_step_result result = rig->run(seq, tokens);
        EXPECT_EQ(result.outcome, kRun);
        EXPECT_EQ(result.hit_tokens, blocks * kTokens);
        EXPECT_EQ(rig->wrong_rows, 0u);
        rig->end(seq);
        EXPECT_EQ(host_blocks(), 0u);
        rig->evict_all();
    }
    // Nothing is wrong with the store any more.
    void find_all() {
        stub->reset();
        quire_seq seq = rig->create();
        EXPECT_EQ(rig->run_to_the_end(seq, tokens).hit_tokens, kBlocks * kTokens);
        rig->end(seq);
        rig->evict_all();
    }
    void try_answers(const Answers &answers, const Fault &fault) {
        const Outcome wanted = expected(answers);
        const quire_cache_tier_stats before = rig->stats();
        stub->starts_at = answers.starts_at;
        stub->descends = answers.descends;
        quire_seq seq = begin_load(fault, answers.bad);
        wait();
        const bool is_used = wanted.blocks != 0;
        const quire_cache_tier_progress progress = rig->poll();
        EXPECT_EQ(progress.loads_ready, is_used ? 1u : 0u);
        EXPECT_EQ(progress.loads_running, 0u);
        EXPECT_EQ(host_blocks(), answers.groups * wanted.blocks);
        use(seq, wanted.blocks);
        const quire_cache_tier_stats after = rig->stats();
        EXPECT_EQ(after.loads_begun - before.loads_begun, 1u);
        EXPECT_EQ(after.loads_ready - before.loads_ready, is_used ? 1u : 0u);
        EXPECT_EQ(after.loads_used - before.loads_used, is_used ? 1u : 0u);
        const uint64_t failed = fault.is_failure && !is_used ? 1 : 0;
        EXPECT_EQ(after.loads_missed - before.loads_missed, is_used ? 0 : 1 - failed);
        EXPECT_EQ(after.loads_failed - before.loads_failed, failed);
        EXPECT_EQ(after.loads_cancelled, 0u);
        EXPECT_EQ(after.tokens_loaded - before.tokens_loaded, wanted.blocks * kTokens);
        EXPECT_EQ(after.bytes_loaded - before.bytes_loaded, wanted.right * value_bytes);
        EXPECT_EQ(after.blocks_lost - before.blocks_lost,
                  answers.groups * (kBlocks - wanted.blocks));
        EXPECT_EQ(after.values_damaged - before.values_damaged, fault.is_damage ? wanted.wrong : 0);
        EXPECT_EQ(after.values_foreign - before.values_foreign,
                  fault.is_foreign ? wanted.wrong : 0);
        stub->*fault.flag = false;
    }
    void try_all(uint32_t groups, const std::vector<uint64_t> &masks) {
        RigShape shape;
        shape.groups = groups;
        stock(shape);
        attach();
        find_all();
        value_bytes = rig->stats().bytes_loaded / (groups * kBlocks);
        uint32_t tried = 0;
        for (uint64_t bad : masks) {
            for (uint32_t start = 0; start < groups * kBlocks && !HasFailure(); ++start) {
                for (bool descends : {false, true}) {
                    const Answers answers{groups, bad, start, descends};
                    SCOPED_TRACE(testing::Message() << groups << " groups, bad " << bad << ", from "
                                                    << start << (descends ? " down" : " up"));
                    try_answers(answers, kFaults[tried++ % std::size(kFaults)]);
                }
            }
        }
        find_all();
    }

    const Tokens tokens = prompt(1, kBlocks *kTokens + 1);
    uint64_t value_bytes = 0;
    std::unique_ptr<RigCache> rig;
};

TEST_F(PartialLoad, brings_the_blocks_before_the_first_bad_one) {
    std::vector<uint64_t> masks;
    for (uint64_t bad = 1; bad < 1u << kBlocks; ++bad) masks.push_back(bad);
    try_all(1, masks);
}

TEST_F(PartialLoad, is_cut_in_every_group_by_a_bad_block_of_one) {
    std::vector<uint64_t> masks;
    for (uint32_t i = 0; i < 2 * kBlocks; ++i) {
        masks.push_back(uint64_t{1} << i);
        masks.push_back(uint64_t{1} << i | uint64_t{1} << (i * 5 + 3) % (2 * kBlocks));
    }
    try_all(2, masks);
}

TEST_F(PartialLoad, asks_for_nothing_that_was_cut) {
    RigShape shape;
    shape.groups = 2;
    stock(shape);
    attach(0, 1);  // one at a time
    for (auto [bad, blocks, gets] : {std::array{2u, 2u, 5u}, {5u, 5u, 11u}, {7u, 1u, 8u}}) {
        const quire_seq seq = begin_load(kFaults[0], uint64_t{1} << bad);
        wait();
        EXPECT_EQ(stub->gets, gets);
        use(seq, blocks);
    }
    find_all();
}

TEST_F(PartialLoad, is_used_while_values_that_it_does_without_are_under_way) {
    stock({});
    attach();
    find_all();
    const quire_cache_tier_stats before = rig->stats();
    stub->cancels = 0;
    stub->starts_at = 3;  // 3, 2, 1, 0, 5, 4
    stub->descends = true;
    stub->lets = 1;
    const quire_seq seq = begin_load(kFaults[1], 1u << 3);
    EXPECT_EQ(rig->poll().loads_running, 1u);
    EXPECT_EQ(host_blocks(), 3u);
    EXPECT_EQ(stub->cancels, 2u);
    stub->lets = 3;
    wait();
    EXPECT_EQ(stub->lets, 0u);
    use(seq, 3);
    EXPECT_EQ(stub->cancels, 2u) << "each once";
    // Their answers come while the slot has another load.
    stub->spoils = false;
    const quire_seq next = rig->create();
    EXPECT_EQ(rig->run(next, tokens).outcome, kLoading);
    stub->lets = UINT32_MAX;
    wait();
    use(next, kBlocks);
    const quire_cache_tier_stats after = rig->stats();
    EXPECT_EQ(after.loads_used - before.loads_used, 2u);
    EXPECT_EQ(after.blocks_lost - before.blocks_lost, 3u);
    EXPECT_EQ(after.bytes_loaded - before.bytes_loaded, before.bytes_loaded / kBlocks * 9);
}

TEST_F(PartialLoad, brings_as_much_more_than_the_device_has_as_a_load_must) {
    stock({});
    for (uint32_t least : {0u, 2 * kTokens + 1}) {
        attach(least);
        const uint32_t blocks = least == 0 ? 1 : 3;
        for (uint32_t bad = 2; bad < kBlocks; ++bad) {
            // The device has two blocks, so the load begins with the third.
            rig->compute(Tokens(tokens.begin(), tokens.begin() + 2 * kTokens));
            const quire_cache_tier_stats before = rig->stats();
            const quire_seq seq = begin_load(kFaults[0], uint64_t{1} << (bad - 2));
            wait();
            const bool is_enough = bad >= 2 + blocks;
            EXPECT_EQ(host_blocks(), is_enough ? bad - 2 : 0);
            use(seq, is_enough ? bad : 2);
            EXPECT_EQ(rig->stats().loads_missed - before.loads_missed, is_enough ? 0u : 1u);
            EXPECT_EQ(rig->stats().blocks_lost - before.blocks_lost,
                      is_enough ? kBlocks - bad : kBlocks - 2);
        }
        ASSERT_EQ(rig->detach(), QUIRE_OK) << rig->error.message;
    }
    attach();
    find_all();
}

TEST_F(PartialLoad, is_a_miss_where_a_group_has_a_window) {
    RigShape shape;
    shape.window = 20;
    stock(shape);
    attach();
    for (uint32_t bad : {0u, 5u, 6u, 8u}) {
        const quire_cache_tier_stats before = rig->stats();
        const quire_seq seq = begin_load(kFaults[0], uint64_t{1} << bad);
        wait();
        EXPECT_EQ(stub->gets, 9u) << "six blocks, and three of the window";
        use(seq, 0);
        EXPECT_EQ(rig->stats().loads_missed - before.loads_missed, 1u);
        EXPECT_EQ(rig->stats().blocks_lost - before.blocks_lost, 9u);
    }
    find_all();
}

}  // namespace
