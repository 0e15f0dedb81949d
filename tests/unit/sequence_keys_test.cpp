// SPDX-License-Identifier: Apache-2.0
//
// sequence_keys: no two different inputs have the same encoding, tried on all short lists.

#include "core/steps/sequence_keys.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "host.hpp"

namespace {

using namespace quire;

using Words = std::vector<uint32_t>;

const char *const kTexts[] = {"", "a", "\0", "ab", "abcd", "abcde"};
const uint32_t kLengths[] = {0, 1, 1, 2, 4, 5};

// Whole-sequence keys of two types with every text.
std::vector<quire_key> all_keys() {
    std::vector<quire_key> keys;
    for (uint32_t type : {QUIRE_KEY_ADAPTER, QUIRE_KEY_SALT}) {
        for (size_t t = 0; t < 6; ++t) {
            keys.push_back(quire_key{type, kLengths[t], kTexts[t], 0, 0});
        }
    }
    return keys;
}

std::string described(const quire_key *keys, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) {
        const char *bytes = static_cast<const char *>(keys[i].bytes);
        out += std::to_string(keys[i].type) + "'" + std::string(bytes, keys[i].size_bytes) + "' ";
    }
    return out;
}

// Calls visit with every list of up to two keys.
template <typename Visit>
void for_all_lists(Visit visit) {
    std::vector<quire_key> keys = all_keys();
    visit(keys.data(), uint32_t{0});
    for (const quire_key &a : keys) {
        visit(&a, uint32_t{1});
        for (const quire_key &b : keys) {
            quire_key both[] = {a, b};
            visit(both, uint32_t{2});
        }
    }
}

TEST(SequenceKeys, no_two_lists_of_whole_sequence_keys_encode_alike) {
    std::map<Words, std::string> seen;
    for_all_lists([&](const quire_key *keys, uint32_t count) {
        Array<uint32_t> out(test::host());
        EXPECT_TRUE(encode_root(7, keys, count, &out));
        std::string name = described(keys, count);
        auto [it, fresh] = seen.emplace(Words(out.begin(), out.end()), name);
        EXPECT_TRUE(fresh) << name << " encodes as " << it->second;
    });
}

TEST(SequenceKeys, no_two_keys_encode_alike) {
    std::map<Words, std::string> seen;
    for (const quire_key &key : all_keys()) {
        Array<uint32_t> out(test::host());
        EXPECT_TRUE(encode_key(key, &out));
        auto [it, fresh] = seen.emplace(Words(out.begin(), out.end()), described(&key, 1));
        EXPECT_TRUE(fresh) << described(&key, 1) << " encodes as " << it->second;
    }
}

TEST(SequenceKeys, namespaces_encode_differently) {
    Array<uint32_t> one(test::host()), two(test::host());
    ASSERT_TRUE(encode_root(1, nullptr, 0, &one));
    ASSERT_TRUE(encode_root(2, nullptr, 0, &two));
    EXPECT_NE(Words(one.begin(), one.end()), Words(two.begin(), two.end()));
}

TEST(SequenceKeys, spans_do_not_count_as_whole_sequence_keys) {
    quire_key span{QUIRE_KEY_MEDIA, 1, "a", 3, 5};
    Array<uint32_t> with(test::host()), without(test::host());
    ASSERT_TRUE(encode_root(1, &span, 1, &with));
    ASSERT_TRUE(encode_root(1, nullptr, 0, &without));
    EXPECT_EQ(Words(with.begin(), with.end()), Words(without.begin(), without.end()));
}

}  // namespace
