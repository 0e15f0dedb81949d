// SPDX-License-Identifier: Apache-2.0
//
// Leases publish, find, touch, forget and evict; caches with windows, host tiers, and moves.

#include <map>

#include "followed.hpp"
#include "leased.hpp"

namespace {

using namespace quire::test;

// Prefixes. ---------------------------------------------------------------------------------------

TEST(LeasePrefix, published_blocks_are_found_by_sequences_and_by_leases) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks ids = lease.fill(tokens_from(1, 12));
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 12u);
    quire_seq seq = m.sequence();
    EXPECT_EQ(m.compute(seq, tokens_from(1, 13)).hit_tokens, 12u);
    EXPECT_EQ(m.table(seq)[1], ids[1]);
    EXPECT_EQ(lease.match(tokens_from(1, 11)).ids, (Blocks{ids[0], ids[1]}));
    EXPECT_EQ(lease.match(joined(tokens_from(1, 8), tokens_from(90, 4))).result.blocks, 2u);
    EXPECT_EQ(lease.match(tokens_from(2, 12)).result.blocks, 0u);
    EXPECT_EQ(lease.blocks()[0].flags,
              uint32_t{QUIRE_LEASE_PUBLISHED} | uint32_t{QUIRE_LEASE_OWNED});
}

TEST(LeasePrefix, what_a_sequence_computed_is_pinned_and_survives_its_end) {
    Manager m({.blocks = 6});
    Leased lease(&m);
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 12));
    Blocks table = m.table(seq);
    m.begin();
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_PIN).ids, (Blocks{table[0], table[1]}));
    m.finish(m.commit());
    EXPECT_EQ(m.stats().prefix_cache_hits, 8u);
    m.end(seq);
    quire_seq wide = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(wide, tokens_from(50, 20)).blocks_short, 1u) << "two are pinned";
    EXPECT_EQ(m.add(wide, tokens_from(50, 16)).outcome, uint32_t{QUIRE_ITEM_RUN});
    m.finish(m.commit());
    EXPECT_EQ(lease.match(tokens_from(1, 12)).ids, (Blocks{table[0], table[1]}));
    EXPECT_EQ(lease.give_in_a_step({table[0], table[1]}), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_cached, 2u);
}

TEST(LeasePrefix, keys_and_namespaces_separate) {
    Manager m({.blocks = 32});
    quire_namespace other = m.name_space();
    const char adapter[] = "adapter";
    quire_key key{QUIRE_KEY_ADAPTER, 7, adapter, 0, 0};
    Leased plain(&m), keyed(&m, 0, {key}), foreign(&m, other);
    Blocks ids = plain.fill(tokens_from(1, 8));
    EXPECT_EQ(plain.match(tokens_from(1, 8)).result.blocks, 2u);
    EXPECT_EQ(keyed.match(tokens_from(1, 8)).result.blocks, 0u);
    EXPECT_EQ(foreign.match(tokens_from(1, 8)).result.blocks, 0u);
    keyed.fill(tokens_from(1, 4));
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.keys = {key}}), 4u);
    m.begin();
    EXPECT_EQ(foreign.pin({ids[0]}).status, QUIRE_E_ARG) << "another namespace's";
    EXPECT_EQ(foreign.give({ids[0]}), QUIRE_E_ARG);
    EXPECT_EQ(foreign.publish(tokens_from(1, 4), {ids[0]}).status, QUIRE_E_ARG);
    EXPECT_EQ(keyed.pin({ids[0]}).status, QUIRE_OK) << m.message();
    m.abort();
    uint32_t forgotten = 9;
    EXPECT_EQ(foreign.forget({ids[0]}, &forgotten), QUIRE_E_ARG);
}

TEST(LeasePrefix, duplicate_is_answered_with_what_was_there_and_stays_with_the_caller) {
    Manager m({.blocks = 16});
    Leased lease(&m), second(&m);
    Blocks first = lease.fill(tokens_from(1, 8));
    m.begin();
    Blocks own = second.take(3).ids;
    Answer named = second.publish(tokens_from(1, 12), own);
    EXPECT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.ids, (Blocks{first[0], first[1], own[2]}));
    EXPECT_EQ(named.result.blocks, 1u);
    EXPECT_EQ(second.info().blocks_held, 5u) << "two of its own are duplicates";
    EXPECT_EQ(second.give({own[0], own[1]}), QUIRE_OK) << m.message();
    m.finish(m.commit());
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(evict(m, 9), Blocks{}) << "the second lease holds all of it";
    EXPECT_EQ(second.match(tokens_from(1, 12)).result.blocks, 3u);
    EXPECT_EQ(second.publish(tokens_from(1, 12), named.ids).status, QUIRE_E_STALE) << "no step";
    m.begin();
    EXPECT_EQ(second.publish(tokens_from(1, 12), named.ids).ids, named.ids);
    EXPECT_EQ(second.info().holds, 3u) << "again changes nothing";
    m.abort();
}

TEST(LeasePrefix, publish_refuses_what_the_lease_may_not_name) {
    Manager m({.blocks = 24});
    Leased lease(&m), other(&m);
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(200, 6));
    Blocks published = lease.fill(tokens_from(100, 4));
    m.begin();
    Blocks own = lease.take(2).ids, foreign = other.take(1).ids;
    std::string before = m.snapshot();
    const Tokens tokens = tokens_from(1, 8);
    for (int32_t wrong : {0, -1, 99, foreign[0], published[0], m.table(seq)[1], own[0]}) {
        Answer answer = lease.publish(tokens, {own[0], wrong});
        EXPECT_EQ(answer.status, QUIRE_E_ARG) << wrong;
    }
    EXPECT_EQ(lease.publish(tokens_from(1, 7), own).status, QUIRE_E_ARG);
    EXPECT_EQ(lease.publish({1, 2, QUIRE_TOKEN_UNKNOWN, 4}, own).status, QUIRE_E_ARG);
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(lease.publish(tokens, own).status, QUIRE_OK) << m.message();
    m.finish(m.commit());
}

TEST(LeasePrefix, a_count_that_no_run_has_is_refused_before_the_tokens_are_read) {
    CacheOptions options{.blocks = 8};
    options.max_sequence_tokens = 64;
    Manager m(options);
    Leased lease(&m);
    const Tokens four = tokens_from(1, 4);
    const int32_t id = 1;
    int32_t named = 0;
    auto result = described<quire_lease_result>();
    m.begin();
    EXPECT_EQ(m.api().lease_publish(m.cache(), m.open(), lease.lease, four.data(), 0xFFFFFFFC, &id,
                                    &named, &result, m.error()),
              QUIRE_E_LIMIT);
    m.abort();
}

TEST(LeasePrefix, touched_prefix_is_evicted_last_and_its_tail_before_its_front) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks a = lease.fill(tokens_from(1, 8)), b = lease.fill(tokens_from(100, 8));
    lease.give_in_a_step({a[1], a[0], b[1], b[0]});
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_TOUCH).ids, a);
    EXPECT_EQ(evict(m, 3), (Blocks{b[1], b[0], a[1]}));
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_LOOK).ids, (Blocks{a[0]}));
    EXPECT_EQ(m.stats().evictions, 3u);
}

TEST(LeasePrefix, eviction_spares_what_unfinished_work_may_touch) {
    Manager m({.blocks = 16});
    quire_seq seq = m.sequence(), last = m.sequence();
    m.compute(seq, tokens_from(1, 8));
    m.begin();
    m.add(last, tokens_from(100, 8));
    quire_step running = m.commit();
    m.end(seq);
    m.end(last);
    EXPECT_EQ(evict(m, 9).size(), 2u);
    m.finish(running);
    m.begin();
    auto evicting = [&] {
        uint32_t count = 0;
        int32_t ids[9];
        return m.api().cache_evict(m.cache(), 0, 9, ids, &count, m.error());
    };
    EXPECT_EQ(evicting(), QUIRE_E_BUSY);
    m.abort();
    EXPECT_EQ(evict(m, 9).size(), 2u);
}

TEST(LeasePrefix, forgotten_block_is_not_found_unless_others_hold_it) {
    Manager m({.blocks = 16});
    Leased lease(&m);
    Blocks ids = lease.fill(tokens_from(1, 12));
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 6));  // finds the first
    uint32_t forgotten = 9;
    EXPECT_EQ(lease.forget({ids[1], ids[0]}, &forgotten), QUIRE_OK) << m.message();
    EXPECT_EQ(forgotten, 1u);
    EXPECT_EQ(lease.match(tokens_from(1, 12)).ids, Blocks{ids[0]});
    EXPECT_EQ(lease.info().blocks_held, 3u);
    m.begin();
    EXPECT_EQ(lease.publish(tokens_from(1, 8), {ids[0], ids[1]}).ids, (Blocks{ids[0], ids[1]}));
    EXPECT_EQ(lease.publish(tokens_from(1, 12), ids).status, QUIRE_E_ARG)
        << "the third is published below the old second";
    m.finish(m.commit());
    EXPECT_EQ(lease.forget({ids[2]}, &forgotten), QUIRE_OK);
    m.begin();
    EXPECT_EQ(lease.publish(tokens_from(1, 12), ids).ids, ids);
    EXPECT_EQ(lease.forget(ids, &forgotten), QUIRE_E_BUSY);
    m.finish(m.commit());
}

// Other caches. -----------------------------------------------------------------------------------

TEST(LeaseGroups, a_group_with_a_window_may_lack_blocks) {
    CacheOptions options;
    options.blocks = 16;
    options.groups = {GroupOptions{}, GroupOptions{6, 0}};
    Manager m(options);
    Leased lease(&m);
    m.begin();
    Blocks full = lease.take(4).ids, window = lease.take(2, 1).ids;
    const Tokens tokens = tokens_from(1, 16);
    EXPECT_EQ(lease.publish(tokens, {full[0], 0, 0, 0, full[2], 0, full[3], 0}).status,
              QUIRE_E_ARG);
    Answer named =
        lease.publish(tokens, {full[0], 0, full[1], 0, full[2], window[0], full[3], window[1]});
    EXPECT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.ids, (Blocks{full[0], 0, full[1], 0, full[2], window[0], full[3], window[1]}));
    m.finish(m.commit());
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 0u) << "the window before token 12 has a gap";
    EXPECT_EQ(lease.match(tokens, QUIRE_MATCH_LOOK, 2).ids, named.ids);
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(evict(m, 9, 1).size(), 2u);
    EXPECT_EQ(evict(m, 9, 0).size(), 4u);
}

TEST(LeaseGroups, cache_of_windows_takes_and_gives_but_finds_nothing) {
    CacheOptions options;
    options.groups = {GroupOptions{6, 0}};
    Manager m(options);
    Leased lease(&m);
    EXPECT_EQ(lease.match(tokens_from(1, 8)).status, QUIRE_E_UNSUPPORTED);
    m.begin();
    Blocks ids = lease.take(2).ids;
    EXPECT_EQ(lease.publish(tokens_from(1, 8), ids).status, QUIRE_E_UNSUPPORTED);
    EXPECT_EQ(lease.give(ids), QUIRE_OK);
    m.finish(m.commit());
}

TEST(LeaseHost, pin_brings_back_what_was_demoted) {
    CacheOptions options;
    options.blocks = 4;
    options.host_blocks = 8;
    options.flags = QUIRE_CACHE_HOST_PREFIXES;
    Manager m(options);
    Leased lease(&m);
    Blocks a = lease.fill(tokens_from(1, 12));
    lease.give_in_a_step({a[2], a[1], a[0]});
    Blocks b = lease.fill(tokens_from(100, 16));  // evicts them to the host tier
    EXPECT_EQ(m.stats().blocks_demoted, 3u);
    EXPECT_EQ(lease.match(tokens_from(1, 12)).ids, (Blocks{0, 0, 0}));
    m.begin();
    Answer refused = lease.match(tokens_from(1, 12), QUIRE_MATCH_PIN);
    EXPECT_EQ(refused.status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(refused.result.blocks_short, 3u);
    EXPECT_EQ(lease.give({b[3], b[2], b[1], b[0]}), QUIRE_OK);
    Answer pinned = lease.match(tokens_from(1, 12), QUIRE_MATCH_PIN);
    EXPECT_EQ(pinned.status, QUIRE_OK) << m.message();
    EXPECT_EQ(pinned.result.blocks, 3u);
    m.abort();
    m.begin();
    EXPECT_EQ(lease.give({b[3], b[2], b[1], b[0]}), QUIRE_OK);
    EXPECT_EQ(lease.match(tokens_from(1, 12), QUIRE_MATCH_PIN).result.blocks, 3u);
    m.finish(m.commit());
    EXPECT_EQ(m.stats().blocks_promoted, 3u);
    EXPECT_EQ(lease.info().blocks_held, 3u);
}

TEST(LeaseHost, touched_content_of_the_host_tier_outlives_what_is_demoted_later) {
    CacheOptions options;
    options.blocks = 4;
    options.host_blocks = 6;
    options.flags = QUIRE_CACHE_HOST_PREFIXES;
    Manager m(options);
    Leased lease(&m);
    Blocks a = lease.fill(tokens_from(1, 8));
    lease.give_in_a_step({a[1], a[0]});
    Blocks b = lease.fill(tokens_from(100, 16));  // moves it to the host tier
    lease.give_in_a_step({b[3], b[2], b[1], b[0]});
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_TOUCH).result.blocks, 2u);
    Blocks c = lease.fill(tokens_from(200, 16));  // moves the second there
    EXPECT_EQ(m.stats().host_blocks_cached, 5u);
    lease.give_in_a_step({c[3], c[2], c[1], c[0]});
    lease.fill(tokens_from(300, 8));
    EXPECT_EQ(lease.match(tokens_from(1, 8)).result.blocks, 2u);
    EXPECT_LT(lease.match(tokens_from(100, 16)).result.blocks, 4u);
}

TEST(LeaseHost, published_again_on_the_device_replaces_the_host_tiers_copy) {
    CacheOptions options;
    options.blocks = 4;
    options.host_blocks = 8;
    options.flags = QUIRE_CACHE_HOST_PREFIXES;
    Manager m(options);
    Leased lease(&m);
    Blocks a = lease.fill(tokens_from(1, 8));
    lease.give_in_a_step({a[1], a[0]});
    Blocks b = lease.fill(tokens_from(100, 16));
    lease.give_in_a_step({b[3], b[2], b[1], b[0]});
    EXPECT_EQ(m.stats().host_blocks_cached, 2u);
    m.begin();
    Blocks own = lease.take(2).ids;
    EXPECT_EQ(lease.publish(tokens_from(1, 8), own).ids, own);
    m.abort();
    EXPECT_EQ(m.stats().host_blocks_cached, 2u);
    m.begin();
    own = lease.take(2).ids;
    EXPECT_EQ(lease.publish(tokens_from(1, 8), own).ids, own);
    m.finish(m.commit());
    EXPECT_EQ(lease.match(tokens_from(1, 8)).ids, own);
}

TEST(LeaseLog, follower_holds_what_leases_of_its_leader_hold) {
    CacheOptions options;
    options.blocks = 20;
    options.max_sequences = 4;
    options.max_sequence_tokens = 16;
    options.flags = QUIRE_CACHE_LOG;
    Manager leader(options);
    options.flags = QUIRE_CACHE_FOLLOWER;
    Manager follower(options);
    auto follow = [&](quire_step step) {
        finish_applied(follower, apply_log(follower, leader, step));
        EXPECT_EQ(follower.stats().blocks_held, leader.stats().blocks_held);
        leader.finish(step);
    };
    Leased lease(&leader), other(&leader);
    leader.begin();
    Blocks ids = lease.take(10).ids;  // more than the longest sequence has
    EXPECT_EQ(lease.publish(tokens_from(1, 12), {ids[0], ids[1], ids[2]}).status, QUIRE_OK);
    follow(leader.commit());
    quire_seq seq = leader.sequence();
    leader.begin();
    EXPECT_EQ(leader.add(seq, tokens_from(1, 13)).hit_tokens, 12u);
    EXPECT_EQ(lease.give({ids[4], ids[0]}), QUIRE_OK);
    EXPECT_EQ(other.match(tokens_from(1, 12), QUIRE_MATCH_PIN).result.blocks, 3u);
    follow(leader.commit());
    EXPECT_EQ(lease.end(), QUIRE_OK);
    leader.begin();
    other.take(4);
    follow(leader.commit());
    EXPECT_EQ(follower.table(seq), leader.table(seq));
    auto info = described<quire_lease_info>();
    EXPECT_EQ(follower.api().lease_get_info(follower.cache(), other.lease, &info, nullptr),
              QUIRE_E_UNSUPPORTED);
}

TEST(LeaseMove, migration_keeps_the_order_and_reports_new_ids) {
    Manager m({.blocks = 20});
    Leased lease(&m);
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(500, 40));  // blocks 1 to 10
    Blocks ids = lease.fill(tokens_from(1, 16));
    m.end(seq, QUIRE_END_DROP_PREFIX);
    std::vector<quire_block_move> moves(64);
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.blocks = 6;
    desc.moves = moves.data();
    desc.move_capacity = 64;
    desc.move_stride = sizeof(quire_block_move);
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    std::map<int32_t, int32_t> renamed;
    for (uint32_t i = 0; i < info.move_count; ++i) renamed[moves[i].src] = moves[i].dst;
    std::vector<quire_lease_block> now = lease.blocks();
    ASSERT_EQ(now.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_LT(now[i].block, 6);
        EXPECT_EQ(now[i].block, renamed[ids[i]]);
    }
    EXPECT_EQ(lease.match(tokens_from(1, 16)).ids[2], renamed[ids[2]]);
    EXPECT_EQ(lease.give_in_a_step({renamed[ids[3]]}), QUIRE_OK) << m.message();
}

}  // namespace
