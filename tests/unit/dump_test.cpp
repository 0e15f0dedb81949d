// SPDX-License-Identifier: Apache-2.0
//
// quire_cache_dump: complete, equal for equal books, also of broken books, and without a tenant's
// tokens.

#include <gtest/gtest.h>

#include <cinttypes>

#include "inside.hpp"
#include "manager.hpp"

namespace {

using namespace quire;
using namespace quire::test;

std::string dump_of(const Cache &cache, bool with_tokens = false) {
    uint64_t size = 0;
    EXPECT_EQ(cache.dump(with_tokens, nullptr, 0, &size).code, QUIRE_S_INCOMPLETE);
    std::string text(size, '?');
    EXPECT_EQ(cache.dump(with_tokens, text.data(), size, &size).code, QUIRE_OK);
    EXPECT_EQ(size, text.size());
    return text;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
        size_t end = text.find('\n', at);
        EXPECT_NE(end, std::string::npos) << "each line has an end";
        lines.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return lines;
}

// A busy cache: an open step with every kind of edit that can occur at once, unfinished steps, a
// swapped sequence and a namespace.
void make_busy(Books *b) {
    quire_seq a = b->sequence(0, 0, 7), other = b->sequence(b->name_space(), 3);
    quire_seq swapped = b->sequence();
    b->compute(a, 1000, 10);
    b->compute(other, 2000, 6);
    b->compute(swapped, 3000, 6);
    quire_seq child = b->fork(a, 10);
    b->begin(1);
    b->swap_out(swapped);
    b->commit();
    b->begin(1);
    b->add(child, 1100, 1);
    b->commit();
    b->begin(1);
    b->add(a, 1200, 7);
    b->add(swapped, 3100, 1);
}

TEST(Dump, begins_with_its_name_and_ends_with_its_sum) {
    Books b;
    make_busy(&b);
    std::vector<std::string> lines = lines_of(dump_of(b.cache));
    EXPECT_EQ(lines.front(), R"({"record":"quire dump","version":1,"tokens":false})");
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i + 1 < lines.size(); ++i) {
        for (char c : lines[i] + "\n") {
            hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
        }
    }
    char end[128];
    std::snprintf(end, sizeof end, R"({"record":"end","records":%zu,"fnv1a":"0x%016)" PRIx64 "\"}",
                  lines.size() - 1, hash);
    EXPECT_EQ(lines.back(), end);
}

TEST(Dump, of_unchanged_books_is_the_same_byte_for_byte) {
    Books b(QUIRE_CACHE_AUDIT);
    make_busy(&b);
    std::string first = dump_of(b.cache);
    EXPECT_EQ(dump_of(b.cache), first);
    EXPECT_EQ(b.check(), "") << "a dump changes nothing";
    EXPECT_EQ(dump_of(b.cache), first) << "nor does a check";
    EXPECT_TRUE(b.cache.abort(b.step).ok());
    EXPECT_NE(dump_of(b.cache), first);
}

TEST(Dump, of_two_caches_with_one_history_differs_in_handles_alone) {
    auto make = [] {
        Books b;
        quire_seq a = b.sequence();
        b.compute(a, 1000, 10);
        b.fork(a, 10);
        std::vector<std::string> kept;
        for (const std::string &line : lines_of(dump_of(b.cache))) {
            if (!has(line, "\"handle\"") && !has(line, "\"end\"")) kept.push_back(line);
        }
        return kept;
    };
    EXPECT_EQ(make(), make()) << "no part of the dump depends on an address";
}

TEST(Dump, holds_each_part) {
    Books b(QUIRE_CACHE_AUDIT);
    make_busy(&b);
    std::string text = dump_of(b.cache);
    for (const char *record :
         {"cache", "stats", "step", "change", "edit", "copy", "preemption", "seen", "group", "pool",
          "list", "block", "tree", "scope", "node", "namespace", "sequence", "table"}) {
        EXPECT_TRUE(has(text, std::string("{\"record\":\"") + record + "\"")) << record;
    }
    EXPECT_TRUE(has(text, R"("step":6,"phase":"open","queue":1)"));
    EXPECT_TRUE(has(text, R"("step":5,"phase":"committed","queue":1)"));
    EXPECT_TRUE(has(text, R"("kind":"copy_on_write")"));
    EXPECT_TRUE(has(text, R"("kind":"swap_in")"));
    EXPECT_TRUE(has(text, R"("kind":"take_free")"));
    EXPECT_TRUE(has(text, R"({"record":"table","id":0,"group":0,"length":5,)"));
}

TEST(Dump, has_no_tokens_unless_they_are_asked_for) {
    Books b;
    b.compute(b.sequence(), 123456789, 6);
    std::string without = dump_of(b.cache), with = dump_of(b.cache, true);
    EXPECT_FALSE(has(without, "12345679")) << "no token of any sequence appears";
    EXPECT_FALSE(has(without, "\"tokens\":["));
    EXPECT_TRUE(has(with, R"("tokens":[123456789,123456790,123456791,123456792])")) << "the node";
    EXPECT_TRUE(has(with, "123456794]")) << "the sequence";
    EXPECT_TRUE(has(with, R"("tokens":true)"));
}

TEST(Dump, hashes_tokens_under_the_caches_own_key) {
    auto hash_under = [](uint64_t seed) {
        Host host;
        Cache cache(host.allocator);
        quire_group_desc group{};
        group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        quire_cache_desc desc{};
        desc.group_count = 1;
        desc.blocks = 4;
        desc.max_sequences = 1;
        quire_error error{};
        EXPECT_TRUE(cache.create(desc, &group, nullptr, CacheSeeds{seed, 1, 1}, &error).ok());
        quire_seq seq = 0;
        EXPECT_TRUE(cache.create_sequence(quire_seq_desc{}, nullptr, &seq).ok());
        std::string text = dump_of(cache);
        return text.substr(text.find("tokens_hash"), 40);
    };
    EXPECT_EQ(hash_under(1), hash_under(1));
    EXPECT_NE(hash_under(1), hash_under(2));
}

TEST(Dump, that_does_not_fit_writes_nothing) {
    Books b;
    make_busy(&b);
    uint64_t size = dump_of(b.cache).size(), told = 0;
    std::string buffer(size, '?');
    EXPECT_EQ(b.cache.dump(false, buffer.data(), size - 1, &told).code, QUIRE_S_INCOMPLETE);
    EXPECT_EQ(told, size);
    EXPECT_EQ(buffer, std::string(size, '?'));
}

TEST(Dump, takes_no_memory_of_the_host) {
    Books b(QUIRE_CACHE_AUDIT);
    make_busy(&b);
    uint64_t calls = b.host.calls;
    b.host.fail_at = calls + 1;
    std::string text = dump_of(b.cache);
    EXPECT_EQ(b.host.calls, calls);
    b.host.fail_at = UINT64_MAX;
    EXPECT_EQ(dump_of(b.cache), text);
}

TEST(Dump, of_a_stopped_cache_shows_what_broke_and_the_step_in_which_it_did) {
    Books b;
    make_busy(&b);
    b.cache.stop(BrokenInvariant{"a \"b\" \\ c", "core/some.cpp", 12});
    std::string text = dump_of(b.cache);
    EXPECT_TRUE(has(text, R"("stopped_by":"a \"b\" \\ c","stopped_in":"core/some.cpp")"));
    EXPECT_TRUE(has(text, R"("stopped_at":12)"));
    EXPECT_TRUE(has(text, R"("step":6,"phase":"stopped")"));
    EXPECT_TRUE(has(text, R"("record":"edit","step":6)"));
}

TEST(Dump, of_broken_books_follows_nothing_that_is_broken) {
    Books b;
    make_busy(&b);
    for (uint32_t i = 1; i < 8; ++i) {
        Block &block = b.pool()[i];
        block.node = block.owner = 0xFFFFFF00;
        block.state = static_cast<BlockState>(9);
        b.pool().link(i) = BlockLink{i, i};
    }
    auto fill = [](Buffer *buffer, uint32_t from) {
        for (uint32_t i = from; i < buffer->capacity; ++i) buffer->data[i] = 0;
    };
    fill(&b.table(0).ids, b.table(0).length);
    for (uint32_t i = b.at(0).state.known; i < Inside::held_tokens(b.cache, 0); ++i)
        Inside::token(b.cache, 0, i) = 0;
    b.table(0).length = UINT32_MAX;
    b.at(0).state.known = b.at(0).state.move_count = UINT32_MAX;
    b.at(1).root = b.at(1).name_space = UINT32_MAX;
    Inside::scope_of(b.cache, 0) = UINT32_MAX;
    Inside::free_nodes(b.cache) = UINT32_MAX;
    std::string text = dump_of(b.cache, true);
    EXPECT_TRUE(has(text, R"("state":"unknown")"));
    EXPECT_TRUE(has(text, R"("length":4294967295)"));
}

TEST(Dump, is_of_the_exported_functions) {
    Manager m;
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 20));
    uint64_t size = 0;
    const quire_api &api = m.api();
    EXPECT_EQ(api.cache_dump(m.cache(), 0, nullptr, 0, &size, m.error()), QUIRE_S_INCOMPLETE);
    ASSERT_GT(size, 1000u);
    std::string text(size, '?');
    EXPECT_EQ(api.cache_dump(m.cache(), 0, text.data(), size, &size, m.error()), QUIRE_OK);
    EXPECT_EQ(text.substr(0, 24), "{\"record\":\"quire dump\",\"");
    EXPECT_EQ(api.cache_dump(m.cache(), 2, text.data(), size, &size, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(api.cache_dump(m.cache(), 0, nullptr, size, &size, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(api.cache_dump(m.cache(), 0, nullptr, 0, nullptr, m.error()), QUIRE_E_ARG);
    EXPECT_EQ(api.cache_dump(nullptr, 0, nullptr, 0, &size, m.error()), QUIRE_E_ARG);
}

}  // namespace
