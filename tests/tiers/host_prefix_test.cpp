// SPDX-License-Identifier: Apache-2.0
//
// Prefixes that live on in the host tier: what is found, what is lost first, and that whatever is
// taken back was never moved.

#include "tests/effort.hpp"
#include "tests/tiers/host_books.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlock = 4;  // tokens

// Texts that share prefixes of a few documents.
class Documents {
 public:
    Documents(uint64_t seed, uint32_t blocks) : dice_(seed), most_(blocks * kBlock) {
        for (Tokens &document : documents_) {
            document.resize(most_);
            for (uint32_t &token : document) token = roll(0, 40);
        }
    }
    uint32_t roll(uint32_t least, uint32_t most) {
        return std::uniform_int_distribution<uint32_t>(least, most)(dice_);
    }
    Tokens next() {
        Tokens tokens = documents_[roll(0, 4)];
        tokens.resize(roll(1, most_ - 1));
        tokens.push_back(1000 + ++count_);
        return tokens;
    }

 private:
    std::mt19937_64 dice_;
    uint32_t most_;
    uint32_t count_ = 0;
    Tokens documents_[5];
};

TEST(HostPrefix, finds_what_a_pool_of_both_sizes_finds) {
    for (uint64_t seed : quire::tests::seeds(1, {200, 20, 5})) {
        SCOPED_TRACE(seed);
        std::mt19937_64 dice(seed);
        uint32_t device = 3 + dice() % 30, host = 2 + dice() % 50;
        HostBooks both({.blocks = device, .host_blocks = host}), one({.blocks = device + host - 1});
        Documents documents(seed, device);
        for (uint32_t i = 0; i < 150; ++i) {
            Tokens tokens = documents.next();
            ASSERT_EQ(both.serve(tokens), one.serve(tokens)) << "request " << i;
            if (i % 16 == 0) both.check();
        }
        quire_cache_stats of_both = both.stats(), of_one = one.stats();
        EXPECT_EQ(of_both.evictions, of_one.evictions);
        EXPECT_EQ(of_both.blocks_cached + of_both.host_blocks_cached, of_one.blocks_cached);
        EXPECT_GT(of_both.blocks_promoted, 0u);
        EXPECT_LE(of_both.host_blocks_cached, host - 1);
    }
}

TEST(HostPrefix, step_lists_the_copies_that_move_blocks) {
    HostBooks books({.blocks = 4, .host_blocks = 9});
    books.serve(text(1, 12));
    quire_seq seq = books.create();
    quire_step step = books.begin();
    books.add(step, seq, text(2, 16));
    std::vector<quire_block_copy> down = books.copies(step);
    ASSERT_EQ(down.size(), 3u);
    for (const quire_block_copy &copy : down) EXPECT_EQ(copy.kind, uint32_t{QUIRE_COPY_SWAP_OUT});
    books.commit(step);
    books.finish(step);
    books.end(seq);
    EXPECT_EQ(books.stats().blocks_demoted, 3u);
    EXPECT_EQ(books.stats().evictions, 0u);

    Tokens again = text(1, 12);
    again.push_back(7);
    seq = books.create();
    step = books.begin();
    EXPECT_EQ(books.add(step, seq, again).hit_tokens, 12u);
    uint32_t in = 0;
    for (const quire_block_copy &copy : books.copies(step)) in += copy.kind == QUIRE_COPY_SWAP_IN;
    EXPECT_EQ(in, 3u);
    books.check();
    books.commit(step);
    books.finish(step);
    books.end(seq);
    EXPECT_EQ(books.stats().blocks_promoted, 3u);
}

TEST(HostPrefix, aborted_step_has_moved_nothing) {
    for (uint64_t seed : quire::tests::seeds(1, {100, 20, 5})) {
        SCOPED_TRACE(seed);
        HostBooks books({.blocks = 12, .host_blocks = 10}), twin({.blocks = 12, .host_blocks = 10});
        Documents documents(seed, 6);
        for (uint32_t i = 0; i < 80; ++i) {
            Tokens tokens = documents.next(), other = documents.next();
            quire_cache_stats before = books.stats();
            quire_step step = books.begin();
            quire_seq first = books.create(), second = books.create();
            books.add(step, first, documents.next());
            books.add(step, second, other);
            books.check();
            books.abort(step);
            books.check();
            quire_cache_stats after = books.stats();
            EXPECT_EQ(before.blocks_cached, after.blocks_cached);
            EXPECT_EQ(before.host_blocks_cached, after.host_blocks_cached);
            EXPECT_EQ(before.evictions, after.evictions);
            EXPECT_EQ(before.blocks_demoted, after.blocks_demoted);
            EXPECT_EQ(before.blocks_promoted, after.blocks_promoted);
            books.end(first);
            books.end(second);
            ASSERT_EQ(books.probe(other), twin.probe(other));
            ASSERT_EQ(books.serve(tokens), twin.serve(tokens)) << "request " << i;
        }
    }
}

TEST(HostPrefix, dropped_item_takes_its_moves_back) {
    for (uint64_t seed : quire::tests::seeds(1, {200, 30, 5})) {
        SCOPED_TRACE(seed);
        HostBooks books({.blocks = 16, .host_blocks = 14});
        Documents documents(seed, 5);
        for (uint32_t i = 0; i < 60; ++i) {
            quire_step step = books.begin();
            std::vector<quire_seq> running;
            for (uint32_t k = 0; k < 3; ++k) {
                quire_seq seq = books.create();
                books.add(step, seq, documents.next());
                running.push_back(seq);
            }
            quire_seq dropped[3];
            uint32_t count = 0;
            books.must(books.api.step_drop(books.cache, step, running[documents.roll(0, 2)],
                                           dropped, 3, &count, &books.error));
            books.check();
            documents.roll(0, 3) == 0 ? books.abort(step) : books.commit(step);
            books.check();
            if (books.stats().steps > 0)
                (void)books.api.step_finish(books.cache, step, nullptr, QUIRE_STEP_OK, nullptr);
            for (quire_seq seq : running) books.end(seq);
        }
        books.check();
    }
}

// What a failed step copied is not found, wherever it lies.
TEST(HostPrefix, failed_step_loses_what_it_moved) {
    HostBooks books({.blocks = 4, .host_blocks = 9});
    books.serve(text(1, 12));
    EXPECT_EQ(books.serve(text(2, 16), QUIRE_STEP_FAILED), 0u);
    EXPECT_EQ(books.stats().blocks_demoted, 3u);
    EXPECT_EQ(books.probe(text(1, 13)), 0u);
    EXPECT_EQ(books.probe(text(2, 17)), 0u);
    books.check();

    books.serve(text(1, 12));
    books.serve(text(2, 16));
    Tokens again = text(1, 13);
    EXPECT_EQ(books.probe(again), 12u);
    EXPECT_EQ(books.serve(again, QUIRE_STEP_FAILED), 12u);
    EXPECT_EQ(books.probe(again), 0u);
    EXPECT_EQ(books.stats().host_blocks_used, 0u);
    books.check();
}

// A copy of a step that is not finished is there for its own queue's later steps, and for no one
// else's until it is.
TEST(HostPrefix, unfinished_copies_can_be_found) {
    HostBooks books({.blocks = 4, .host_blocks = 9});
    books.serve(text(1, 12));
    quire_seq seq = books.create();
    quire_step step = books.begin();
    books.add(step, seq, text(2, 16));
    books.commit(step);
    books.end(seq);
    seq = books.create();
    quire_step second = books.begin();
    EXPECT_EQ(books.add(second, seq, text(1, 13)).hit_tokens, 12u);
    books.check();
    books.commit(second);
    books.finish(step, QUIRE_STEP_FAILED);
    books.check();
    auto info = described<quire_seq_info>();
    books.must(books.api.seq_get_info(books.cache, seq, &info, &books.error));
    EXPECT_EQ(info.computed_tokens, 0u) << "it was built on what the failed step copied";
    books.finish(second);
    books.end(seq);
    EXPECT_EQ(books.probe(text(1, 13)), 0u);
}

TEST(HostPrefix, cached_blocks_give_way_to_swaps) {
    HostBooks books({.blocks = 6, .host_blocks = 6});
    books.serve(text(1, 24));
    quire_seq seq = books.create();
    quire_step step = books.begin();
    books.add(step, seq, text(2, 24));
    books.commit(step);
    books.finish(step);
    EXPECT_EQ(books.stats().host_blocks_cached, 5u);
    step = books.begin();
    uint32_t freed = 0;
    books.must(
        books.api.step_preempt(books.cache, step, seq, QUIRE_PREEMPT_SWAP, &freed, &books.error));
    EXPECT_EQ(freed, 6u);
    books.commit(step);
    books.finish(step);
    EXPECT_EQ(books.stats().host_blocks_used, 6u);
    EXPECT_EQ(books.stats().host_blocks_cached, 0u);
    books.check();
    books.end(seq);
}

TEST(HostPrefix, reset_forgets_both_levels) {
    HostBooks books({.blocks = 4, .host_blocks = 9});
    books.serve(text(1, 12));
    books.serve(text(2, 16));
    ASSERT_EQ(books.probe(text(1, 13)), 12u);
    books.must(books.api.cache_reset(books.cache, &books.error));
    EXPECT_EQ(books.probe(text(1, 13)), 0u);
    EXPECT_EQ(books.stats().host_blocks_cached, 0u);
    EXPECT_EQ(books.stats().nodes, 0u);
}

TEST(HostPrefix, moves_with_the_cache_and_gives_way_to_a_smaller_tier) {
    HostBooks books({.blocks = 4, .host_blocks = 12});
    for (uint32_t name = 1; name <= 3; ++name) books.serve(text(name, 16));
    ASSERT_EQ(books.probe(text(1, 17)), 16u);
    auto move = [&](uint32_t host_blocks) {
        auto desc = described<quire_migrate_desc>();
        desc.blocks = 7;
        desc.host_blocks = host_blocks;
        auto info = described<quire_migrate_info>();
        books.must(books.api.cache_migrate(books.cache, &desc, &info, &books.error));
        books.check();
        return info.blocks_dropped;
    };
    EXPECT_EQ(move(12), 0u);
    EXPECT_EQ(books.probe(text(1, 17)), 16u);
    EXPECT_EQ(move(4), 4u);
    EXPECT_EQ(books.probe(text(1, 17)), 0u) << "the oldest went";
    EXPECT_EQ(books.probe(text(2, 17)), 16u);
    EXPECT_EQ(books.serve(text(2, 17)), 16u);
}

TEST(HostPrefix, several_groups_stay_together) {
    const std::vector<quire_group_desc> shapes[] = {
        {group_of(QUIRE_GROUP_FULL), group_of(QUIRE_GROUP_FULL)},
        {group_of(QUIRE_GROUP_FULL), group_of(QUIRE_GROUP_WINDOW, 12)},
        {group_of(QUIRE_GROUP_WINDOW, 8), group_of(QUIRE_GROUP_FULL)},
    };
    for (uint64_t seed : quire::tests::seeds(1, {90, 15, 3})) {
        SCOPED_TRACE(seed);
        HostBooks books({.blocks = 14, .host_blocks = 11, .groups = shapes[seed % 3]});
        Documents documents(seed, 7);
        for (uint32_t i = 0; i < 100; ++i) {
            Tokens tokens = documents.next(), other = documents.next();
            uint32_t expected = books.probe(tokens);
            quire_seq first = books.create(), second = books.create();
            quire_step step = books.begin();
            EXPECT_EQ(books.add(step, first, tokens).hit_tokens, expected);
            books.add(step, second, other);
            books.check();
            bool aborts = documents.roll(0, 4) == 0;
            aborts ? books.abort(step) : books.commit(step);
            if (aborts) {
                ASSERT_EQ(books.probe(tokens), expected);
            } else {
                books.finish(step, documents.roll(0, 5) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
            }
            books.check();
            books.end(first);
            books.end(second);
        }
        EXPECT_GT(books.stats().blocks_promoted, 0u);
    }
}

TEST(HostPrefix, events_tell_the_level) {
    HostBooks books({.blocks = 4, .host_blocks = 9, .flags = QUIRE_CACHE_EVENTS});
    auto read = [&] {
        std::vector<quire_cache_event> events(64);
        auto info = described<quire_events_info>();
        books.must(books.api.cache_events(books.cache, 0, events.data(), 64, sizeof events[0],
                                          nullptr, 0, &info, &books.error));
        events.resize(info.event_count);
        return events;
    };
    books.serve(text(1, 4));
    std::vector<quire_cache_event> events = read();
    ASSERT_EQ(events.size(), 2u);  // the first one clears
    const uint64_t block = events[1].block;
    EXPECT_EQ(events[1].level, uint32_t{QUIRE_LEVEL_DEVICE});
    books.serve(text(2, 16));
    events = read();
    std::erase_if(events, [&](const quire_cache_event &event) { return event.block != block; });
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].kind, uint32_t{QUIRE_EVENT_STORED});
    EXPECT_EQ(events[0].level, uint32_t{QUIRE_LEVEL_HOST});
    EXPECT_EQ(events[1].kind, uint32_t{QUIRE_EVENT_REMOVED});
    EXPECT_EQ(events[1].level, uint32_t{QUIRE_LEVEL_DEVICE});
    quire_cache_event one{};
    auto info = described<quire_events_info>();
    EXPECT_EQ(books.api.cache_events(books.cache, 0, &one, 1, sizeof one, nullptr, 0, &info,
                                     &books.error),
              QUIRE_E_ARG);
}

TEST(HostPrefix, what_cannot_be_is_refused) {
    auto refused = [](const BooksShape &shape, quire_status status, const char *words) {
        HostBooks books(shape);
        EXPECT_EQ(books.created, status);
        EXPECT_TRUE(books.says(words)) << books.error.message;
    };
    refused({.blocks = 4, .flags = QUIRE_CACHE_HOST_PREFIXES}, QUIRE_E_ARG, "host tier");
    refused({.blocks = 4, .host_blocks = 4, .flags = QUIRE_CACHE_NO_PREFIX}, QUIRE_E_ARG,
            "QUIRE_CACHE_NO_PREFIX");
    refused({.blocks = 4, .host_blocks = 4, .flags = QUIRE_CACHE_FOLLOWER}, QUIRE_E_ARG,
            "set QUIRE_CACHE_HOST_PREFIXES on the leader");
    refused({.blocks = 4, .host_blocks = 4, .groups = {group_of(QUIRE_GROUP_WINDOW, 8)}},
            QUIRE_E_UNSUPPORTED, "full attention");
}

// One byte of host memory has no room for a block.
TEST(HostPrefix, cache_with_memory_needs_host_memory_for_a_block) {
    CpuCache cpu({.blocks = 4});
    auto group = group_of(QUIRE_GROUP_FULL);
    auto shard = described<quire_shard_desc>();
    shard.device = cpu.device;
    auto desc = described<quire_cache_desc>();
    desc.groups = &group;
    desc.group_count = 1;
    desc.group_stride = sizeof group;
    desc.shards = &shard;
    desc.shard_count = 1;
    desc.shard_stride = sizeof shard;
    desc.flags = QUIRE_CACHE_HOST_PREFIXES;
    desc.blocks = 4;
    desc.host_bytes = 1;
    quire_cache *cache = nullptr;
    EXPECT_EQ(cpu.api.cache_create(cpu.instance, &desc, &cache, &cpu.error), QUIRE_E_ARG);
    desc.host_bytes = 1 << 20;
    cpu.must(cpu.api.cache_create(cpu.instance, &desc, &cache, &cpu.error));
    auto target = described<quire_migrate_desc>();
    target.shards = &shard;
    target.shard_count = 1;
    target.shard_stride = sizeof shard;
    target.host_bytes = 1;
    auto info = described<quire_migrate_info>();
    EXPECT_EQ(cpu.api.cache_migrate(cache, &target, &info, &cpu.error), QUIRE_E_ARG);
    EXPECT_NE(std::string(cpu.error.message).find("host tier"), std::string::npos)
        << cpu.error.message;
    cpu.must(cpu.api.cache_destroy(cache, &cpu.error));
}

// The smallest tier: one block, which stays free.
TEST(HostPrefix, tier_of_one_block_keeps_nothing_and_swaps) {
    HostBooks books({.blocks = 2, .host_blocks = 1});
    books.serve(text(1, 8));
    books.serve(text(2, 8));
    EXPECT_EQ(books.probe(text(1, 9)), 0u);
    EXPECT_EQ(books.stats().blocks_demoted, 0u);
    books.check();
}

}  // namespace
