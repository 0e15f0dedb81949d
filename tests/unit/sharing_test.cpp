// SPDX-License-Identifier: Apache-2.0
//
// Which sequences find each other's prefixes, and which never may.

#include <cstring>

#include "manager.hpp"

namespace {

using namespace quire::test;

quire_key key(uint32_t type, const char *bytes, uint32_t begin = 0, uint32_t end = 0) {
    return quire_key{type, static_cast<uint32_t>(std::char_traits<char>::length(bytes)), bytes,
                     begin, end};
}

// Computes the tokens and ends the sequence, so that the prompt's full blocks are cached.
void cache_prompt(Manager *m, const Tokens &tokens, const SequenceOptions &options = {}) {
    quire_seq seq = m->sequence(options);
    m->compute(seq, tokens);
    m->end(seq);
}

TEST(Sharing, a_prompt_that_differs_in_one_token_of_its_second_block_hits_one_block) {
    Manager m;
    Tokens prompt = tokens_from(1, 13);
    cache_prompt(&m, prompt);
    EXPECT_EQ(m.compute(m.sequence(), prompt).hit_tokens, 12u);
    prompt[6] = 999;
    quire_step_result result = m.compute(m.sequence(), prompt);
    EXPECT_EQ(result.hit_tokens, 4u);
    EXPECT_EQ(result.first_position, 4u);
    EXPECT_EQ(result.compute_count, 9u);
}

TEST(Sharing, one_changed_token_in_the_last_matched_block_loses_that_block) {
    Manager m;
    Tokens prompt = tokens_from(1, 13);
    cache_prompt(&m, prompt);
    uint32_t hits = m.probe(prompt);
    for (uint32_t i = 8; i < 12; ++i) {
        Tokens other = prompt;
        ++other[i];
        EXPECT_EQ(m.probe(other), hits - 4) << "token " << i;
    }
}

TEST(Sharing, one_token_is_always_computed) {
    Manager m;
    cache_prompt(&m, tokens_from(1, 8));
    quire_step_result whole = m.compute(m.sequence(), tokens_from(1, 8));
    EXPECT_EQ(whole.hit_tokens, 4u);  // the block of the last token is never hit
    EXPECT_EQ(whole.compute_count, 4u);
    quire_step_result longer = m.compute(m.sequence(), tokens_from(1, 9));
    EXPECT_EQ(longer.hit_tokens, 8u);
    EXPECT_EQ(longer.compute_count, 1u);
}

TEST(Sharing, a_limited_item_finds_whole_blocks_up_to_its_limit_and_computes_the_rest) {
    Manager m;
    Tokens prompt = tokens_from(1, 13);
    cache_prompt(&m, prompt);
    const std::vector<std::pair<uint32_t, uint32_t>> cases = {
        {0, 12}, {1, 0}, {3, 0}, {4, 4}, {11, 8}, {12, 12}, {13, 12}, {QUIRE_NO_HITS, 0}};
    for (auto [limit, hits] : cases) {
        quire_seq seq = m.sequence();
        quire_step_result result = m.compute(seq, prompt, {.max_hits = limit});
        EXPECT_EQ(result.hit_tokens, hits) << "limit " << limit;
        EXPECT_EQ(result.first_position, hits) << "limit " << limit;
        EXPECT_EQ(result.compute_count, 13 - hits) << "limit " << limit;
        m.end(seq);
    }
    EXPECT_EQ(m.probe(prompt), 12u);  // what was computed twice is cached once
}

TEST(Sharing, an_item_that_waited_may_come_again_with_another_limit) {
    Manager m({.blocks = 7});
    Tokens prompt = tokens_from(1, 13);
    cache_prompt(&m, prompt);
    quire_seq large = m.sequence(), seq = m.sequence();
    m.compute(large, tokens_from(100, 13));
    m.begin();
    quire_step_result result = m.add(seq, prompt, {.max_hits = QUIRE_NO_HITS});
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    result = m.add(seq, prompt);
    EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_WAIT});
    m.abort();
    m.end(large);
    result = m.compute(seq, prompt, {.max_hits = 9});
    EXPECT_EQ(result.hit_tokens, 8u);
    EXPECT_EQ(result.compute_count, 5u);
}

TEST(Sharing, unknown_flags_of_an_item_are_refused) {
    Manager m;
    quire_step_item item{};
    item.seq = m.sequence();
    item.token_count = 1;
    item.flags = 7;
    quire_token token = 1;
    quire_step_result result{};
    m.begin();
    EXPECT_EQ(m.api().step_add(m.cache(), m.open(), &item, 1, sizeof item, &token, 1, &result,
                               sizeof result, m.error()),
              QUIRE_E_STRUCT);
    EXPECT_NE(m.message().find("flags 7 has a bit"), std::string::npos) << m.message();
    m.abort();
}

// What a program compiled with the headers of 0.1 sends.
TEST(Sharing, items_of_the_first_version_are_read_within_their_40_bytes) {
    Manager m;
    Tokens prompt = tokens_from(1, 13);
    cache_prompt(&m, prompt);
    constexpr uint32_t kFirst = 40;
    alignas(8) unsigned char items[2 * kFirst] = {};
    quire_step_item item{};
    for (uint32_t i = 0; i < 2; ++i) {
        item.seq = m.sequence();
        item.token_count = 13;
        std::memcpy(items + i * kFirst, &item, kFirst);
    }
    quire_step_result results[2] = {};
    m.begin();
    ASSERT_EQ(m.api().step_add(m.cache(), m.open(), reinterpret_cast<quire_step_item *>(items), 2,
                               kFirst, prompt.data(), 13, results, sizeof results[0], m.error()),
              QUIRE_OK)
        << m.message();
    for (const quire_step_result &result : results) EXPECT_EQ(result.hit_tokens, 12u);
    EXPECT_EQ(m.api().step_add(m.cache(), m.open(), reinterpret_cast<quire_step_item *>(items), 1,
                               32, prompt.data(), 13, results, sizeof results[0], m.error()),
              QUIRE_E_ARG);
    m.abort();
}

TEST(Sharing, a_partly_filled_block_is_not_found) {
    Manager m;
    cache_prompt(&m, tokens_from(1, 7));
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 4u);
}

TEST(Sharing, the_same_namespace_hits_and_another_does_not) {
    Manager m;
    quire_namespace one = m.name_space(), two = m.name_space();
    Tokens prompt = tokens_from(1, 9);
    cache_prompt(&m, prompt, {.ns = one});
    EXPECT_EQ(m.probe(prompt, {.ns = one}), 8u);
    EXPECT_EQ(m.probe(prompt, {.ns = two}), 0u);
    EXPECT_EQ(m.probe(prompt), 0u);
}

TEST(Sharing, a_namespace_that_was_destroyed_takes_its_prefixes_along) {
    Manager m;
    quire_namespace ns = m.name_space();
    cache_prompt(&m, tokens_from(1, 9), {.ns = ns});
    EXPECT_EQ(m.stats().blocks_cached, 2u);
    ASSERT_EQ(m.api().namespace_destroy(m.cache(), ns, m.error()), QUIRE_OK) << m.message();
    EXPECT_EQ(m.stats().blocks_cached, 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = m.name_space()}), 0u);
}

TEST(Sharing, the_same_adapter_hits_and_another_does_not) {
    Manager m;
    Tokens prompt = tokens_from(1, 9);
    cache_prompt(&m, prompt, {.keys = {key(QUIRE_KEY_ADAPTER, "french")}});
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_ADAPTER, "french")}}), 8u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_ADAPTER, "frencH")}}), 0u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_SALT, "french")}}), 0u);
    EXPECT_EQ(m.probe(prompt), 0u);
}

TEST(Sharing, the_same_salt_hits_and_another_does_not) {
    Manager m;
    Tokens prompt = tokens_from(1, 9);
    cache_prompt(&m, prompt, {.keys = {key(QUIRE_KEY_SALT, "a"), key(QUIRE_KEY_OTHER, "bc")}});
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_SALT, "a"), key(QUIRE_KEY_OTHER, "bc")}}),
              8u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_SALT, "ab"), key(QUIRE_KEY_OTHER, "c")}}),
              0u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_SALT, "a")}}), 0u);
}

TEST(Sharing, a_media_span_decides_the_blocks_of_its_tokens_and_those_behind) {
    Manager m;
    Tokens prompt = tokens_from(1, 17);
    cache_prompt(&m, prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 5, 7)}});
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 5, 7)}}), 16u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "dog", 5, 7)}}), 4u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 6, 7)}}), 4u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 9, 11)}}), 4u);
    EXPECT_EQ(m.probe(prompt), 4u);
}

TEST(Sharing, a_media_span_across_a_border_decides_both_blocks) {
    Manager m;
    Tokens prompt = tokens_from(1, 17);
    cache_prompt(&m, prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 6, 10)}});
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 6, 10)}}), 16u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 6, 9)}}), 4u);
    EXPECT_EQ(m.probe(prompt, {.keys = {key(QUIRE_KEY_MEDIA, "cat", 6, 8)}}), 4u);
}

TEST(Sharing, unknown_tokens_publish_only_when_they_are_named) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 3));
    m.compute(a, {QUIRE_TOKEN_UNKNOWN});
    EXPECT_EQ(m.probe(tokens_from(1, 5)), 0u);
    m.set_tokens(a, 3, {4});
    EXPECT_EQ(m.probe(tokens_from(1, 5)), 4u);
}

TEST(Sharing, lookup_stops_at_the_first_unknown_token) {
    Manager m;
    cache_prompt(&m, tokens_from(1, 12));
    Tokens prompt = tokens_from(1, 13);
    prompt[9] = QUIRE_TOKEN_UNKNOWN;
    EXPECT_EQ(m.compute(m.sequence(), prompt).hit_tokens, 8u);
}

TEST(Sharing, drafts_are_not_published_before_they_are_accepted) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 2));
    m.compute(a, tokens_from(3, 7), {.drafts = 5});  // known 9, the last 5 of them drafts
    EXPECT_EQ(m.probe(tokens_from(1, 10)), 4u);
    ASSERT_EQ(m.api().seq_accept(m.cache(), a, 4, m.error()), QUIRE_OK) << m.message();
    EXPECT_EQ(m.probe(tokens_from(1, 10)), 8u);
}

TEST(Sharing, two_that_compute_the_same_at_once_keep_their_blocks_and_one_is_published) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 6), {.max_compute = 2});
    m.add(b, tokens_from(1, 6), {.max_compute = 2});
    m.finish(m.commit());
    m.begin();
    m.add(a, {});
    m.add(b, {});
    m.finish(m.commit());
    EXPECT_NE(m.table(a)[0], m.table(b)[0]);
    EXPECT_EQ(m.stats().nodes, 1u);
    quire_seq c = m.sequence();
    EXPECT_EQ(m.compute(c, tokens_from(1, 5)).hit_tokens, 4u);
    EXPECT_EQ(m.table(c)[0], m.table(a)[0]);
}

TEST(Sharing, a_later_item_of_the_same_step_hits) {
    Manager m;
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin();
    m.add(a, tokens_from(1, 9));
    EXPECT_EQ(m.add(b, tokens_from(1, 9)).hit_tokens, 8u);
    m.finish(m.commit());
    EXPECT_EQ(m.stats().blocks_held, 4u);
}

TEST(Sharing, a_cache_without_prefixes_finds_nothing) {
    Manager m({.flags = QUIRE_CACHE_NO_PREFIX});
    cache_prompt(&m, tokens_from(1, 9));
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 0u);
    EXPECT_EQ(m.stats().blocks_cached, 0u);
}

TEST(Sharing, a_reset_forgets_what_was_published_and_what_is_built_on_it) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 9));
    cache_prompt(&m, tokens_from(100, 9));
    ASSERT_EQ(m.api().cache_reset(m.cache(), m.error()), QUIRE_OK);
    EXPECT_EQ(m.stats().nodes, 0u);
    EXPECT_EQ(m.stats().blocks_cached, 0u);
    EXPECT_EQ(m.probe(tokens_from(100, 9)), 0u);
    m.compute(a, tokens_from(10, 4));  // still served, never found
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 0u);
    EXPECT_NE(m.info(a).flags & QUIRE_SEQ_UNPUBLISHED, 0u);
    cache_prompt(&m, tokens_from(1, 9));  // computed anew
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST(Sharing, end_with_drop_prefix_forgets_what_nobody_else_uses) {
    Manager m;
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 13));
    quire_seq b = m.sequence();
    m.compute(b, joined(tokens_from(1, 8), tokens_from(500, 1)));
    m.end(a, QUIRE_END_DROP_PREFIX);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 8u);
    m.end(b, QUIRE_END_DROP_PREFIX);
    EXPECT_EQ(m.probe(tokens_from(1, 13)), 0u);
    EXPECT_EQ(m.stats().blocks_cached, 0u);
}

TEST(Sharing, end_with_drop_prefix_forgets_what_left_the_window) {
    Manager m({.groups = {{6}}});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 8));
    m.compute(a, tokens_from(9, 9));
    quire_seq b = m.sequence();
    m.compute(b, joined(tokens_from(1, 8), tokens_from(500, 1)));
    m.compute(b, tokens_from(501, 8));
    ASSERT_EQ(m.probe(tokens_from(1, 9)), 8u);
    m.end(a, QUIRE_END_DROP_PREFIX);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 0u);
    Tokens of_b = joined(tokens_from(1, 8), tokens_from(500, 10));
    EXPECT_EQ(m.probe(of_b), 16u) << "published after what a dropped";
    m.end(b, QUIRE_END_DROP_PREFIX);
    EXPECT_EQ(m.probe(of_b), 0u);
    EXPECT_EQ(m.stats().blocks_cached, 0u);
    EXPECT_EQ(m.stats().nodes, 0u);
}

TEST(Sharing, end_with_drop_prefix_forgets_what_a_preempted_sequence_published) {
    for (uint32_t how : {QUIRE_PREEMPT_SWAP, QUIRE_PREEMPT_RECOMPUTE}) {
        Manager m({.host_blocks = 8});
        quire_seq a = m.sequence();
        m.compute(a, tokens_from(1, 13));
        m.begin();
        uint32_t freed = 0;
        ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), a, how, &freed, m.error()), QUIRE_OK);
        m.finish(m.commit());
        ASSERT_EQ(m.probe(tokens_from(1, 13)), 12u);
        m.end(a, QUIRE_END_DROP_PREFIX);
        EXPECT_EQ(m.probe(tokens_from(1, 13)), 0u) << how;
        EXPECT_EQ(m.stats().blocks_cached, 0u);
    }
}

TEST(Sharing, queries_and_hits_are_counted_in_tokens) {
    Manager m;
    cache_prompt(&m, tokens_from(1, 9));
    cache_prompt(&m, tokens_from(1, 9));
    EXPECT_EQ(m.stats().prefix_cache_queries, 16u);
    EXPECT_EQ(m.stats().prefix_cache_hits, 8u);
}

// More roots than their first hash table has buckets; they come and go.
TEST(Sharing, thousands_of_salts_are_told_apart) {
    constexpr uint32_t salts = 3000;
    Manager m({.blocks = salts + 8});
    auto key_of = [](const uint32_t &salt) {
        return quire_key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
    };
    auto run = [&](uint32_t salt) {
        auto desc = described<quire_seq_desc>();
        quire_key key = key_of(salt);
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
        quire_step_item item{};
        ASSERT_EQ(m.api().seq_create(m.cache(), &desc, &item.seq, m.error()), QUIRE_OK);
        Tokens tokens = tokens_from(1, 5);
        item.token_count = 5;
        quire_step_result result{};
        auto step_desc = described<quire_step_desc>();
        quire_step step = 0;
        ASSERT_EQ(m.api().step_begin(m.cache(), &step_desc, &item, 1, sizeof item, tokens.data(), 5,
                                     &result, sizeof result, &step, m.error()),
                  QUIRE_OK);
        EXPECT_EQ(result.hit_tokens, 0u) << salt;
        ASSERT_EQ(m.api().step_commit(m.cache(), step, nullptr, m.error()), QUIRE_OK);
        ASSERT_EQ(m.api().step_finish(m.cache(), step, nullptr, QUIRE_STEP_OK, m.error()),
                  QUIRE_OK);
        ASSERT_EQ(m.api().seq_end(m.cache(), item.seq, 0, m.error()), QUIRE_OK);
    };
    for (uint32_t salt = 0; salt < 2 * salts; ++salt) run(salt);  // the second half evicts
    m.check();
    uint32_t found = 0;
    for (uint32_t salt = salts; salt < 2 * salts; salt += 97) {
        EXPECT_EQ(m.probe(tokens_from(1, 5), {.keys = {key_of(salt)}}), 4u) << salt;
        ++found;
    }
    EXPECT_GT(found, 20u);
}

}  // namespace
