// SPDX-License-Identifier: Apache-2.0
//
// The host memory that keys take: once for all blocks and sequences, within the namespace's limit,
// and only for as long as something needs them.

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint64_t kList = 64 + 64;  // of keys, or of up to five spans, as cache.h counts it

uint64_t span_key_bytes(uint32_t size_bytes) {
    uint64_t words = 8 + (size_bytes + 3) / 4 * 4;
    return 32 + (words > 64 ? words : 64);
}

const std::string kBytes(4096, 'p');

quire_key picture(uint32_t begin, uint32_t end, uint32_t size_bytes = 4096) {
    return quire_key{QUIRE_KEY_MEDIA, size_bytes, kBytes.data(), begin, end};
}

quire_key salt(const std::string &text) {
    return quire_key{QUIRE_KEY_SALT, static_cast<uint32_t>(text.size()), text.data(), 0, 0};
}

quire_status try_create(Manager *m, const SequenceOptions &options, quire_seq *out) {
    auto desc = described<quire_seq_desc>();
    desc.ns = options.ns;
    desc.keys = options.keys.data();
    desc.key_count = static_cast<uint32_t>(options.keys.size());
    desc.key_stride = sizeof(quire_key);
    quire_status status = m->api().seq_create(m->cache(), &desc, out, m->error());
    if (status == QUIRE_OK) m->adopt(*out);
    return status;
}

TEST(Keys, spans_over_many_blocks_cost_what_they_cost_over_one) {
    Manager m({.blocks = 1100});
    quire_namespace ns = m.name_space();
    std::vector<quire_key> keys;
    for (uint32_t i = 0; i < 64; ++i) keys.push_back(picture(0, 4000, 4096 - 4 * i));
    quire_seq a = m.sequence({.ns = ns, .keys = keys});
    uint64_t expected = kList + 64 + 64 * 12;
    for (const quire_key &key : keys) expected += span_key_bytes(key.size_bytes);
    EXPECT_EQ(m.info_of(ns).key_bytes, expected);
    EXPECT_EQ(m.info_of(ns).key_bytes_limit, uint64_t{256} << 20);
    m.compute(a, tokens_from(1, 4000));
    EXPECT_EQ(m.info_of(ns).key_bytes, expected);
    quire_seq b = m.fork(a, 3999);
    quire_seq c = m.sequence({.ns = ns, .keys = keys});
    EXPECT_EQ(m.compute(c, tokens_from(1, 4000)).hit_tokens, 3996u);
    EXPECT_EQ(m.info_of(ns).key_bytes, expected);
    for (quire_seq s : {a, b, c}) m.end(s);
    EXPECT_EQ(m.info_of(ns).key_bytes, expected) << "cached blocks need them";
    quire_seq other = m.sequence();
    m.compute(other, tokens_from(1, 4400));
    EXPECT_EQ(m.info_of(ns).key_bytes, 0u) << "all were evicted";
}

TEST(Keys, a_key_of_many_spans_and_lists_is_stored_once) {
    Manager m;
    quire_namespace ns = m.name_space(), other = m.name_space();
    m.sequence({.ns = ns, .keys = {picture(0, 4), picture(8, 12)}});
    EXPECT_EQ(m.info_of(ns).key_bytes, 2 * kList + span_key_bytes(4096));
    m.sequence({.ns = ns, .keys = {picture(0, 4)}});
    EXPECT_EQ(m.info_of(ns).key_bytes, 3 * kList + span_key_bytes(4096));
    m.sequence({.ns = ns, .keys = {picture(0, 4), salt("a")}});
    EXPECT_EQ(m.info_of(ns).key_bytes, 5 * kList + span_key_bytes(4096));
    EXPECT_EQ(m.info_of(other).key_bytes, 0u);
    m.sequence({.ns = other, .keys = {picture(0, 4)}});
    EXPECT_EQ(m.info_of(other).key_bytes, 2 * kList + span_key_bytes(4096))
        << "shared with no other namespace";
}

TEST(Keys, an_earlier_turn_is_found_by_one_with_more_pictures) {
    Manager m;
    quire_seq a = m.sequence({.keys = {picture(0, 6, 100)}});
    m.compute(a, tokens_from(1, 12));
    m.end(a);
    Tokens turn = tokens_from(1, 24);
    EXPECT_EQ(m.probe(turn, {.keys = {picture(0, 6, 100), picture(13, 20, 50)}}), 12u);
    EXPECT_EQ(m.probe(turn, {.keys = {picture(0, 6, 100), picture(11, 20, 50)}}), 8u);
    EXPECT_EQ(m.probe(turn, {.keys = {picture(0, 6, 99)}}), 0u);
    EXPECT_EQ(m.probe(turn, {.keys = {picture(0, 7, 100)}}), 0u) << "another end";
    EXPECT_EQ(m.probe(turn), 0u);
    quire_seq b = m.sequence({.keys = {picture(0, 6, 100), picture(13, 20, 50)}});
    EXPECT_EQ(m.compute(b, turn).hit_tokens, 12u);
    m.end(b);
    EXPECT_EQ(m.probe(tokens_from(1, 24), {.keys = {picture(0, 6, 100), picture(13, 20, 50)}}),
              20u);
}

TEST(Keys, a_list_past_the_limit_is_refused_in_words_and_nothing_changes) {
    Manager m;
    quire_namespace ns = m.name_space(0, 5000);
    quire_seq a = m.sequence({.ns = ns, .keys = {picture(0, 4, 1000)}});
    m.compute(a, tokens_from(1, 9));
    std::string before = m.books();
    uint64_t used = m.info_of(ns).key_bytes;
    quire_seq out = 0;
    EXPECT_EQ(try_create(&m, {.ns = ns, .keys = {picture(0, 4, 4000)}}, &out), QUIRE_E_LIMIT);
    EXPECT_NE(m.message().find("5000"), std::string::npos) << m.message();
    EXPECT_NE(m.message().find("key_bytes"), std::string::npos) << m.message();
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(m.info_of(ns).key_bytes, used);
    EXPECT_EQ(m.info_of(ns).sequences, 1u);
    m.check();
    EXPECT_EQ(try_create(&m, {.ns = ns, .keys = {picture(0, 4, 2000)}}, &out), QUIRE_OK);
    EXPECT_EQ(try_create(&m, {.keys = {picture(0, 4, 4000)}}, &out), QUIRE_OK)
        << "the default namespace has a limit of its own";
}

TEST(Keys, cached_prefixes_give_way_to_new_keys_the_longest_unused_first) {
    Manager m({.blocks = 100});
    quire_namespace ns = m.name_space(0, 10 * kList);
    std::string texts[9];
    for (uint32_t i = 0; i < 9; ++i) texts[i] = "user " + std::to_string(i);
    for (uint32_t i = 0; i < 9; ++i) {
        quire_seq a = m.sequence({.ns = ns, .keys = {salt(texts[i])}});
        m.compute(a, tokens_from(1, 9));
        m.end(a);
    }
    EXPECT_EQ(m.info_of(ns).key_bytes, 9 * kList);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = ns, .keys = {salt(texts[0])}}), 8u);
    uint64_t cached = m.stats().blocks_cached;
    quire_seq b = m.sequence({.ns = ns, .keys = {picture(0, 4, 10)}});  // three more entries
    EXPECT_LE(m.info_of(ns).key_bytes, 10 * kList);
    EXPECT_EQ(m.stats().blocks_cached, cached - 4) << "two users'";
    m.check();
    m.end(b);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = ns, .keys = {salt(texts[0])}}), 8u)
        << "was used last";
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = ns, .keys = {salt(texts[1])}}), 0u);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = ns, .keys = {salt(texts[8])}}), 8u);
}

TEST(Keys, content_without_keys_does_not_give_way_in_the_default_namespace) {
    Manager m({.key_bytes = 2 * kList});
    for (const char *text : {"", "a", "b"}) {
        std::vector<quire_key> keys;
        std::string words = text;
        if (!words.empty()) keys.push_back(salt(words));
        quire_seq a = m.sequence({.keys = keys});
        EXPECT_EQ(m.compute(a, tokens_from(1, 9)).hit_tokens, 0u);
        m.end(a);
    }
    EXPECT_EQ(m.info_of(0).key_bytes, 2 * kList);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.keys = {salt("b")}}), 8u);
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.keys = {salt("a")}}), 0u);
    quire_seq out = 0;
    EXPECT_EQ(try_create(&m, {.keys = {picture(0, 4, 10)}}, &out), QUIRE_E_LIMIT);
    EXPECT_EQ(m.probe(tokens_from(1, 9)), 8u);
}

TEST(Keys, what_an_open_step_uses_does_not_give_way) {
    Manager m({.blocks = 100});
    quire_namespace ns = m.name_space(0, 4 * kList + 2 * span_key_bytes(100));
    quire_seq a = m.sequence({.ns = ns, .keys = {picture(0, 4, 100)}});
    m.compute(a, tokens_from(1, 9));
    m.end(a);
    // Finds the block under the first list, which no sequence uses any more.
    quire_seq b = m.sequence({.ns = ns, .keys = {picture(0, 4, 100), picture(9, 12, 99)}});
    uint64_t full = m.info_of(ns).key_bytes;
    m.begin();
    EXPECT_EQ(m.add(b, tokens_from(1, 17)).hit_tokens, 8u);
    quire_seq out = 0;
    EXPECT_EQ(try_create(&m, {.ns = ns, .keys = {salt("x"), picture(0, 2, 98)}}, &out),
              QUIRE_E_LIMIT);
    EXPECT_EQ(m.info_of(ns).key_bytes, full);
    m.abort();
    m.check();
    EXPECT_EQ(m.probe(tokens_from(1, 9), {.ns = ns, .keys = {picture(0, 4, 100)}}), 8u);
    m.end(b);
    EXPECT_EQ(try_create(&m, {.ns = ns, .keys = {salt("x"), picture(0, 2, 98)}}, &out), QUIRE_OK);
    EXPECT_LE(m.info_of(ns).key_bytes, 4 * kList + 2 * span_key_bytes(100));
    m.check();
}

TEST(Keys, a_victim_whose_block_gave_way_has_it_back_after_an_abort) {
    Manager m({.blocks = 100});
    quire_namespace ns = m.name_space(0, 4 * kList + 2 * span_key_bytes(100) - kList);
    quire_seq a = m.sequence({.ns = ns, .keys = {picture(0, 4, 100)}});
    m.compute(a, tokens_from(1, 9));
    quire_seq b = m.sequence({.ns = ns, .keys = {picture(0, 4, 100), picture(9, 12, 99)}});
    EXPECT_EQ(m.compute(b, tokens_from(1, 17)).hit_tokens, 8u);
    m.end(a);
    Blocks table = m.table(b);
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), b, QUIRE_PREEMPT_RECOMPUTE, &freed, m.error()),
        QUIRE_OK);
    quire_seq out = 0;
    EXPECT_EQ(try_create(&m, {.ns = ns, .keys = {salt("y")}}, &out), QUIRE_OK) << m.message();
    m.abort();
    m.check();
    EXPECT_EQ(m.table(b), table);
    EXPECT_EQ(m.info(b).computed_tokens, 17u);
    m.compute(b, tokens_from(18, 10));
    m.end(b);
}

}  // namespace
