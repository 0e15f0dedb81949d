// SPDX-License-Identifier: Apache-2.0
//
// Leases publish and find in caches whose groups have blocks of different sizes: a place is a span
// that is whole blocks of all groups.

#include <algorithm>
#include <random>

#include "leased.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kSpan = 12;
constexpr uint32_t kOfFirst = 3, kOfSecond = 2;  // blocks of a place
constexpr uint32_t kOfPlace = kOfFirst + kOfSecond;

// Blocks of 4 tokens in the first group, of 6 in the second.
CacheOptions two_sizes(uint32_t blocks = 40) {
    CacheOptions options;
    options.block_tokens = 2;
    options.blocks = blocks;
    options.groups = {{.block_tokens = 4}, {.block_tokens = 6}};
    return options;
}

// Ids of places, from those of the groups.
Blocks places(const Blocks &first, const Blocks &second) {
    Blocks out;
    for (size_t i = 0; i * kOfFirst < first.size(); ++i) {
        out.insert(out.end(), &first[i * kOfFirst], &first[i * kOfFirst] + kOfFirst);
        out.insert(out.end(), &second[i * kOfSecond], &second[i * kOfSecond] + kOfSecond);
    }
    return out;
}

// Takes blocks of both groups for so many places. A step is open.
Blocks take_places(Leased *lease, uint32_t count) {
    const Answer first = lease->take(count * kOfFirst, 0);
    const Answer second = lease->take(count * kOfSecond, 1);
    EXPECT_EQ(first.status, QUIRE_OK);
    EXPECT_EQ(second.status, QUIRE_OK);
    return places(first.ids, second.ids);
}

// Gives back those of `ids` that differ from `but`, a group at a time. A step is open.
void give_places(Leased *lease, const Blocks &ids, const Blocks &but) {
    Blocks of_group[2];
    for (size_t i = 0; i < ids.size(); ++i) {
        const bool stays = i < but.size() && but[i] == ids[i];
        if (!stays && ids[i] != 0) of_group[i % kOfPlace < kOfFirst ? 0 : 1].push_back(ids[i]);
    }
    for (uint32_t g = 0; g < 2; ++g) EXPECT_EQ(lease->give(of_group[g], g), QUIRE_OK);
}

Answer match(Leased *lease, const Tokens &tokens, uint32_t how = QUIRE_MATCH_LOOK) {
    return lease->match(tokens, how, kOfPlace);
}

TEST(LeaseSizes, a_match_names_the_blocks_that_a_sequence_computed) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 35));
    const Blocks first = m.table(a, 0), second = m.table(a, 1);
    Leased lease(&m);
    const Answer found = match(&lease, tokens_from(1, 35));
    EXPECT_EQ(found.result.blocks, 2u) << "places of 12 tokens";
    EXPECT_EQ(found.ids,
              places({first.begin(), first.begin() + 6}, {second.begin(), second.begin() + 4}));
    EXPECT_EQ(match(&lease, tokens_from(1, 23)).result.blocks, 1u);
    EXPECT_EQ(match(&lease, joined(tokens_from(1, 22), tokens_from(90, 9))).result.blocks, 1u);
    EXPECT_EQ(match(&lease, tokens_from(2, 35)).result.blocks, 0u);
    EXPECT_EQ(lease.find(wide(tokens_from(1, 35))).status, QUIRE_OK);
}

TEST(LeaseSizes, a_sequence_goes_on_with_what_a_lease_published) {
    Manager m(two_sizes());
    Leased lease(&m);
    m.begin();
    const Blocks own = take_places(&lease, 2);
    const Answer named = lease.publish(tokens_from(1, 24), own);
    ASSERT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.ids, own);
    EXPECT_EQ(named.result.blocks, 2u);
    m.finish(m.commit());
    quire_seq a = m.sequence();
    EXPECT_EQ(m.compute(a, tokens_from(1, 30)).hit_tokens, 24u);
    EXPECT_EQ(m.table(a, 0)[3], own[kOfPlace]);
    EXPECT_EQ(m.table(a, 1)[3], own[kOfPlace + kOfFirst + 1]);
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_cached, 0u) << "the sequence holds all of them";
}

TEST(LeaseSizes, whole_places_are_published_of_blocks_taken_for_their_group) {
    Manager m(two_sizes());
    Leased lease(&m);
    m.begin();
    Blocks own = take_places(&lease, 1);
    EXPECT_EQ(lease.publish(tokens_from(1, 6), own).status, QUIRE_E_ARG);
    EXPECT_NE(m.message().find("spans of 12"), std::string::npos) << m.message();
    own[4] = own[3];
    EXPECT_EQ(lease.publish(tokens_from(1, 12), own).status, QUIRE_E_ARG);
    EXPECT_NE(m.message().find("ids[4]"), std::string::npos) << m.message();
    own[4] = 0;
    EXPECT_EQ(lease.publish(tokens_from(1, 12), own).status, QUIRE_E_ARG)
        << "full attention has every block";
    m.abort();
    EXPECT_EQ(lease.info().blocks_held, 0u);
}

TEST(LeaseSizes, one_pool_knows_for_which_group_a_block_was_taken) {
    CacheOptions options = two_sizes();
    options.flags = QUIRE_CACHE_ONE_POOL;
    Manager m(options);
    Leased lease(&m);
    m.begin();
    Blocks own = take_places(&lease, 1);
    std::swap(own[0], own[3]);
    EXPECT_EQ(lease.publish(tokens_from(1, 12), own).status, QUIRE_E_ARG);
    EXPECT_NE(m.message().find("ids[0]"), std::string::npos) << m.message();
    std::swap(own[0], own[3]);
    EXPECT_EQ(lease.publish(tokens_from(1, 12), own).status, QUIRE_OK) << m.message();
    m.finish(m.commit());
    EXPECT_EQ(match(&lease, tokens_from(1, 12)).ids, own);
}

TEST(LeaseSizes, what_a_place_lost_is_filled_by_the_next_that_publishes_it) {
    CacheOptions options = two_sizes();
    options.groups[1].window = 8;
    Manager m(options);
    Leased lease(&m);
    m.begin();
    Blocks own = take_places(&lease, 2);
    const Blocks taken = own;
    for (uint32_t i : {3u, 4u}) own[i] = 0;
    ASSERT_EQ(lease.publish(tokens_from(1, 24), own).status, QUIRE_OK) << m.message();
    give_places(&lease, taken, {});
    m.finish(m.commit());
    EXPECT_EQ(match(&lease, tokens_from(1, 24)).ids, own) << "the next token sees two blocks";
    EXPECT_EQ(match(&lease, tokens_from(1, 12)).result.blocks, 0u) << "not what it would see";
    m.begin();
    const Blocks more = take_places(&lease, 1);
    const Answer named = lease.publish(tokens_from(1, 12), more);
    ASSERT_EQ(named.status, QUIRE_OK) << m.message();
    EXPECT_EQ(named.ids, places({own.begin(), own.begin() + 3}, {more.begin() + 3, more.end()}));
    EXPECT_EQ(named.result.blocks, 0u) << "the place was there";
    give_places(&lease, more, named.ids);
    m.finish(m.commit());
    EXPECT_EQ(match(&lease, tokens_from(1, 12)).ids, named.ids);
    EXPECT_EQ(lease.end(), QUIRE_OK);
    EXPECT_EQ(m.stats().blocks_cached, 6u + 4u);
}

TEST(LeaseSizes, a_pin_is_charged_for_every_block_and_undone_whole) {
    Manager m(two_sizes());
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 24));
    m.end(a);
    Leased lease(&m);
    m.begin();
    EXPECT_EQ(match(&lease, tokens_from(1, 24), QUIRE_MATCH_PIN).result.blocks, 2u);
    EXPECT_EQ(lease.info().blocks_held, 2u * kOfPlace);
    m.abort();
    EXPECT_EQ(lease.info().blocks_held, 0u);
    EXPECT_EQ(m.stats().blocks_cached, 2u * kOfPlace);
    m.begin();
    const Blocks ids = match(&lease, tokens_from(1, 24), QUIRE_MATCH_PIN).ids;
    m.finish(m.commit());
    EXPECT_EQ(evict(m, 10, 0), Blocks{});
    m.begin();
    give_places(&lease, ids, {});
    m.finish(m.commit());
    EXPECT_EQ(evict(m, 1, 1), Blocks{}) << "a place goes whole";
    const Blocks gone = evict(m, 3, 1);
    EXPECT_EQ(gone.size(), 2u) << "and the next does not fit";
    EXPECT_EQ(evict(m, 10, 1).size(), 2u);
    EXPECT_EQ(match(&lease, tokens_from(1, 24)).result.blocks, 0u);
}

TEST(LeaseSizes, a_recurrent_group_has_the_state_after_the_last_place) {
    CacheOptions options = two_sizes();
    options.groups[1].kind = QUIRE_GROUP_RECURRENT;
    Manager m(options);
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 24));
    m.end(a);
    Leased lease(&m);
    const Answer found = match(&lease, tokens_from(1, 24));
    ASSERT_EQ(found.result.blocks, 2u);
    EXPECT_EQ(std::count(found.ids.begin(), found.ids.end(), 0), 3);
    EXPECT_NE(found.ids.back(), 0);
}

// Random texts over two tokens: a lease and a sequence find the same.
TEST(LeaseSizes, leases_find_what_sequences_find) {
    std::mt19937 random(20261128);
    Manager m(two_sizes(60));
    Leased lease(&m);
    uint32_t hits = 0;
    for (uint32_t turn = 0; turn < 400; ++turn) {
        Tokens tokens;
        for (uint32_t i = 0; i < 1 + random() % 4; ++i) {
            const Tokens span(kSpan, 1 + random() % 2);
            tokens = joined(tokens, span);
        }
        const auto count = static_cast<uint32_t>(tokens.size()) / kSpan;
        const uint32_t found = match(&lease, tokens).result.blocks;
        EXPECT_EQ(m.probe(joined(tokens, {9})), found * kSpan);
        hits += found;
        if (random() % 2 == 0) {
            quire_seq a = m.sequence();
            m.compute(a, tokens);
            m.end(a);
            continue;
        }
        m.begin();
        const Blocks own = take_places(&lease, count);
        const Answer named = lease.publish(tokens, own);
        EXPECT_EQ(named.status, QUIRE_OK) << m.message();
        give_places(&lease, own, named.ids);
        m.finish(m.commit());
        EXPECT_EQ(match(&lease, tokens).ids, named.ids);
        m.begin();
        give_places(&lease, named.ids, {});
        m.finish(m.commit());
    }
    EXPECT_GT(hits, 100u);
}

}  // namespace
