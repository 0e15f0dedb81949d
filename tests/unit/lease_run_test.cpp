// SPDX-License-Identifier: Apache-2.0
//
// Calls of leases that are final at once: runs found and inserted by tokens and slots of 64 bits,
// blocks given and pinned without a step. Random runs are inserted beside a cache where each of
// them is published in a step and given back: both must find and evict the same.

#include <algorithm>
#include <random>

#include "leased.hpp"

namespace {

using namespace quire::test;

// Inserting. --------------------------------------------------------------------------------------

TEST(LeaseInsert, publishes_and_lets_go_and_the_end_is_evicted_first) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks ids = lease.take_in_a_step(6);
    const Tokens tokens = tokens_from(1, 12);
    const Blocks own(ids.begin(), ids.begin() + 3);
    Answer named = lease.insert(wide(tokens), slots_of(own));
    ASSERT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.result.blocks, 3u);
    EXPECT_EQ(named.ids, own);
    EXPECT_EQ(lease.info().blocks_held, 3u);
    EXPECT_EQ(m.stats().blocks_cached, 3u);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 12u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 15))).ids, own);
    EXPECT_EQ(evict(m, 2), (Blocks{own[2], own[1]}));
    EXPECT_EQ(lease.find(wide(tokens)).ids, Blocks{own[0]});
}

TEST(LeaseInsert, leaves_the_callers_block_alone_where_the_tokens_are_there) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks ids = lease.take_in_a_step(8);
    const Blocks first(ids.begin(), ids.begin() + 2), other(ids.begin() + 2, ids.begin() + 4),
        second(ids.begin() + 4, ids.begin() + 7);
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of(first)).ids, first);
    EXPECT_EQ(lease.insert(wide(tokens_from(90, 8)), slots_of(other)).ids, other);
    Answer named = lease.insert(wide(tokens_from(1, 12)), slots_of(second));
    EXPECT_EQ(named.ids, (Blocks{first[0], first[1], second[2]}));
    EXPECT_EQ(named.result.blocks, 1u);
    EXPECT_EQ(lease.info().blocks_held, 3u) << "two of the second run, and one more";
    // The lease need not hold what it names where the tokens are there.
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 12)), slots_of(named.ids)).ids, named.ids);
    EXPECT_EQ(evict(m, 4), (Blocks{other[1], other[0], second[2], first[1]}))
        << "the first run counts as used now";
    EXPECT_EQ(lease.give(Blocks{second[0], second[1], ids[7]}), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_held, 0u);
}

TEST(LeaseInsert, a_block_that_is_held_twice_is_held_once_more) {
    Manager m({.blocks = 8});
    Leased lease(&m);
    Blocks ids = lease.take_in_a_step(2);
    EXPECT_EQ(lease.pin({ids[1]}).status, QUIRE_OK) << m.message();
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of(ids)).ids, ids);
    EXPECT_EQ(lease.info().holds, 1u);
    EXPECT_EQ(lease.blocks()[0].block, ids[1]);
    EXPECT_EQ(evict(m, 9), Blocks{ids[0]});
    EXPECT_EQ(lease.give({ids[1]}), QUIRE_OK);
    EXPECT_EQ(evict(m, 9), Blocks{ids[1]}) << "though nothing leads to it";
}

TEST(LeaseInsert, refuses_wrong_slots_and_tokens_and_changes_nothing) {
    Manager m({.blocks = 16});
    Leased lease(&m), other(&m);
    Blocks ids = lease.take_in_a_step(4), foreign = other.take_in_a_step(2);
    const Blocks cached(ids.begin(), ids.begin() + 2), own(ids.begin() + 2, ids.end());
    lease.insert(wide(tokens_from(50, 8)), slots_of(cached));
    const auto tokens = wide(tokens_from(1, 8));
    const std::string before = m.books();
    auto refused = [&](const std::vector<int64_t> &slots) {
        EXPECT_EQ(lease.insert(tokens, slots).status, QUIRE_E_ARG) << testing::PrintToString(slots);
        EXPECT_EQ(m.books(), before);
    };
    refused(slots_of({own[0], own[0]}));
    refused(slots_of({own[0], foreign[0]}));
    refused(slots_of({own[0], cached[1]}));
    refused(slots_of({own[0], 9}));
    refused(slots_of({0, own[1]}));
    refused(slots_of({own[0], 17}));
    refused(slots_of({-1, own[1]}));
    for (uint32_t at = 0; at < 8; ++at) {
        for (int64_t wrong : {int64_t{-1}, int64_t{1} << 40, INT64_MIN, INT64_MAX}) {
            auto slots = slots_of(own);
            slots[at] = wrong;
            refused(slots);
        }
    }
    auto shifted = slots_of(own);
    for (int64_t &slot : shifted) ++slot;
    refused(shifted);
    auto wild = slots_of(own);
    wild[0] = INT64_MAX, wild[1] = INT64_MIN;
    refused(wild);
    for (int64_t wrong : {int64_t{-1}, int64_t{1} << 32, (int64_t{1} << 32) - 1, INT64_MIN}) {
        auto broken = tokens;
        broken[5] = wrong;
        EXPECT_EQ(lease.insert(broken, slots_of(own)).status, QUIRE_E_ARG) << wrong;
        EXPECT_EQ(lease.find(broken).status, QUIRE_E_ARG) << wrong;
    }
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 7)), slots_of(own)).status, QUIRE_E_ARG);
    EXPECT_EQ(lease.find(tokens, QUIRE_MATCH_PIN).status, QUIRE_E_ARG);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(lease.insert(tokens, slots_of(own)).ids, own) << m.message();
}

TEST(LeaseInsert, needs_that_no_step_is_open_or_runs) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks ids = lease.take_in_a_step(2);
    const auto tokens = wide(tokens_from(1, 8));
    m.begin();
    EXPECT_EQ(lease.insert(tokens, slots_of(ids)).status, QUIRE_E_BUSY);
    quire_step running = m.commit();
    EXPECT_EQ(lease.insert(tokens, slots_of(ids)).status, QUIRE_E_BUSY);
    m.finish(running);
    EXPECT_EQ(lease.insert(tokens, slots_of(ids)).status, QUIRE_OK) << m.message();
}

TEST(LeaseInsert, is_for_one_group_with_full_attention) {
    CacheOptions two;
    two.groups = {GroupOptions{}, GroupOptions{}};
    CacheOptions window;
    window.groups = {GroupOptions{8}};
    CacheOptions silent;
    silent.flags = QUIRE_CACHE_NO_PREFIX;
    for (const CacheOptions &options : {two, window, silent}) {
        Manager m(options);
        Leased lease(&m);
        Blocks ids = lease.take_in_a_step(1);
        EXPECT_EQ(lease.insert(wide(tokens_from(1, 4)), slots_of(ids)).status, QUIRE_E_UNSUPPORTED);
    }
}

TEST(LeaseInsert, keys_and_namespaces_are_separate) {
    Manager m({.blocks = 16});
    const uint32_t salt = 7;
    const quire_key key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
    Leased plain(&m), keyed(&m, 0, {key}), other(&m, m.name_space());
    const auto tokens = wide(tokens_from(1, 8));
    Blocks ids = plain.take_in_a_step(2);
    plain.insert(tokens, slots_of(ids));
    EXPECT_EQ(keyed.find(tokens).ids, Blocks{});
    EXPECT_EQ(other.find(tokens).ids, Blocks{});
    EXPECT_EQ(other.insert(tokens, slots_of(ids)).status, QUIRE_E_ARG);
    EXPECT_EQ(keyed.pin(ids).status, QUIRE_OK) << "the same namespace";
    EXPECT_EQ(other.pin(ids).status, QUIRE_E_ARG);
}

TEST(LeaseInsert, a_run_in_the_host_tier_is_found_and_not_inserted) {
    CacheOptions options;
    options.blocks = 4;
    options.host_blocks = 8;
    options.flags = QUIRE_CACHE_HOST_PREFIXES;
    Manager m(options);
    Leased lease(&m);
    lease.give_in_a_step(lease.fill(tokens_from(1, 8)));
    Blocks ids = lease.take_in_a_step(4);  // moves them to the host tier
    EXPECT_EQ(lease.find(wide(tokens_from(1, 8)), QUIRE_MATCH_TOUCH).ids, (Blocks{0, 0}));
    EXPECT_EQ(lease.insert(wide(tokens_from(1, 8)), slots_of({ids[0], ids[1]})).status,
              QUIRE_E_UNSUPPORTED);
}

// Giving and pinning. -----------------------------------------------------------------------------

TEST(LeaseAtOnce, gives_and_pins_without_a_step) {
    Manager m({.blocks = 8});
    Leased lease(&m), other(&m);
    Blocks ids = lease.take_in_a_step(3);
    EXPECT_EQ(lease.pin({ids[0], ids[0]}).status, QUIRE_OK);
    EXPECT_EQ(lease.info().holds, 5u);
    std::string before = m.books();
    EXPECT_EQ(lease.give({ids[1], ids[0], ids[0], ids[0], ids[0]}), QUIRE_E_ARG);
    EXPECT_EQ(lease.give({ids[1], 7}), QUIRE_E_ARG);
    EXPECT_EQ(lease.give({-1}), QUIRE_E_ARG);
    EXPECT_EQ(lease.pin({ids[0], 7}).status, QUIRE_E_ARG);
    EXPECT_EQ(other.pin({ids[0]}).status, QUIRE_E_ARG);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(lease.give({ids[0], ids[1], ids[0], ids[0], ids[2]}), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_free, 8u);
    m.begin();
    // A step is open: 0 is not it.
    EXPECT_EQ(m.api().lease_give(m.cache(), 0, lease.lease, 0, nullptr, 0, m.error()),
              QUIRE_E_BUSY);
    m.abort();
}

TEST(LeaseAtOnce, what_running_work_may_use_is_not_handed_out) {
    Manager m({.blocks = 3});
    Leased lease(&m);
    Blocks ids = lease.take_in_a_step(3);
    m.begin({.queue = 1});
    quire_step running = m.commit();
    EXPECT_EQ(lease.give(ids), QUIRE_OK) << m.message();
    m.begin({.queue = 2});
    EXPECT_EQ(lease.take(1).status, QUIRE_S_NO_BLOCKS);
    m.abort();
    m.finish(running);
    EXPECT_EQ(lease.take_in_a_step(3).size(), 3u);
}

TEST(LeaseAtOnce, each_pinned_block_counts_once_against_the_quota) {
    Manager m({.blocks = 16});
    quire_namespace ns = m.name_space(3);
    Leased owner(&m, ns), lease(&m, ns);
    Blocks ids = owner.take_in_a_step(3);
    EXPECT_EQ(owner.insert(wide(tokens_from(1, 12)), slots_of(ids)).ids, ids);
    EXPECT_EQ(owner.take_in_a_step(1).size(), 1u);
    std::string before = m.books();
    Answer refused = lease.pin(ids);
    EXPECT_EQ(refused.status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(refused.result.blocks_short, 1u);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(lease.pin({ids[0], ids[1], ids[0], ids[1]}).status, QUIRE_OK) << m.message();
    EXPECT_EQ(m.info_of(ns).blocks_held, 3u);
    EXPECT_EQ(evict(m, 9), Blocks{ids[2]});
    EXPECT_EQ(lease.give({ids[1], ids[0], ids[0], ids[1]}), QUIRE_OK);
    EXPECT_EQ(m.info_of(ns).blocks_held, 1u);
    EXPECT_EQ(evict(m, 9), (Blocks{ids[0], ids[1]})) << "in the order of their last holds";
}

// Random runs. ------------------------------------------------------------------------------------

// A cache whose lease holds all that is not cached.
struct Side {
    Manager m;
    Leased lease;
    Blocks free;

    Side(uint32_t blocks, uint32_t size)
        : m([&] {
              CacheOptions options;
              options.blocks = blocks;
              options.block_tokens = size;
              return options;
          }()),
          lease(&m) {
        free = lease.take_in_a_step(blocks);
    }
    void evict_some(uint32_t count) {
        Blocks gone = evict(m, count);
        if (gone.empty()) return;
        Blocks taken = lease.take_in_a_step(static_cast<uint32_t>(gone.size()));
        EXPECT_TRUE(std::is_permutation(taken.begin(), taken.end(), gone.begin(), gone.end()));
        free.insert(free.end(), gone.begin(), gone.end());
    }
    // What the tree did not take of the caller's blocks is free again.
    void settle(const Blocks &own, const Blocks &named) {
        for (size_t i = 0; i < own.size(); ++i)
            if (own[i] != named[i]) free.push_back(own[i]);
    }
    Blocks insert_in_a_step(const Tokens &tokens, const Blocks &own) {
        m.begin();
        Blocks all = lease.match(tokens, QUIRE_MATCH_PIN).ids;
        all.insert(all.end(), own.begin() + static_cast<int64_t>(all.size()), own.end());
        Blocks named = lease.publish(tokens, all).ids;
        EXPECT_EQ(lease.give({named.rbegin(), named.rend()}), QUIRE_OK) << m.message();
        m.finish(m.commit());
        return named;
    }
};

TEST(LeaseInsert, random_runs_are_those_of_steps) {
    for (uint32_t size : {1u, 4u}) {
        std::mt19937 random(size);
        Side steps(60, size), runs(60, size);
        auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
        for (uint32_t i = 0; i < 400; ++i) {
            Tokens tokens;
            for (uint32_t place = 0, n = 1 + below(8); place < n; ++place)
                for (uint32_t k = 0, first = below(2); k < size; ++k) tokens.push_back(first + k);
            const size_t count = tokens.size() / size;
            if (steps.free.size() < count || below(8) == 0) {
                const uint32_t evicted = 1 + below(12);
                steps.evict_some(evicted);
                runs.evict_some(evicted);
                ASSERT_EQ(steps.free, runs.free);
            }
            if (below(3) == 0) {
                EXPECT_EQ(steps.lease.match(tokens, QUIRE_MATCH_TOUCH).ids,
                          runs.lease.find(wide(tokens), QUIRE_MATCH_TOUCH).ids);
            }
            if (steps.free.size() < count) continue;
            const Blocks own(steps.free.end() - static_cast<int64_t>(count), steps.free.end());
            for (Side *side : {&steps, &runs}) side->free.resize(side->free.size() - count);
            const Blocks named = steps.insert_in_a_step(tokens, own);
            ASSERT_EQ(named, runs.lease.insert(wide(tokens), slots_of(own, size), size).ids)
                << runs.m.message();
            for (Side *side : {&steps, &runs}) side->settle(own, named);
        }
        EXPECT_EQ(evict(steps.m, 99), evict(runs.m, 99));
    }
}

}  // namespace
