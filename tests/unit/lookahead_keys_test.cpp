// SPDX-License-Identifier: Apache-2.0
//
// Blocks whose content depends on the tokens after them, as the guide tells an engine to name them:
// the library's token at place p is the engine's at p + lookahead, and the engine's first tokens
// are a key.

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kLookahead = 2, kBlock = 4;
constexpr uint32_t kUnknown = QUIRE_TOKEN_UNKNOWN;

// A sequence of an engine's tokens. A token that is not known yet is unknown at its place.
struct Shifted {
    Manager &m;
    Tokens tokens;  // the engine's
    quire_seq seq;

    Shifted(Manager *manager, Tokens all) : m(*manager), tokens(std::move(all)) {
        seq = m.sequence({.keys = {head(tokens)}});
    }
    static quire_key head(const Tokens &tokens) {
        quire_key key{};
        key.type = QUIRE_KEY_OTHER;
        key.bytes = tokens.data();
        key.size_bytes = kLookahead * sizeof(uint32_t);
        return key;
    }
    static Tokens named(const Tokens &tokens) {
        Tokens out(tokens.begin() + kLookahead, tokens.end());
        out.resize(tokens.size(), kUnknown);
        return out;
    }
    uint32_t compute() { return m.compute(seq, named(tokens)).hit_tokens; }
    // Computes a token that was sampled; it is what the last unknown ones wait for.
    void decode(uint32_t token) {
        const auto at = static_cast<uint32_t>(tokens.size()) - kLookahead;
        tokens.push_back(token);
        m.set_tokens(seq, at, {token});
        m.compute(seq, {kUnknown});
    }
};

uint32_t hits(Manager &m, const Tokens &tokens) {
    return m.probe(Shifted::named(tokens), {.keys = {Shifted::head(tokens)}});
}

Manager &filled(Manager &m) {
    Shifted a(&m, tokens_from(1, 14));
    EXPECT_EQ(a.compute(), 0u);
    m.end(a.seq);
    return m;
}

TEST(LookaheadKeys, a_block_is_found_if_the_tokens_after_it_agree_too) {
    Manager m;
    filled(m);
    EXPECT_EQ(hits(m, tokens_from(1, 14)), 12u);
    Tokens other = tokens_from(1, 14);
    other[9] = 77;  // the second one after the second block
    EXPECT_EQ(hits(m, other), 4u);
    other = tokens_from(1, 14);
    other[10] = 77;  // after what the second block depends on
    EXPECT_EQ(hits(m, other), 8u);
    other = tokens_from(1, 14);
    other[0] = 77;
    EXPECT_EQ(hits(m, other), 0u);
}

TEST(LookaheadKeys, a_block_is_cached_when_the_tokens_after_it_are_sampled) {
    Manager m;
    Shifted a(&m, tokens_from(1, 8));
    a.compute();
    EXPECT_EQ(hits(m, tokens_from(1, 20)), 4u);
    a.decode(9);
    EXPECT_EQ(hits(m, tokens_from(1, 20)), 4u);
    a.decode(10);
    EXPECT_EQ(hits(m, tokens_from(1, 20)), 8u);
    Tokens other = tokens_from(1, 20);
    other[9] = 77;
    EXPECT_EQ(hits(m, other), 4u);
}

}  // namespace
