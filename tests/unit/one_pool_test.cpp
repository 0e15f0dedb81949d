// SPDX-License-Identifier: Apache-2.0
//
// QUIRE_CACHE_ONE_POOL: all groups take their blocks from one pool.

#include <algorithm>
#include <set>

#include "followed.hpp"
#include "inside.hpp"
#include "leased.hpp"
#include "random_walk.hpp"

namespace {

using namespace quire::test;

CacheOptions one_pool(uint32_t blocks, std::vector<GroupOptions> groups = {{}, {}}) {
    CacheOptions options;
    options.blocks = blocks;
    options.flags = QUIRE_CACHE_ONE_POOL;
    options.groups = std::move(groups);
    return options;
}

// The blocks that the sequence has in all groups.
Blocks held(Manager &m, quire_seq seq, uint32_t groups = 2) {
    Blocks all;
    for (uint32_t g = 0; g < groups; ++g) {
        for (int32_t id : m.table(seq, g)) {
            if (id != 0) all.push_back(id);
        }
    }
    return all;
}

Blocks joined_ids(const Blocks &a, const Blocks &b) {
    Blocks out = a;
    out.insert(out.end(), b.begin(), b.end());
    return out;
}

bool all_differ(const Blocks &ids) {
    return std::set<int32_t>(ids.begin(), ids.end()).size() == ids.size();
}

TEST(OnePool, a_block_id_means_one_block_whichever_group_holds_it) {
    Manager m(one_pool(10));
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 9));
    m.compute(b, tokens_from(50, 5));
    const Blocks ids = joined_ids(held(m, a), held(m, b));
    EXPECT_EQ(ids.size(), 10u);
    EXPECT_TRUE(all_differ(ids));
    EXPECT_EQ(*std::max_element(ids.begin(), ids.end()), 10);
    EXPECT_EQ(m.stats().blocks_total, 10u);
    EXPECT_EQ(m.stats().blocks_held, 10u);
    EXPECT_EQ(m.stats().blocks_free, 0u);
}

TEST(OnePool, an_item_lacks_what_all_groups_lack_together) {
    Manager m(one_pool(5));
    quire_seq a = m.sequence();
    m.begin();
    const quire_step_result result = m.add(a, tokens_from(1, 9));
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    EXPECT_EQ(result.blocks_short, 1u);
    m.abort();
    EXPECT_EQ(m.compute(a, tokens_from(1, 8)).compute_count, 8u);
}

TEST(OnePool, what_all_groups_have_found_is_held_before_any_takes_more) {
    Manager m(one_pool(6));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));  // two blocks in each group
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 4u);
    quire_seq b = m.sequence();
    const quire_step_result result = m.compute(b, tokens_from(1, 12));
    EXPECT_EQ(result.hit_tokens, 8u);
    EXPECT_TRUE(all_differ(held(m, b)));
    EXPECT_EQ(m.stats().evictions, 0u);
    EXPECT_EQ(m.stats().blocks_free, 0u);
}

TEST(OnePool, a_swapped_sequence_holds_what_it_finds_before_any_group_takes_more) {
    CacheOptions options = one_pool(6);
    options.host_blocks = 6;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 11));  // three blocks in each group, of which two are full
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    EXPECT_EQ(freed, 6u);
    m.finish(m.commit());
    EXPECT_EQ(m.stats().host_blocks_used, 6u);
    EXPECT_EQ(m.compute(a, {12}).first_position, 11u);
    EXPECT_TRUE(all_differ(held(m, a)));
    EXPECT_EQ(m.stats().evictions, 0u);
    EXPECT_EQ(m.stats().blocks_swapped_in, 2u) << "one unpublished block in each group";
}

TEST(OnePool, a_swap_needs_room_for_all_groups) {
    CacheOptions options = one_pool(6);
    options.host_blocks = 3;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.begin();
    uint32_t freed = 0;
    EXPECT_EQ(m.api().step_preempt(m.cache(), m.open(), a, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_S_NO_BLOCKS);
    m.abort();
}

TEST(OnePool, the_longest_unused_block_leaves_whichever_group_it_is_of) {
    Manager m(one_pool(8, {{}, {.window = 4}}));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 4u);
    quire_seq b = m.sequence();
    m.compute(b, tokens_from(100, 12));  // takes six: four free ones, and two that are evicted
    EXPECT_EQ(m.stats().evictions, 2u);
    EXPECT_EQ(m.probe(tokens_from(1, 8)), 0u) << "group 0's blocks were released first";
    EXPECT_EQ(m.stats().blocks_cached, 0u) << "the window's blocks of the same places went too";
    EXPECT_EQ(m.stats().blocks_free, 2u);
}

TEST(OnePool, an_abort_brings_evicted_blocks_of_another_group_back) {
    Manager m(one_pool(6, {{}, {.window = 8}}));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.end(a);
    const std::string before = m.snapshot();
    quire_seq b = m.sequence();
    const std::string with_b = m.snapshot();
    m.begin();
    m.add(b, tokens_from(100, 12));
    EXPECT_EQ(m.stats().evictions, 4u);
    m.check();
    m.abort();
    EXPECT_EQ(m.snapshot(), with_b);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
    m.begin();
    m.add(b, tokens_from(100, 12));
    m.drop(b);
    m.check();
    m.finish(m.commit());
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST(OnePool, blocks_that_one_groups_window_has_passed_serve_another_group) {
    Manager m(one_pool(6, {{}, {.window = 4}}));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 12));
    EXPECT_EQ(m.stats().blocks_free, 0u);
    EXPECT_EQ(m.compute(a, {13}).compute_count, 1u) << "one block of each, of the two passed";
    EXPECT_TRUE(all_differ(held(m, a)));
}

TEST(OnePool, a_truncated_sequence_that_fills_the_pool_goes_on) {
    Manager m(one_pool(4));
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 6, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(m.compute(a, {70, 71}).compute_count, 2u);
}

TEST(OnePool, a_watermark_is_left_once) {
    CacheOptions options = one_pool(8);
    options.watermark = 2;
    Manager m(options);
    m.compute(m.sequence(), tokens_from(1, 4));
    EXPECT_EQ(m.compute(m.sequence(), tokens_from(50, 8)).compute_count, 8u);
}

TEST(OnePool, leases_take_match_and_evict_blocks_of_every_group) {
    Manager m(one_pool(8));
    Leased lease(&m);
    m.begin();
    const Answer one = lease.take(2, 0), other = lease.take(2, 1);
    ASSERT_EQ(one.status, QUIRE_OK);
    ASSERT_EQ(other.status, QUIRE_OK);
    EXPECT_TRUE(all_differ(joined_ids(one.ids, other.ids)));
    EXPECT_EQ(lease.give(one.ids, 1), QUIRE_E_ARG) << "group 1 has not taken them";
    const Blocks places = {one.ids[0], other.ids[0], one.ids[1], other.ids[1]};
    EXPECT_EQ(lease.publish(tokens_from(1, 4), {other.ids[0], one.ids[0]}).status, QUIRE_E_ARG);
    EXPECT_EQ(lease.publish(tokens_from(1, 8), places).status, QUIRE_OK);
    EXPECT_EQ(lease.give(one.ids, 0), QUIRE_OK);
    EXPECT_EQ(lease.give(other.ids, 1), QUIRE_OK);
    m.finish(m.commit());
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_LOOK, 2).ids, places);
    Blocks evicted(8);
    uint32_t count = 0;
    ASSERT_EQ(m.api().cache_evict(m.cache(), 1, 8, evicted.data(), &count, m.error()), QUIRE_OK);
    EXPECT_EQ(count, 2u) << "each takes the other group's block of its place along";
    m.check();
    EXPECT_EQ(m.stats().blocks_free, 8u);
    EXPECT_EQ(lease.match(tokens_from(1, 8), QUIRE_MATCH_LOOK, 2).ids, Blocks{});
    EXPECT_EQ(lease.end(), QUIRE_OK);
}

TEST(OnePool, a_smaller_pool_renumbers_the_blocks_of_all_groups) {
    Manager m(one_pool(12));
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.compute(b, tokens_from(100, 8));
    m.end(a);
    std::vector<quire_block_move> moves(16);
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.blocks = 5 + 1;
    desc.moves = moves.data();
    desc.move_capacity = 16;
    desc.move_stride = sizeof(quire_block_move);
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(info.blocks_dropped, 4u) << "a place of full attention leaves in all groups";
    EXPECT_EQ(info.move_count, 4u);
    EXPECT_TRUE(all_differ(held(m, b)));
    EXPECT_EQ(m.stats().blocks_total, 5u);
    EXPECT_EQ(m.stats().blocks_held, 4u);
    EXPECT_EQ(m.probe(tokens_from(100, 9)), 8u);
    desc.blocks = 0;
    desc.pool_bytes = 1 << 20;
    EXPECT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_E_ARG);
    EXPECT_NE(m.message().find("QUIRE_CACHE_ONE_POOL"), std::string::npos);
}

TEST(OnePool, a_follower_counts_the_pool_once) {
    CacheOptions options = one_pool(20, {{}, {.window = 6}});
    options.host_blocks = 9;
    options.flags |= QUIRE_CACHE_LOG;
    Manager leader(options);
    options.flags = QUIRE_CACHE_ONE_POOL | QUIRE_CACHE_FOLLOWER;
    Manager follower(options);
    quire_seq a = leader.sequence(), b = leader.sequence();
    for (uint32_t i = 0; i < 6; ++i) {
        leader.begin();
        leader.add(a, tokens_from(1 + 3 * i, 3));
        if (i % 2 == 0) leader.add(b, tokens_from(100 + 2 * i, 2));
        const quire_step step = leader.commit();
        finish_applied(follower, apply_log(follower, leader, step));
        leader.finish(step);
    }
    EXPECT_EQ(follower.stats().blocks_held, leader.stats().blocks_held);
    EXPECT_EQ(follower.stats().blocks_total, 20u);
    for (uint32_t g = 0; g < 2; ++g) EXPECT_EQ(follower.table(a, g), leader.table(a, g));
    // A leader with pools of their own is another leader.
    options.flags = QUIRE_CACHE_LOG;
    Manager apart(options);
    quire_seq c = apart.sequence();
    apart.begin();
    apart.add(c, tokens_from(1, 3));
    const quire_step step = apart.commit();
    uint64_t size = 0;
    std::vector<uint8_t> log(1 << 16);
    ASSERT_EQ(
        apart.api().step_log(apart.cache(), step, log.data(), log.size(), &size, apart.error()),
        QUIRE_OK);
    apart.finish(step);
    options.flags = QUIRE_CACHE_ONE_POOL | QUIRE_CACHE_FOLLOWER;
    Manager fresh(options);
    auto desc = described<quire_step_desc>();
    quire_step applied = 0;
    EXPECT_EQ(fresh.api().log_apply(fresh.cache(), log.data(), size, &desc, nullptr, &applied,
                                    fresh.error()),
              QUIRE_E_ARG);
}

// Cases that have no common pool ---------------------------------------------------------------

struct Refused {
    std::vector<quire_group_desc> groups;
    quire_cache_desc desc = described<quire_cache_desc>();

    Refused() : groups(2, described<quire_group_desc>()) {
        for (quire_group_desc &g : groups)
            g.layer_count = g.kv_heads = g.k_head_dim = g.v_head_dim = 1;
        desc.groups = groups.data();
        desc.group_count = 2;
        desc.group_stride = sizeof(quire_group_desc);
        desc.flags = QUIRE_CACHE_ONE_POOL;
        desc.blocks = 9;
    }
    void expect(quire_status code, const char *word) {
        auto instance_desc = described<quire_instance_desc>();
        auto error = described<quire_error>();
        quire_instance *instance = nullptr;
        quire_cache *cache = nullptr;
        ASSERT_EQ(library().instance_create(&instance_desc, &instance, &error), QUIRE_OK);
        EXPECT_EQ(library().cache_create(instance, &desc, &cache, &error), code) << error.message;
        EXPECT_TRUE(code == QUIRE_OK || std::string(error.message).find(word) != std::string::npos);
        if (cache != nullptr) library().cache_destroy(cache, &error);
        library().instance_destroy(instance, &error);
    }
};

TEST(OnePool, what_has_no_common_pool_is_refused_in_words) {
    Refused().expect(QUIRE_OK, "");
    Refused equal;
    equal.groups[1].blocks = 9;
    equal.expect(QUIRE_OK, "");
    Refused other;
    other.groups[1].blocks = 8;
    other.expect(QUIRE_E_ARG, "group 1 has 8 blocks");
    Refused bytes;
    bytes.desc.blocks = 0;
    bytes.desc.pool_bytes = 1 << 20;
    bytes.expect(QUIRE_E_ARG, "pool_bytes");
    Refused host;
    host.desc.host_blocks = 4;
    host.desc.flags |= QUIRE_CACHE_HOST_PREFIXES;
    host.expect(QUIRE_E_UNSUPPORTED, "QUIRE_CACHE_HOST_PREFIXES");
}

TEST(OnePool, info_counts_a_token_once_in_each_group) {
    CacheOptions options = one_pool(24, {{}, {}, {.window = 4}});
    options.max_sequence_tokens = 16;
    Manager m(options);
    auto info = described<quire_cache_info>();
    ASSERT_EQ(m.api().cache_get_info(m.cache(), &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.pool_tokens, 48u) << "12 blocks in each of two groups";
    EXPECT_EQ(info.max_sequences, 2u) << "4 + 4 + 4 blocks each";
}

// Planted faults -------------------------------------------------------------------------------

// Sequence 0 has computed 10 tokens, in blocks 1 to 3 of group 0 and 4 to 6 of group 1.
struct Shared : Books {
    quire_seq seq;

    Shared() : Books(QUIRE_CACHE_ONE_POOL, 16, 8, 2) {
        seq = sequence();
        compute(seq, 100, 10);
        EXPECT_EQ(check(), "");
    }
    quire::BlockTable &table_of(uint32_t group) {
        return quire::Inside::journal(cache).table(0, group);
    }
};

TEST(OnePool, the_check_sees_a_block_that_two_groups_name) {
    Shared b;
    b.table_of(1).ids.data[2] = b.table_of(0).ids.data[2];
    EXPECT_EQ(b.check(), "block 3 is in a table of group 1, of sequence 0, and in one of group 0");
    b.table_of(0).ids.data[2] = b.table_of(1).ids.data[2] = 6;
    EXPECT_EQ(b.check(), "block 6 is in a table of group 0, of sequence 0, but group 1 took it");
}

TEST(OnePool, the_check_sees_a_node_that_names_another_groups_block) {
    Shared b;
    quire::PrefixTree &tree = quire::Inside::tree(b.cache);
    tree.change_blocks(0)[1] = tree.blocks(0)[0];
    EXPECT_EQ(b.check(), "prefix_tree: node 0 and its block 1 disagree");
}

// Random items, forks, truncations and ends; the library checks itself after each.
TEST(OnePool, any_order_of_operations_keeps_its_books) {
    for (uint32_t seed = 1; seed <= 6; ++seed) {
        CacheOptions options = one_pool(30, {{}, {.window = 6}, {}});
        options.host_blocks = 20;
        options.block_tokens = seed % 2 == 0 ? 3 : 4;
        Manager m(options);
        walk_randomly(m, seed, {.most_tokens = 9});
    }
}

}  // namespace
