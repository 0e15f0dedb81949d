// SPDX-License-Identifier: Apache-2.0
//
// Prefixes: found, evicted and forgotten, and the keys above them.

#include <string>

#include "case.hpp"
#include "engine.hpp"

namespace quire::bench {

namespace {

// Caches `blocks` blocks of a namespace, with sequences of 64 blocks.
void fill(Engine *engine, quire_namespace ns, uint32_t blocks, uint32_t first) {
    constexpr uint32_t length = 64;
    quire_seq_desc desc{};
    desc.ns = ns;
    for (uint32_t i = 0; i < blocks; i += length) {
        uint32_t count = blocks - i < length ? blocks - i : length;
        engine->end(engine->computed(prompt(first + i, count * kBlockTokens), &desc));
    }
}

double found(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    std::vector<uint32_t> words = prompt(1, tokens);
    for (int i = 0; i < 2; ++i) engine.end(engine.computed(words));
    Items items;
    items.add(engine.create({}), words);
    return seconds_of([&] { engine.run(items); });
}

double probe(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    std::vector<uint32_t> words = prompt(1, tokens);
    engine.end(engine.computed(words));
    quire_seq seq = engine.create({});
    uint32_t hits = 0;
    double seconds = 0;
    for (int i = 0; i < 2; ++i) {
        seconds = seconds_of([&] {
            engine.must(engine.api.prefix_probe(engine.cache, seq, words.data(), tokens, &hits,
                                                engine.error()));
        });
    }
    return seconds;
}

double evict(uint32_t blocks) {
    Engine engine(with(blocks + 1));
    fill(&engine, 0, blocks, 1);
    engine.end(engine.computed(prompt(1u << 29, blocks * kBlockTokens)));
    Items items;
    items.add(engine.create({}), prompt(1u << 30, blocks * kBlockTokens));
    return seconds_of([&] { engine.run(items); });
}

double reset(uint32_t blocks) {
    Engine engine(with(blocks + 1));
    fill(&engine, 0, blocks, 1);
    return seconds_of([&] { engine.must(engine.api.cache_reset(engine.cache, engine.error())); });
}

double destroy_full(uint32_t blocks) {
    Engine engine(with(2 * blocks + 64));
    quire_namespace ns = engine.name_space();
    fill(&engine, ns, blocks, 1);
    fill(&engine, 0, blocks, 1);
    return seconds_of([&] { engine.destroy(ns); });
}

// Other namespaces' blocks, and the size of the pool, do not count.
double destroy_small(uint32_t blocks) {
    constexpr uint32_t count = 32;
    Engine engine(with(blocks + count + 64));
    quire_namespace spaces[count];
    for (quire_namespace &ns : spaces) {
        ns = engine.name_space();
        fill(&engine, ns, 1, 1);
    }
    fill(&engine, 0, blocks, 1);
    return seconds_of([&] {
               for (quire_namespace ns : spaces) engine.destroy(ns);
           }) /
           count;
}

double create_namespace(uint32_t alive) {
    constexpr uint32_t calls = 1000;
    Engine engine(with(64));
    for (uint32_t i = 0; i < alive; ++i) engine.name_space();
    return seconds_of([&] {
               for (uint32_t i = 0; i < calls; ++i) engine.name_space();
           }) /
           calls;
}

// A request with a salt of its own, while `salts` others have their content cached.
double request_with_salt(uint32_t salts) {
    constexpr uint32_t calls = 2000;
    Engine engine(with(salts + calls + 64));
    quire_namespace ns = engine.name_space();
    std::vector<uint32_t> tokens = prompt(1, kBlockTokens);
    auto request = [&](uint32_t number) {
        std::string salt = std::to_string(number);
        quire_key key{QUIRE_KEY_SALT, static_cast<uint32_t>(salt.size()), salt.data(), 0, 0};
        quire_seq_desc desc{};
        desc.ns = ns;
        desc.keys = &key;
        desc.key_count = 1;
        desc.key_stride = sizeof key;
        engine.end(engine.computed(tokens, &desc));
    };
    for (uint32_t i = 0; i < salts; ++i) request(i);
    return seconds_of([&] {
               for (uint32_t i = 0; i < calls; ++i) request(salts + i);
           }) /
           calls;
}

double prefill_with_spans(uint32_t tokens) {
    Engine engine(with(tokens / kBlockTokens + 64));
    std::vector<uint8_t> bytes(4096, 1);
    std::vector<quire_key> keys(64);
    for (uint32_t i = 0; i < 64; ++i) {
        keys[i] = quire_key{QUIRE_KEY_MEDIA, 4096 - i, bytes.data(), 0, tokens};
    }
    quire_seq_desc desc{};
    desc.keys = keys.data();
    desc.key_count = 64;
    desc.key_stride = sizeof keys[0];
    engine.end(engine.computed(prompt(1, tokens), &desc), QUIRE_END_DROP_PREFIX);
    Items items;
    items.add(engine.create(desc), prompt(1, tokens));
    return seconds_of([&] { engine.run(items); });
}

// One sequence, many times longer than the pool: the tree makes room for its nodes again and again.
double windows_alone(uint32_t tokens) {
    constexpr uint32_t chunk = 512;
    Shape shape = with(256);
    shape.windows_alone = true;
    Engine engine(shape);
    quire_seq seq = engine.create({});
    return seconds_of([&] {
        for (uint32_t i = 0; i < tokens; i += chunk) {
            Items items;
            items.add(seq, prompt(i, chunk));
            engine.run(items);
        }
    });
}

// The same beside requests that each publish a little.
double windows_alone_beside(uint32_t requests) {
    Shape shape = with(256);
    shape.windows_alone = true;
    Engine engine(shape);
    quire_seq seq = engine.create({});
    return seconds_of([&] {
        for (uint32_t i = 0; i < requests; ++i) {
            Items items;
            items.add(seq, prompt(i, kBlockTokens));
            engine.run(items);
            engine.end(engine.computed(prompt(i + (1u << 30), 4 * kBlockTokens)));
        }
    });
}

}  // namespace

std::vector<Case> prefix_cases() {
    return {
        {"prefix_found", "quire_step_begin", "tokens", 1, 1 << 14, found},
        {"prefix_probe", "quire_prefix_probe", "tokens", 1, 1 << 14, probe},
        {"evict", "quire_step_begin", "blocks", 1, 1 << 10, evict},
        {"reset", "quire_cache_reset", "blocks", 1, 1 << 10, reset},
        {"namespace_destroy", "quire_namespace_destroy", "its blocks", 1, 1 << 10, destroy_full},
        {"namespace_destroy_of_one_block", "quire_namespace_destroy", "blocks of others", 0,
         1 << 10, destroy_small},
        {"namespace_create", "quire_namespace_create", "namespaces", 0, 1 << 11, create_namespace},
        {"request_with_salt", "quire_seq_create", "salts that are cached", 0, 1 << 11,
         request_with_salt},
        {"prefill_with_64_spans", "quire_step_begin", "tokens", 1, 1 << 13, prefill_with_spans},
        {"windows_alone", "quire_step_commit", "tokens of one sequence", 1, 1 << 16, windows_alone},
        {"windows_alone_beside_others", "quire_step_commit", "requests", 1, 1 << 9,
         windows_alone_beside},
    };
}

}  // namespace quire::bench
