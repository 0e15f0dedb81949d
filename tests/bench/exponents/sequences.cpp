// SPDX-License-Identifier: Apache-2.0
//
// Sequences: created, forked, shortened, named, ended.

#include <algorithm>

#include "case.hpp"
#include "engine.hpp"

namespace quire::bench {

namespace {

constexpr uint32_t kCalls = 2000;  // of a function that is too short to time alone

uint32_t blocks_of(uint32_t tokens) { return tokens / kBlockTokens + 64; }

double fork(uint32_t tokens) {
    Engine engine(with(blocks_of(tokens)));
    quire_seq seq = engine.computed(prompt(1, tokens));
    double best = 1e9;
    for (int i = 0; i < 4; ++i) {
        quire_seq child = 0;
        best = std::min(best, seconds_of([&] { child = engine.fork(seq, tokens); }));
        engine.end(child);
    }
    return best;
}

double end(uint32_t tokens) {
    Engine engine(with(blocks_of(tokens)));
    engine.end(engine.computed(prompt(1, tokens)));
    quire_seq seq = engine.computed(prompt(1, tokens));
    return seconds_of([&] { engine.end(seq); });
}

double truncate(uint32_t tokens) {
    Engine engine(with(blocks_of(tokens)));
    quire_seq seq = engine.computed(prompt(1, tokens));
    return seconds_of([&] {
        engine.must(engine.api.seq_truncate(engine.cache, seq, tokens / 2, engine.error()));
    });
}

double truncate_a_token(uint32_t tokens) {
    Engine engine(with(blocks_of(tokens)));
    quire_seq seq = engine.computed(prompt(1, tokens));
    uint32_t calls = std::min(kCalls, tokens);
    return seconds_of([&] {
               for (uint32_t i = 1; i <= calls; ++i) {
                   engine.must(
                       engine.api.seq_truncate(engine.cache, seq, tokens - i, engine.error()));
               }
           }) /
           calls;
}

double accept(uint32_t tokens) {
    Engine engine(with(blocks_of(tokens + 2 * kCalls)));
    quire_seq seq = engine.computed(prompt(1, tokens));
    double seconds = 0;
    for (uint32_t i = 0; i < kCalls; ++i) {
        Items drafts;
        drafts.add(seq, prompt(i, 4));
        drafts.items[0].draft_count = 3;
        engine.run(drafts);
        seconds += seconds_of(
            [&] { engine.must(engine.api.seq_accept(engine.cache, seq, 1, engine.error())); });
    }
    return seconds / kCalls;
}

double create_and_end(uint32_t sequences) {
    Engine engine(with(64, sequences + 64));
    for (uint32_t i = 0; i < sequences; ++i) engine.create({});
    return seconds_of([&] {
               for (uint32_t i = 0; i < kCalls; ++i) engine.end(engine.create({}));
           }) /
           kCalls;
}

double create_with_spans(uint32_t spans) {
    Engine engine(with(64));
    std::vector<uint8_t> bytes(4096, 1);
    std::vector<quire_key> keys(spans);
    for (uint32_t i = 0; i < spans; ++i) {
        keys[i] = quire_key{QUIRE_KEY_MEDIA, 4096 - i, bytes.data(), 0, 100};
    }
    quire_seq_desc desc{};
    desc.keys = keys.data();
    desc.key_count = spans;
    desc.key_stride = sizeof keys[0];
    constexpr uint32_t calls = 50;
    engine.end(engine.create(desc));
    return seconds_of([&] {
               for (uint32_t i = 0; i < calls; ++i) engine.end(engine.create(desc));
           }) /
           calls;
}

// As asynchronous engines do: one token per sequence.
double set_tokens(uint32_t sequences) {
    Engine engine(with(2 * sequences + 64, sequences + 64));
    Items items;
    std::vector<quire_token_span> spans;
    std::vector<uint32_t> names(sequences, 7);
    for (uint32_t i = 0; i < sequences; ++i) {
        quire_seq seq = engine.create({});
        items.add(seq, {i, QUIRE_TOKEN_UNKNOWN});
        spans.push_back(quire_token_span{seq, 1, i, 1, 0});
    }
    engine.run(items);
    return seconds_of([&] {
        engine.must(engine.api.seq_set_tokens(engine.cache, spans.data(), sequences,
                                              sizeof spans[0], names.data(), sequences,
                                              engine.error()));
    });
}

}  // namespace

std::vector<Case> sequence_cases() {
    return {
        {"fork", "quire_seq_fork", "tokens", 1, 1 << 14, fork},
        {"seq_end", "quire_seq_end", "tokens", 1, 1 << 14, end},
        {"truncate", "quire_seq_truncate", "tokens given back", 1, 1 << 14, truncate},
        {"truncate_a_token", "quire_seq_truncate", "tokens that stay", 0, 1 << 14,
         truncate_a_token},
        {"accept", "quire_seq_accept", "known tokens", 0, 1 << 14, accept},
        {"seq_create_and_end", "quire_seq_create", "live sequences", 0, 1 << 13, create_and_end},
        {"seq_create_with_spans", "quire_seq_create", "spans of 4 KiB", 1, 8, create_with_spans},
        {"set_tokens", "quire_seq_set_tokens", "spans", 1, 1 << 8, set_tokens},
    };
}

}  // namespace quire::bench
