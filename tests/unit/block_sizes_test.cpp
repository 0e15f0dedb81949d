// SPDX-License-Identifier: Apache-2.0
//
// Groups whose blocks have different sizes: tables, hits and publication in spans that are whole
// blocks of all groups.

#include <algorithm>

#include "core/base/geometry.hpp"
#include "manager.hpp"
#include "random_walk.hpp"

namespace {

using namespace quire::test;

// Blocks of 4 tokens in the first group, of 6 in the second: spans of 12.
CacheOptions two_sizes(uint32_t blocks = 40) {
    CacheOptions options;
    options.block_tokens = 2;
    options.blocks = blocks;
    options.groups = {{.block_tokens = 4}, {.block_tokens = 6}};
    return options;
}

TEST(BlockSizes, each_table_has_blocks_of_its_own_size) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 13));
    EXPECT_EQ(m.table(a, 0).size(), 4u);
    EXPECT_EQ(m.table(a, 1).size(), 3u);
    auto pool = described<quire_pool_info>();
    ASSERT_EQ(m.api().cache_get_pool(m.cache(), 1, 0, &pool, m.error()), QUIRE_OK);
    EXPECT_EQ(pool.block_tokens, 6u);
    auto info = described<quire_cache_info>();
    ASSERT_EQ(m.api().cache_get_info(m.cache(), &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.block_tokens, 2u);
    EXPECT_EQ(info.pool_tokens, 160u);
}

TEST(BlockSizes, a_hit_ends_where_blocks_of_all_groups_end) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 35));  // two spans of 12, and most of a third
    EXPECT_EQ(m.stats().nodes, 2u);
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 35)), 24u);
    EXPECT_EQ(m.probe(tokens_from(1, 24)), 12u) << "one token is always computed";
    EXPECT_EQ(m.probe(tokens_from(1, 12)), 0u);
    quire_seq b = m.sequence();
    const quire_step_result result = m.compute(b, tokens_from(1, 30));
    EXPECT_EQ(result.hit_tokens, 24u);
    EXPECT_EQ(result.first_position, 24u);
    EXPECT_EQ(m.table(b, 0).size(), 8u);
    EXPECT_EQ(m.table(b, 1).size(), 5u);
}

TEST(BlockSizes, only_whole_spans_stay_cached) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 20));
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 3u + 2u);
}

TEST(BlockSizes, a_span_leaves_with_the_first_of_its_blocks) {
    CacheOptions options = two_sizes();
    options.groups[0].blocks = 6;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 24));
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 25)), 24u);
    quire_seq b = m.sequence();
    m.compute(b, {900});  // takes one block of each group
    EXPECT_EQ(m.stats().evictions, 1u);
    EXPECT_EQ(m.probe(tokens_from(1, 25)), 12u) << "the tail goes first";
    EXPECT_EQ(m.stats().blocks_cached, 3u + 2u);
}

TEST(BlockSizes, an_abort_brings_a_block_back_to_its_place_in_the_span) {
    CacheOptions options = two_sizes();
    options.groups[0].blocks = 6;
    Manager m(options);
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 24));
    m.end(a);
    const std::string before = m.snapshot();
    m.begin();
    m.add(b, tokens_from(900, 10));
    m.check();
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(m.probe(tokens_from(1, 25)), 24u);
    quire_seq c = m.sequence();
    EXPECT_EQ(m.compute(c, tokens_from(1, 20)).hit_tokens, 12u);
}

TEST(BlockSizes, what_goes_on_differently_within_a_published_span_is_not_published) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 12));
    quire_seq b = m.fork(a, 8);  // shares two blocks of group 0, and one and a part of group 1
    m.compute(b, tokens_from(500, 16));
    EXPECT_EQ(m.stats().nodes, 1u);
    EXPECT_EQ(m.probe(joined(tokens_from(1, 8), tokens_from(500, 17))), 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 12u);
    // The same tokens again are the same span.
    quire_seq c = m.fork(a, 8);
    m.compute(c, tokens_from(9, 16));
    EXPECT_EQ(m.stats().nodes, 2u);
}

TEST(BlockSizes, a_window_needs_its_own_blocks_before_a_hit) {
    CacheOptions options = two_sizes();
    options.groups[1].window = 7;
    options.groups[1].kind = QUIRE_GROUP_WINDOW;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 36));
    m.compute(a, {37});  // its window begins at token 31: four blocks have passed
    m.compute(a, {38});
    EXPECT_EQ(m.table(a, 1)[4], 0) << "tokens 25 to 30";
    EXPECT_NE(m.table(a, 1)[5], 0);
    EXPECT_EQ(m.probe(tokens_from(1, 40)), 36u);
    m.end(a);
    EXPECT_EQ(m.probe(tokens_from(1, 25)), 24u);
    quire_seq b = m.sequence();
    EXPECT_EQ(m.compute(b, tokens_from(1, 30)).hit_tokens, 24u);
    EXPECT_EQ(m.table(b, 1)[2], 0) << "the token at 24 sees those from 18 on";
    EXPECT_NE(m.table(b, 1)[3], 0);
}

TEST(BlockSizes, a_failed_step_takes_back_only_what_depends_on_it) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 8));
    const quire_step first = m.commit();
    m.begin();
    m.add(a, tokens_from(9, 8));  // fills the span, of which the first step computed a part
    const quire_step second = m.commit();
    m.begin();
    quire_seq b = m.sequence();
    EXPECT_EQ(m.add(b, tokens_from(1, 20)).hit_tokens, 12u);
    const quire_step third = m.commit();
    m.finish(first);
    m.finish(second, QUIRE_STEP_FAILED);
    m.check();
    EXPECT_EQ(m.info(a).computed_tokens, 8u);
    EXPECT_EQ(m.info(b).computed_tokens, 6u) << "group 1's second block holds tokens 7 to 12";
    EXPECT_EQ(m.stats().nodes, 0u);
    m.finish(third);
    EXPECT_EQ(m.compute(a, tokens_from(50, 4)).first_position, 8u);
}

TEST(BlockSizes, a_batch_has_slots_of_each_groups_size) {
    Manager m(two_sizes());
    auto desc = described<quire_batch_desc>();
    desc.max_rows = 2;
    desc.max_blocks_per_row = 16;
    desc.max_query_tokens = 32;
    desc.max_context_tokens = 64;
    desc.views = QUIRE_VIEW_SLOTS | QUIRE_VIEW_CSR;
    quire_batch *batch = nullptr;
    ASSERT_GE(m.api().batch_create(m.cache(), &desc, &batch, m.error()), 0) << m.message();
    quire_seq a = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 13));
    m.finish(m.commit(batch));
    for (uint32_t g = 0; g < 2; ++g) {
        const int64_t size = g == 0 ? 4 : 6;
        auto v = described<quire_batch_views>();
        ASSERT_GE(m.api().batch_get_views(batch, g, 0, &v, m.error()), 0) << m.message();
        const auto *slots = reinterpret_cast<const int64_t *>(v.slots);
        const Blocks ids = m.table(a, g);
        for (int64_t p = 0; p < 13; ++p)
            EXPECT_EQ(slots[p], ids[static_cast<size_t>(p / size)] * size + p % size);
        EXPECT_EQ(reinterpret_cast<const int32_t *>(v.csr_last_page_len)[0], 1);
        EXPECT_EQ(reinterpret_cast<const int32_t *>(v.csr_indptr)[1], g == 0 ? 4 : 3);
    }
    m.api().batch_destroy(batch, m.error());
}

TEST(BlockSizes, a_smaller_pool_keeps_or_drops_whole_spans) {
    Manager m(two_sizes());
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 24));
    m.compute(b, tokens_from(100, 12));
    m.end(a);
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    const uint32_t blocks[] = {8, 8};
    desc.group_blocks = blocks;
    ASSERT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    m.check();
    EXPECT_EQ(m.probe(tokens_from(1, 25)), 12u);
    EXPECT_EQ(m.probe(tokens_from(100, 13)), 12u);
    EXPECT_EQ(info.blocks_dropped, 3u + 2u);
}

TEST(BlockSizes, one_pool_serves_them_all) {
    CacheOptions options = two_sizes(10);
    options.flags = QUIRE_CACHE_ONE_POOL;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 13));  // four and three blocks
    m.end(a);
    EXPECT_EQ(m.stats().blocks_cached, 5u);
    quire_seq b = m.sequence();
    EXPECT_EQ(m.compute(b, tokens_from(1, 24)).hit_tokens, 12u);
    EXPECT_EQ(m.stats().blocks_free, 0u);
    auto info = described<quire_cache_info>();
    ASSERT_EQ(m.api().cache_get_info(m.cache(), &info, m.error()), QUIRE_OK);
    EXPECT_EQ(info.pool_tokens, 24u) << "five blocks a span";
}

// Wrong descriptions ---------------------------------------------------------------------------

struct Sizes {
    quire_cache_desc cache{};
    std::vector<quire_group_desc> groups;

    Sizes(uint32_t unit, const std::vector<uint32_t> &sizes) {
        cache.block_tokens = unit;
        cache.blocks = 16;
        for (uint32_t size : sizes) {
            quire_group_desc group{};
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
            group.block_tokens = size;
            groups.push_back(group);
        }
        cache.group_count = static_cast<uint32_t>(groups.size());
    }
    quire_status compute(quire::Geometry *out) {
        return compute_geometry(cache, groups.data(), 0, out).code;
    }
    quire_status compute() {
        quire::Geometry out;
        return compute(&out);
    }
};

TEST(BlockSizes, are_multiples_of_the_caches_with_a_border_in_common) {
    quire::Geometry out;
    ASSERT_EQ(Sizes(16, {0, 48, 32}).compute(&out), QUIRE_OK);
    EXPECT_EQ(out.span.tokens(), 96u);
    EXPECT_EQ(out.groups[0].per_span, 6u);
    EXPECT_EQ(out.groups[1].per_span, 2u);
    EXPECT_EQ(out.groups[2].per_span, 3u);
    EXPECT_FALSE(out.uniform);
    ASSERT_EQ(Sizes(16, {528, 528}).compute(&out), QUIRE_OK);
    EXPECT_EQ(out.span.tokens(), 528u);
    EXPECT_EQ(out.groups[0].per_span, 1u);
    EXPECT_EQ(Sizes(16, {16, 24}).compute(), QUIRE_E_ARG);
    EXPECT_EQ(Sizes(16, {16, 4112}).compute(), QUIRE_E_ARG);
    EXPECT_EQ(Sizes(1, {4093, 4096}).compute(), QUIRE_E_LIMIT);
    Sizes device(16, {16, 32});
    device.cache.shard_count = 1;
    EXPECT_EQ(device.compute(), QUIRE_E_UNSUPPORTED);
    Sizes windows(16, {16, 32});
    for (quire_group_desc &group : windows.groups)
        group.kind = QUIRE_GROUP_WINDOW, group.window = 9;
    EXPECT_EQ(windows.compute(), QUIRE_E_UNSUPPORTED);
}

TEST(BlockSizes, a_group_of_another_input_has_no_part_in_the_border) {
    Sizes sizes(16, {32, 48});
    sizes.groups[1].kind = QUIRE_GROUP_CROSS;
    quire::Geometry out;
    ASSERT_EQ(sizes.compute(&out), QUIRE_OK);
    EXPECT_EQ(out.span.tokens(), 32u);
    EXPECT_EQ(out.groups[1].per_span, 1u);
}

TEST(BlockSizes, what_names_one_block_per_place_is_refused_in_words) {
    auto instance_desc = described<quire_instance_desc>();
    auto error = described<quire_error>();
    quire_instance *instance = nullptr;
    ASSERT_EQ(library().instance_create(&instance_desc, &instance, &error), QUIRE_OK);
    Sizes sizes(2, {4, 6});
    for (quire_group_desc &group : sizes.groups) group.struct_size = sizeof group;
    sizes.cache.struct_size = sizeof sizes.cache;
    sizes.cache.groups = sizes.groups.data();
    sizes.cache.group_stride = sizeof(quire_group_desc);
    sizes.cache.flags = QUIRE_CACHE_HOST_PREFIXES;
    sizes.cache.host_blocks = 4;
    quire_cache *cache = nullptr;
    EXPECT_EQ(library().cache_create(instance, &sizes.cache, &cache, &error), QUIRE_E_UNSUPPORTED);
    EXPECT_NE(std::string(error.message).find("block_tokens of their own"), std::string::npos);
    library().instance_destroy(instance, &error);
}

TEST(BlockSizes, events_tell_of_spans_whose_blocks_a_group_has_all) {
    CacheOptions options = two_sizes(7);  // six blocks of the second group
    options.flags = QUIRE_CACHE_EVENTS | QUIRE_CACHE_EVENT_TOKENS;
    options.groups[0].window = 4;
    options.groups[0].kind = QUIRE_GROUP_WINDOW;
    Manager m(options);
    quire_cache_event events[8];
    quire_token tokens[48];
    auto info = described<quire_events_info>();
    auto read = [&] {
        EXPECT_EQ(m.api().cache_events(m.cache(), 0, events, 8, sizeof *events, tokens, 48, &info,
                                       m.error()),
                  QUIRE_OK);
    };
    quire_seq a = m.sequence();
    for (quire_token first : {1u, 13u, 25u}) m.compute(a, tokens_from(first, 12));
    read();
    std::vector<std::pair<uint32_t, uint32_t>> stored;  // position and group
    for (uint32_t i = 1; i < info.event_count; ++i) {
        EXPECT_EQ(events[i].kind, uint32_t{QUIRE_EVENT_STORED});
        EXPECT_EQ(events[i].token_count, 12u);
        EXPECT_EQ(tokens[events[i].token_offset], events[i].position + 1);
        stored.emplace_back(events[i].position, events[i].group);
    }
    // Six of the window's nine blocks are left: a part of the first span is gone, or all of it.
    EXPECT_EQ(stored, (std::vector<std::pair<uint32_t, uint32_t>>{
                          {0, 1}, {12, 0}, {12, 1}, {24, 0}, {24, 1}}));
    EXPECT_EQ(m.api().cache_events(m.cache(), QUIRE_EVENTS_RESTART, events, 8, sizeof *events,
                                   tokens, 11, &info, m.error()),
              QUIRE_E_ARG)
        << "a span has 12 tokens";
}

// Random items, forks, truncations and ends; the library checks itself after each.
TEST(BlockSizes, any_order_of_operations_keeps_its_books) {
    for (uint32_t seed = 1; seed <= 8; ++seed) {
        CacheOptions options = two_sizes(24);
        options.groups.push_back({.window = 9, .block_tokens = 2});
        options.host_blocks = 20;
        if (seed % 2 == 0) {
            options.flags = QUIRE_CACHE_ONE_POOL;
            options.blocks = 50;
        }
        Manager m(options);
        walk_randomly(m, seed, {.most_tokens = 15, .drops_prefixes = true});
    }
}

}  // namespace
