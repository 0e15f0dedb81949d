// SPDX-License-Identifier: Apache-2.0
//
// Migrating a bookkeeping-only cache to other pools: which blocks keep their numbers, what leaves,
// and what is refused; the engine copies the listed blocks.

#include "manager.hpp"

namespace {

using namespace quire::test;

struct Moved {
    quire_status status = QUIRE_OK;
    quire_migrate_info info = described<quire_migrate_info>();
    std::vector<quire_block_move> list;
};

// Moves to this many usable blocks in each group and in the host tier.
Moved move_to(Manager *m, uint32_t blocks, uint32_t host_blocks = 0, uint32_t capacity = 64) {
    Moved out;
    out.list.resize(capacity);
    auto desc = described<quire_migrate_desc>();
    desc.blocks = blocks + 1;
    desc.host_blocks = host_blocks;
    desc.moves = out.list.data();
    desc.move_capacity = capacity;
    desc.move_stride = sizeof(quire_block_move);
    out.status = m->api().cache_migrate(m->cache(), &desc, &out.info, m->error());
    if (out.status == QUIRE_OK) out.list.resize(out.info.move_count);
    m->check();
    return out;
}

TEST(Migrate, a_larger_pool_renumbers_nothing_and_has_room) {
    Manager m(CacheOptions{.blocks = 4});
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 13));
    Blocks before = m.table(seq);
    EXPECT_EQ(m.stats().blocks_free, 0u);
    Moved moved = move_to(&m, 9);
    EXPECT_EQ(moved.status, QUIRE_OK) << m.message();
    EXPECT_EQ(m.table(seq), before);
    EXPECT_EQ(m.stats().blocks_total, 9u);
    EXPECT_EQ(m.stats().blocks_free, 5u);
    EXPECT_EQ(moved.info.blocks_moved, 4u);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 12u);
    m.compute(seq, tokens_from(14, 20));
    EXPECT_EQ(m.table(seq).size(), 9u);
    EXPECT_EQ(m.stats().migrations, 1u);
}

// Blocks past the end take the lowest free numbers; the list says which.
TEST(Migrate, a_smaller_pool_takes_what_just_fits_and_refuses_what_does_not) {
    Manager m(CacheOptions{.blocks = 10});
    quire_seq first = m.sequence(), second = m.sequence();
    m.compute(first, tokens_from(1, 16));     // blocks 1 to 4
    m.compute(second, tokens_from(100, 10));  // blocks 5 to 7
    m.end(first, QUIRE_END_DROP_PREFIX);
    Blocks before = m.table(second);
    std::string snapshot = m.books();
    Moved refused = move_to(&m, 2);
    EXPECT_EQ(refused.status, QUIRE_S_NO_BLOCKS);
    EXPECT_EQ(refused.info.blocks_short, 1u);
    EXPECT_EQ(m.books(), snapshot);
    EXPECT_EQ(m.table(second), before);
    Moved moved = move_to(&m, 3);
    EXPECT_EQ(moved.status, QUIRE_OK) << m.message();
    EXPECT_EQ(before, (Blocks{5, 6, 7}));
    EXPECT_EQ(m.table(second), (Blocks{1, 2, 3}));
    ASSERT_EQ(moved.list.size(), 3u);
    for (int32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(moved.list[static_cast<size_t>(i)].src, 5 + i);
        EXPECT_EQ(moved.list[static_cast<size_t>(i)].dst, 1 + i);
        EXPECT_EQ(moved.list[static_cast<size_t>(i)].tier, uint32_t{QUIRE_TIER_DEVICE});
    }
    EXPECT_EQ(m.stats().blocks_free, 0u);
}

TEST(Migrate, cached_blocks_leave_when_there_is_no_room_the_least_recent_first) {
    Manager m(CacheOptions{.blocks = 12});
    Tokens old_text = tokens_from(1, 12), new_text = tokens_from(200, 12);
    for (const Tokens &text : {old_text, new_text}) {
        quire_seq seq = m.sequence();
        m.compute(seq, text);
        m.end(seq);
    }
    quire_seq live = m.sequence();
    m.compute(live, tokens_from(400, 8));
    EXPECT_EQ(m.stats().blocks_cached, 6u);
    Moved moved = move_to(&m, 5);
    EXPECT_EQ(moved.status, QUIRE_OK) << m.message();
    EXPECT_EQ(moved.info.blocks_dropped, 3u);
    EXPECT_EQ(moved.info.blocks_moved, 5u);
    EXPECT_EQ(m.probe(joined(old_text, {9})), 0u);
    EXPECT_EQ(m.probe(joined(new_text, {9})), 12u);
    EXPECT_EQ(m.probe(joined(tokens_from(400, 8), {9})), 8u);
    EXPECT_EQ(m.stats().evictions, 0u);
}

TEST(Migrate, nothing_is_computed_again) {
    Manager m(CacheOptions{.blocks = 20, .groups = {{.window = 6}, {}}});
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 30));
    quire_seq fork = m.fork(seq, 30);
    EXPECT_EQ(move_to(&m, 10).status, QUIRE_OK) << m.message();
    quire_step_result result = m.compute(seq, {77});
    EXPECT_EQ(result.first_position, 30u);
    EXPECT_EQ(result.compute_count, 1u);
    EXPECT_EQ(m.compute(fork, {78}).first_position, 30u);
}

TEST(Migrate, swapped_sequences_come_back_from_the_host_tier) {
    Manager m(CacheOptions{.blocks = 8, .host_blocks = 8, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq other = m.sequence(), seq = m.sequence();
    for (quire_seq s : {other, seq}) {
        m.compute(s, tokens_from(s == seq ? 1 : 50, 12));
        m.begin();
        uint32_t freed = 0;
        EXPECT_EQ(
            m.api().step_preempt(m.cache(), m.open(), s, QUIRE_PREEMPT_SWAP, &freed, m.error()),
            QUIRE_OK);
        m.finish(m.commit());
    }
    m.end(other);
    EXPECT_EQ(move_to(&m, 8, 2).status, QUIRE_S_NO_BLOCKS);
    Moved moved = move_to(&m, 8, 3);
    EXPECT_EQ(moved.status, QUIRE_OK) << m.message();
    ASSERT_EQ(moved.list.size(), 3u);  // the other sequence had blocks 1 to 3
    for (int32_t i = 0; i < 3; ++i) {
        const quire_block_move &move = moved.list[static_cast<size_t>(i)];
        EXPECT_EQ(move.tier, uint32_t{QUIRE_TIER_HOST});
        EXPECT_EQ(move.src, 4 + i);
        EXPECT_EQ(move.dst, 1 + i);
    }
    EXPECT_NE(m.info(seq).flags & QUIRE_SEQ_SWAPPED, 0u);
    quire_step_result result = m.compute(seq, {60});
    EXPECT_EQ(result.first_position, 12u);
    EXPECT_EQ(m.stats().blocks_swapped_in, 3u);
}

TEST(Migrate, steps_that_are_open_or_not_done_are_busy) {
    Manager m(CacheOptions{.blocks = 8});
    quire_seq seq = m.sequence();
    m.begin();
    m.add(seq, tokens_from(1, 5));
    EXPECT_EQ(move_to(&m, 9).status, QUIRE_E_BUSY);
    EXPECT_NE(m.message().find("open"), std::string::npos);
    quire_step step = m.commit();
    EXPECT_EQ(move_to(&m, 9).status, QUIRE_E_BUSY);
    EXPECT_NE(m.message().find("not done"), std::string::npos);
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    EXPECT_EQ(m.api().cache_migrate_wait(m.cache(), &desc, &info, 0, m.error()), QUIRE_E_BUSY);
    m.finish(step);
    EXPECT_EQ(m.api().cache_migrate_wait(m.cache(), &desc, &info, 0, m.error()), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_total, 8u);
}

TEST(Migrate, a_group_of_which_nothing_is_said_keeps_its_number) {
    Manager m(CacheOptions{.blocks = 8});
    const uint32_t nothing[] = {0};
    auto desc = described<quire_migrate_desc>();
    auto info = described<quire_migrate_info>();
    desc.group_blocks = nothing;
    EXPECT_EQ(m.api().cache_migrate(m.cache(), &desc, &info, m.error()), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_total, 8u);
}

TEST(Migrate, a_batch_of_before_is_stale_and_its_memory_is_free_for_good) {
    Manager m(CacheOptions{.blocks = 8});
    auto batch_desc = described<quire_batch_desc>();
    batch_desc.max_rows = batch_desc.max_blocks_per_row = batch_desc.max_query_tokens = 8;
    quire_batch *old = nullptr, *fresh = nullptr;
    EXPECT_EQ(m.api().batch_create(m.cache(), &batch_desc, &old, m.error()), QUIRE_OK);
    EXPECT_EQ(move_to(&m, 8).status, QUIRE_OK);
    EXPECT_EQ(m.api().batch_create(m.cache(), &batch_desc, &fresh, m.error()), QUIRE_OK);
    quire_seq seq = m.sequence();
    quire_step step = m.begin();
    m.add(seq, tokens_from(1, 5));
    EXPECT_EQ(m.api().step_commit(m.cache(), step, old, m.error()), QUIRE_E_STALE);
    EXPECT_NE(m.message().find("migrated"), std::string::npos);
    auto views = described<quire_batch_views>();
    EXPECT_EQ(m.api().batch_get_views(old, 0, 0, &views, m.error()), QUIRE_E_STALE);
    m.finish(m.commit(fresh));
    EXPECT_EQ(m.api().batch_destroy(old, m.error()), QUIRE_OK);
    EXPECT_EQ(m.api().batch_destroy(fresh, m.error()), QUIRE_OK);
}

TEST(Migrate, what_is_described_wrongly_is_refused_in_words) {
    Manager m(CacheOptions{.blocks = 8});
    m.compute(m.sequence(), tokens_from(1, 9));
    auto info = described<quire_migrate_info>();
    auto refused = [&](auto change) {
        auto desc = described<quire_migrate_desc>();
        change(&desc);
        quire_status status = m.api().cache_migrate(m.cache(), &desc, &info, m.error());
        m.check();
        return status;
    };
    EXPECT_EQ(refused([](auto *d) { d->shard_count = 1; }), QUIRE_E_ARG);
    EXPECT_EQ(refused([](auto *d) { d->blocks = 1; }), QUIRE_E_ARG);
    EXPECT_EQ(refused([](auto *d) { d->blocks = 9, d->pool_bytes = 1 << 20; }), QUIRE_E_ARG);
    EXPECT_EQ(refused([](auto *d) { d->pool_fraction = 0.5f; }), QUIRE_E_ARG);
    EXPECT_EQ(refused([](auto *d) { d->host_bytes = 1 << 20; }), QUIRE_E_ARG);
    EXPECT_EQ(refused([](auto *d) { d->move_capacity = 3; }), QUIRE_E_ARG);
    quire_block_move none[2];
    EXPECT_EQ(refused([&](auto *d) { d->moves = none, d->move_stride = 12; }), QUIRE_E_ARG);
    const uint32_t one[] = {1};
    EXPECT_EQ(refused([&](auto *d) { d->group_blocks = one; }), QUIRE_E_ARG);
    std::string before = m.books();
    Moved shorter = move_to(&m, 8, 0, 2);
    EXPECT_EQ(shorter.status, QUIRE_S_INCOMPLETE);
    EXPECT_EQ(shorter.info.move_count, 3u);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(m.api().cache_migrate(nullptr, nullptr, &info, m.error()), QUIRE_E_ARG);
}

// The tree grows with the pool.
TEST(Migrate, a_larger_pool_remembers_as_many_prefixes_as_one_that_was_made_so) {
    Manager m(CacheOptions{.blocks = 4});
    EXPECT_EQ(move_to(&m, 400).status, QUIRE_OK) << m.message();
    for (uint32_t i = 0; i < 10; ++i) {
        quire_seq seq = m.sequence();
        m.compute(seq, tokens_from(1000 * i, 160));
        m.end(seq);
    }
    EXPECT_EQ(m.stats().blocks_cached, 400u);
    EXPECT_EQ(m.stats().nodes, 400u);
    for (uint32_t i = 0; i < 10; ++i) {
        EXPECT_EQ(m.probe(joined(tokens_from(1000 * i, 160), {7})), 160u);
    }
}

}  // namespace
