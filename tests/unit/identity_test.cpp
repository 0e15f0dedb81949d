// SPDX-License-Identifier: Apache-2.0
//
// Two sequences share a block exactly if their K and V there are the same: all short lists of keys,
// spans and tokens, in several namespaces, tried through the C ABI.
//
// Every sequence has two full blocks, of two tokens each. A name is written for the content of each
// block, from what sequence.h says decides it. Then blocks and names must correspond one to one.

#include <map>
#include <string>
#include <utility>

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlockTokens = 2, kFull = 2;

struct Identity {
    quire_namespace ns = 0;
    std::vector<quire_key> keys = {};
    Tokens tokens = {};
};

std::string text_of(const quire_key &key) {
    return std::to_string(key.type) + "[" + std::to_string(key.size_bytes) + "]" +
           std::string(static_cast<const char *>(key.bytes), key.size_bytes);
}

// What decides K and V of a sequence's first `tokens` tokens. A span that begins among them counts
// whole: a picture of more placeholder tokens is another picture.
std::string name_of(const Identity &identity, uint32_t tokens) {
    std::string name = std::to_string(identity.ns) + "|";
    for (const quire_key &key : identity.keys) {
        if (key.end == 0) name += text_of(key) + ",";
    }
    name += "|";
    for (const quire_key &key : identity.keys) {
        if (key.end == 0 || key.begin >= tokens) continue;
        std::string place = std::to_string(key.begin) + "-" + std::to_string(key.end);
        name += text_of(key) + "@" + place + ",";
        text_of(key) + "@" + std::to_string(key.begin) + "-" + std::to_string(key.end) + ",";
    }
    name += "|";
    for (uint32_t i = 0; i < tokens; ++i) name += std::to_string(identity.tokens[i]) + ",";
    return name;
}

// Computes each identity's sequence, and then each of them again.
void expect_one_block_for_each_content(Manager *m, const std::vector<Identity> &identities) {
    std::map<std::string, int32_t> block_of;
    std::map<int32_t, std::string> content_of;
    for (int round = 0; round < 2; ++round) {
        for (const Identity &identity : identities) {
            quire_seq seq = m->sequence({.ns = identity.ns, .keys = identity.keys});
            m->compute(seq, identity.tokens);
            Blocks blocks = m->table(seq);
            for (uint32_t i = 0; i < kFull; ++i) {
                std::string name = name_of(identity, (i + 1) * kBlockTokens);
                ASSERT_EQ(block_of.emplace(name, blocks[i]).first->second, blocks[i]) << name;
                ASSERT_EQ(content_of.emplace(blocks[i], name).first->second, name);
            }
            m->end(seq);
        }
    }
    EXPECT_EQ(m->stats().evictions, 0u) << "the pool was too small for this test";
}

const char *const kTexts[] = {"", "a", "b", "ab"};

quire_key key_of(uint32_t type, const char *text, uint32_t begin = 0, uint32_t end = 0) {
    return quire_key{type, static_cast<uint32_t>(std::string(text).size()), text, begin, end};
}

// All lists of up to two whole-sequence keys.
std::vector<std::vector<quire_key>> key_lists() {
    std::vector<quire_key> keys;
    for (uint32_t type : {QUIRE_KEY_ADAPTER, QUIRE_KEY_SALT, QUIRE_KEY_MEDIA, QUIRE_KEY_OTHER}) {
        for (const char *text : kTexts) keys.push_back(key_of(type, text));
    }
    std::vector<std::vector<quire_key>> lists = {{}};
    for (const quire_key &a : keys) {
        lists.push_back({a});
        for (const quire_key &b : keys) lists.push_back({a, b});
    }
    return lists;
}

// All lists of up to two spans over the first five tokens, which the full blocks' four are.
std::vector<std::vector<quire_key>> span_lists() {
    std::vector<quire_key> spans;
    for (uint32_t begin = 0; begin < 5; ++begin) {
        for (uint32_t end = begin + 1; end <= 5; ++end) {
            for (const char *text : {"a", "b"}) {
                spans.push_back(key_of(QUIRE_KEY_MEDIA, text, begin, end));
            }
        }
    }
    std::vector<std::vector<quire_key>> lists = {{}};
    for (const quire_key &a : spans) {
        lists.push_back({a});
        for (const quire_key &b : spans) {
            if (a.end <= b.begin) lists.push_back({a, b});
        }
    }
    return lists;
}

TEST(Identity, every_namespace_and_list_of_keys_has_blocks_of_its_own) {
    std::vector<std::vector<quire_key>> lists = key_lists();
    Manager m({.blocks = static_cast<uint32_t>(3 * lists.size() * kFull + 8),
               .block_tokens = kBlockTokens});
    std::vector<Identity> identities;
    for (quire_namespace ns : {quire_namespace{0}, m.name_space(), m.name_space()}) {
        for (const std::vector<quire_key> &list : lists) {
            identities.push_back({ns, list, {1, 1, 1, 1, 1}});
        }
    }
    expect_one_block_for_each_content(&m, identities);
}

TEST(Identity, every_list_of_spans_has_blocks_of_its_own) {
    std::vector<std::vector<quire_key>> lists = span_lists();
    Manager m(
        {.blocks = static_cast<uint32_t>(lists.size() * kFull + 8), .block_tokens = kBlockTokens});
    std::vector<Identity> identities;
    for (const std::vector<quire_key> &list : lists) {
        identities.push_back({0, list, {1, 1, 1, 1, 1}});
    }
    expect_one_block_for_each_content(&m, identities);
}

TEST(Identity, every_string_of_tokens_has_blocks_of_its_own) {
    Manager m({.blocks = 300, .block_tokens = kBlockTokens});
    std::vector<Identity> identities;
    for (uint32_t bits = 0; bits < 16; ++bits) {
        Tokens tokens = {bits & 1, bits >> 1 & 1, bits >> 2 & 1, bits >> 3 & 1, 0};
        for (const std::vector<quire_key> &list : {std::vector<quire_key>{},
                                                   {key_of(QUIRE_KEY_MEDIA, "a", 1, 2)},
                                                   {key_of(QUIRE_KEY_MEDIA, "a", 2, 3)},
                                                   {key_of(QUIRE_KEY_SALT, "a")}}) {
            identities.push_back({0, list, tokens});
        }
    }
    expect_one_block_for_each_content(&m, identities);
}

// A whole-sequence key, a span over all tokens, and tokens that look like its bytes.
TEST(Identity, a_key_a_span_and_tokens_of_the_same_bytes_are_told_apart) {
    Manager m({.blocks = 64, .block_tokens = kBlockTokens});
    const uint32_t word = 'a' | 'a' << 8 | 'a' << 16 | 'a' << 24;
    quire_namespace ns = m.name_space();
    std::vector<Identity> identities;
    for (const std::vector<quire_key> &keys :
         {std::vector<quire_key>{},
          {key_of(QUIRE_KEY_MEDIA, "aaaa")},
          {key_of(QUIRE_KEY_MEDIA, "aaaa", 0, 5)},
          {key_of(QUIRE_KEY_MEDIA, "aaaa"), key_of(QUIRE_KEY_MEDIA, "aaaa", 0, 5)}}) {
        for (quire_namespace of : {quire_namespace{0}, ns}) {
            identities.push_back({of, keys, {word, word, word, word, 0}});
        }
    }
    expect_one_block_for_each_content(&m, identities);
}

}  // namespace
