// SPDX-License-Identifier: Apache-2.0
//
// inside: a cache without its C ABI, whose books a test may read and break.
//
// Threads: none.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/cache.hpp"
#include "host.hpp"

namespace quire {

// Access to the core's private parts.
struct Inside {
    static CacheBooks &books(Cache &c) { return c.parts_.books; }
    static Journal &journal(Cache &c) { return c.parts_.books.journal; }
    static Timeline &timeline(Cache &c) { return c.parts_.books.timeline; }
    static Namespaces &namespaces(Cache &c) { return c.parts_.books.namespaces; }
    static Sequence &sequence(Cache &c, uint32_t index) { return c.parts_.books.sequences[index]; }
    static StepRecord &record(Cache &c, uint64_t step) {
        return c.parts_.books.records[Timeline::ring_index(step)];
    }
    // The witness of what a step touched, entry `index`.
    static Seen &seen(Cache &c, uint64_t step, uint64_t index) {
        return const_cast<Seen &>(c.parts_.witness.of(step)[index]);
    }
    static uint32_t *next(BlockTree &tree) { return tree.next_.data(); }
    static uint32_t *tokens(Cache &c, uint32_t node) {
        return c.parts_.books.journal.tree_.tokens_of(node);
    }
    static uint32_t &sequences_of(Cache &c, uint32_t scope) {
        return c.parts_.books.journal.tree_.scopes_.records_[scope].sequences;
    }
    static uint32_t held_tokens(Cache &c, uint32_t sequence) {
        return c.parts_.books.token_pages.held(c.parts_.books.sequences[sequence].tokens);
    }
    static uint32_t &token(Cache &c, uint32_t sequence, uint32_t position) {
        return const_cast<uint32_t &>(
            *c.parts_.books.token_pages.at(c.parts_.books.sequences[sequence].tokens, position));
    }
    static uint32_t &scope_of(Cache &c, uint32_t node) {
        return c.parts_.books.journal.tree_.header(node).scope;
    }
    // Makes the node a child of `parent`.
    static void hang(Cache &c, uint32_t node, uint32_t parent) {
        PrefixTree &tree = c.parts_.books.journal.tree_;
        tree.header(node).parent = parent;
        tree.header(node).parent_generation = tree.generation(parent);
    }
    // Advances the record by this many lives, each of two generations.
    static void live(PrefixTree &tree, uint32_t node, uint64_t lives) {
        tree.header(node).generation += 2 * lives;
    }
    static PrefixTree &tree(Cache &c) { return c.parts_.books.journal.tree_; }
    static uint32_t &free_nodes(Cache &c) { return c.parts_.books.journal.tree_.free_nodes_; }
    static bool &mixed(Cache &c) { return c.parts_.books.journal.mixed_; }
};

}  // namespace quire

namespace quire::test {

// A bookkeeping-only cache with groups of full attention and blocks of 4 tokens.
class Books {
 public:
    static constexpr uint32_t kBlockTokens = 4;

    explicit Books(uint32_t flags = 0, uint32_t blocks = 16, uint32_t host_blocks = 8,
                   uint32_t group_count = 1) {
        error.struct_size = sizeof error;
        std::vector<quire_group_desc> groups(group_count);
        for (quire_group_desc &group : groups)
            group.layer_count = group.kv_heads = group.k_head_dim = group.v_head_dim = 1;
        quire_cache_desc desc{};
        desc.flags = flags;
        desc.group_count = group_count;
        desc.blocks = blocks + 1;
        desc.block_tokens = kBlockTokens;
        desc.max_sequences = 8;
        desc.host_blocks = host_blocks;
        Status made = cache.create(desc, groups.data(), nullptr, CacheSeeds{1, 1, 1}, &error);
        EXPECT_TRUE(made.ok()) << made.text;
    }

    quire_namespace name_space() {
        quire_namespace_desc desc{};
        quire_namespace out = 0;
        EXPECT_TRUE(cache.create_namespace(desc, &out).ok());
        return out;
    }
    // salt: a key for the whole sequence; span: a key for its first block. 0: no such key.
    quire_seq sequence(quire_namespace ns = 0, uint32_t salt = 0, uint32_t span = 0) {
        quire_key keys[2] = {};
        quire_seq_desc desc{};
        desc.ns = ns;
        if (salt != 0) {
            keys[desc.key_count++] = quire_key{QUIRE_KEY_SALT, sizeof salt, &salt, 0, 0};
        }
        if (span != 0) {
            keys[desc.key_count++] =
                quire_key{QUIRE_KEY_MEDIA, sizeof span, &span, 0, kBlockTokens};
        }
        quire_seq out = 0;
        EXPECT_TRUE(cache.create_sequence(desc, keys, &out).ok());
        return out;
    }
    quire_seq fork(quire_seq seq, uint32_t token_count) {
        quire_seq out = 0;
        EXPECT_TRUE(cache.fork_sequence(seq, token_count, &out).ok());
        return out;
    }
    quire_step begin(uint64_t queue = 0) {
        quire::StepOptions options;
        options.queue_tag = queue;
        EXPECT_TRUE(cache.begin(options, ItemList{}, &step, &error).ok());
        return step;
    }
    // Adds `count` more tokens, from `first` on.
    void add(quire_seq seq, uint32_t first, uint32_t count) {
        std::vector<quire_token> tokens(count);
        for (uint32_t i = 0; i < count; ++i) tokens[i] = first + i;
        quire_step_item item{};
        item.seq = seq;
        item.token_count = count;
        quire_step_result result{};
        ItemList list;
        list.items = reinterpret_cast<const uint8_t *>(&item);
        list.count = 1;
        list.stride = sizeof item;
        list.tokens = tokens.data();
        list.token_count = count;
        list.results = reinterpret_cast<uint8_t *>(&result);
        list.result_stride = sizeof result;
        EXPECT_TRUE(cache.add(step, list).ok());
        EXPECT_EQ(result.outcome, uint32_t{QUIRE_ITEM_RUN});
    }
    void swap_out(quire_seq seq) {
        uint32_t freed = 0;
        EXPECT_EQ(cache.preempt(step, seq, QUIRE_PREEMPT_SWAP, &freed).code, QUIRE_OK);
    }
    void commit() { EXPECT_TRUE(cache.commit(step, nullptr, &error).ok()); }
    void finish(quire_step which) {
        EXPECT_TRUE(cache.finish(which, nullptr, QUIRE_STEP_OK, &error).ok());
    }
    // Computes the tokens in a step of its own.
    void compute(quire_seq seq, uint32_t first, uint32_t count) {
        begin();
        add(seq, first, count);
        commit();
        finish(step);
    }

    // The check's message with its numbers; "" when the books are correct.
    std::string check() {
        error.message[0] = '\0';
        Status status = cache.check(&error);
        if (status.ok()) return "";
        EXPECT_EQ(status.code, QUIRE_E_INTERNAL);
        if (status.text == nullptr) return error.message;
        std::string words = status.text;
        for (uint64_t n : {status.first, status.second}) {
            size_t at = words.find("{}");
            if (at != std::string::npos) words.replace(at, 2, std::to_string(n));
        }
        return words;
    }

    BlockPool &pool() { return Inside::journal(cache).pool(0); }
    BlockTable &table(uint32_t index) { return Inside::journal(cache).table(index, 0); }
    Sequence &at(uint32_t index) { return Inside::sequence(cache, index); }

    Host host;
    Cache cache{host.allocator};
    quire_error error{};
    quire_step step = 0;
};

}  // namespace quire::test
