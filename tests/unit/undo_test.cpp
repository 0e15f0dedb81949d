// SPDX-License-Identifier: Apache-2.0
//
// Undoing a step, in part or whole, after each of its operations: the cache is then exactly in its
// previous state, and goes on like one that never began the step.
//
// State is all that a caller can see: counts, tables down to the block id, and what each content
// would hit. State that cannot be seen, such as who is evicted next, shows up later: the same
// further traffic must then hit, evict and share alike. Free blocks may be handed out in another
// order, so those comparisons are up to renaming of blocks.

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "manager.hpp"
#include "tests/whole_state.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kContents = 9;

// Content c is eight blocks; the three contents of a family share their first four.
Tokens content(uint32_t c, uint32_t count) {
    Tokens tokens = tokens_from(10'000 * (c / 3 + 1), std::min(count, 16u));
    if (count > 16) tokens = joined(tokens, tokens_from(1000 * (c + 1), count - 16));
    return tokens;
}

// A busy cache: cached prefixes, forks, a window group, a swapped sequence, drafts and few free
// blocks.
struct World {
    Manager m;
    quire_seq old, fork, swapped, partial, fresh, twin, other;

    explicit World(uint32_t blocks)
        : m({.blocks = blocks, .host_blocks = 40, .groups = {{0, blocks}, {9, blocks}}}) {
        for (uint32_t c = 3; c < 6; ++c) {
            quire_seq seq = m.sequence();
            m.compute(seq, content(c, 22));
            m.end(seq);
        }
        old = m.sequence();
        m.compute(old, content(0, 30));
        fork = m.fork(old, 27);  // inside a block
        swapped = m.sequence();
        m.compute(swapped, content(1, 19));
        m.begin();
        give_up(swapped, QUIRE_PREEMPT_SWAP);
        m.finish(m.commit());
        partial = m.sequence();
        m.compute(partial, content(6, 20), {.max_compute = 7});
        fresh = m.sequence();
        twin = m.sequence();
        other = m.sequence();
    }

    void give_up(quire_seq seq, uint32_t how) {
        uint32_t freed = 0;
        EXPECT_GE(m.api().step_preempt(m.cache(), m.open(), seq, how, &freed, m.error()), 0)
            << m.message();
    }

    // The operations of the step, in order. Each is an item except the preemption.
    std::vector<std::function<void()>> operations() {
        return {
            [this] { m.add(old, {1, 2, 3}); },
            [this] { m.add(fork, {4, 5}); },  // copies the block that it shares
            [this] { m.add(fresh, content(4, 26)); },
            [this] { m.add(twin, content(4, 28), {.drafts = 2}); },  // hits what `fresh` computes
            [this] { m.add(swapped, {6}); },
            [this] { m.add(partial, {}, {.max_compute = 9}); },
            [this] { give_up(old_or_other(), QUIRE_PREEMPT_RECOMPUTE); },
            [this] { m.add(other, content(8, 21), {.lookahead = 6}); },
        };
    }
    std::vector<quire_seq> items() const { return {old, fork, fresh, twin, swapped, partial}; }
    // A sequence that is in the step must be dropped before it is preempted.
    quire_seq old_or_other() {
        m.drop(old);
        return old;
    }

    std::string hits() {
        std::string out;
        for (uint32_t c = 0; c < kContents; ++c) {
            out += std::to_string(m.probe(content(c, 33))) + " ";
        }
        return out;
    }
    std::string state() { return m.snapshot() + "/ " + hits(); }

    // Tables with blocks numbered in the order in which they are met.
    std::string tables() {
        std::map<std::pair<uint32_t, int32_t>, size_t> names;
        std::string out;
        for (quire_seq seq : {old, fork, swapped, partial, fresh, twin, other}) {
            for (uint32_t g = 0; g < 2; ++g) {
                out += "| ";
                for (int32_t id : m.table(seq, g)) {
                    size_t name =
                        id == 0 ? 0
                                : names.emplace(std::pair(g, id), names.size() + 1).first->second;
                    out += std::to_string(name) + " ";
                }
            }
        }
        return out;
    }

    // New sequences one after another, with what each content hits then.
    std::string future() {
        std::string out;
        for (uint32_t c : {2u, 7u, 0u, 5u, 8u, 1u, 6u}) {
            m.begin({.may_preempt = true});
            quire_seq seq = m.sequence();
            quire_step_result result = m.add(seq, content(c, 25 + c));
            m.add(other, {c});
            m.finish(m.commit());
            out += std::to_string(result.outcome) + ":" + std::to_string(result.hit_tokens) + " ";
            out += hits() + tables() + "\n";
            m.end(seq);
        }
        return out;
    }
};

TEST(Undo, steps_tried_here_copy_hit_evict_swap_and_preempt) {
    for (uint32_t blocks : {26u, 60u}) {
        World w(blocks);
        quire_cache_stats before = w.m.stats();
        w.m.begin();
        for (auto &operation : w.operations()) operation();
        w.m.finish(w.m.commit());
        quire_cache_stats after = w.m.stats();
        EXPECT_GT(after.copies_on_write, before.copies_on_write);
        EXPECT_GT(after.prefix_cache_hits, before.prefix_cache_hits);
        EXPECT_GT(after.blocks_swapped_in, before.blocks_swapped_in);
        EXPECT_GT(after.num_preemptions, before.num_preemptions);
        EXPECT_EQ(after.evictions > before.evictions, blocks == 26);
    }
}

TEST(Undo, abort_behind_every_operation_leaves_state_and_future) {
    for (uint32_t blocks : {26u, 60u}) {
        World never(blocks);
        const std::string future = never.future();
        for (size_t count = 0; count <= World(blocks).operations().size(); ++count) {
            World w(blocks);
            const std::string before = w.state();
            w.m.begin({.may_preempt = true});
            auto operations = w.operations();
            for (size_t i = 0; i < count; ++i) operations[i]();
            w.m.abort();
            EXPECT_EQ(w.state(), before) << count << " operations, " << blocks << " blocks";
            EXPECT_EQ(w.future(), future) << count << " operations, " << blocks << " blocks";
        }
    }
}

TEST(Undo, items_dropped_in_any_order_leave_state_and_future) {
    for (uint32_t blocks : {26u, 60u}) {
        World never(blocks);
        const std::string future = never.future();
        for (uint32_t seed = 1; seed <= 40; ++seed) {
            World w(blocks);
            const std::string before = w.state();
            w.m.begin();
            auto operations = w.operations();
            std::vector<quire_seq> in_step = w.items();
            for (size_t i = 0; i < in_step.size(); ++i) operations[i]();
            std::shuffle(in_step.begin(), in_step.end(), std::mt19937(seed));
            for (quire_seq seq : in_step) {
                if ((w.m.info(seq).flags & QUIRE_SEQ_IN_STEP) != 0) w.m.drop(seq);
            }
            EXPECT_EQ(w.state(), before) << "seed " << seed << ", " << blocks << " blocks";
            w.m.abort();
            EXPECT_EQ(w.future(), future) << "seed " << seed << ", " << blocks << " blocks";
        }
    }
}

// The step goes on as if the item had never been added: the whole state of the cache is as before.
TEST(Undo, newest_item_dropped_leaves_what_its_step_was) {
    for (uint32_t blocks : {26u, 60u}) {
        for (size_t newest = 0; newest < 6; ++newest) {
            World w(blocks);
            auto operations = w.operations();
            w.m.begin();
            for (size_t i = 0; i < newest; ++i) operations[i]();
            const std::string before = w.m.snapshot();
            operations[newest]();
            EXPECT_EQ(w.m.drop(w.items()[newest]).size(), 1u);
            EXPECT_EQ(difference(before, w.m.snapshot()), "") << newest << ", " << blocks;
            w.m.abort();
        }
    }
}

// With room for all, so that the dropped item evicted nothing that another item would have hit.
TEST(Undo, step_without_one_dropped_item_is_the_step_that_never_had_it) {
    for (size_t gone = 0; gone < 6; ++gone) {
        World w(60), never(60);
        quire_seq out = w.items()[gone];
        w.m.begin();
        for (size_t i = 0; i < 6; ++i) w.operations()[i]();
        std::vector<quire_seq> dropped = w.m.drop(out);
        w.m.finish(w.m.commit());
        never.m.begin();
        for (size_t i = 0; i < 6; ++i) {
            // The two caches gave the same slots to the same sequences, but other handles.
            quire_seq same = w.items()[i];
            bool kept = std::find(dropped.begin(), dropped.end(), same) == dropped.end();
            if (kept) never.operations()[i]();
        }
        never.m.finish(never.m.commit());
        EXPECT_EQ(w.tables(), never.tables()) << "item " << gone;
        EXPECT_EQ(w.hits(), never.hits()) << "item " << gone;
        EXPECT_EQ(w.future(), never.future()) << "item " << gone;
    }
}

// Undoing an item takes back what it did, and not what others did meanwhile: a block that running
// work writes, or has yet to read, is not written in place on another queue.
TEST(Undo, abort_keeps_what_others_that_run_do_with_a_block) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 5));
    quire_seq child = m.fork(parent, 5);
    m.begin({.queue = 1});
    m.add(parent, {6});  // writes slot 1 of the second block, in place
    quire_step running = m.commit();
    Blocks shared = m.table(parent);
    m.begin({.queue = 2});
    m.add(child, {7});  // a copy
    m.end(parent);
    m.abort();
    m.begin({.queue = 2});
    m.add(child, {7});
    EXPECT_NE(m.table(child)[1], shared[1]) << "two running queues would write one slot";
    m.abort();
    m.finish(running);
    m.begin({.queue = 2});
    m.add(child, {7});
    EXPECT_EQ(m.table(child)[1], shared[1]) << "nothing runs, and no other sequence holds it";
    m.abort();
}

// The same if two items drop their references to the block before its writer does.
TEST(Undo, abort_of_two_items_keeps_what_another_that_runs_does_with_their_block) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 5));
    quire_seq child = m.fork(parent, 5), other = m.fork(parent, 5);
    m.begin({.queue = 1});
    m.add(parent, {6});  // writes slot 1 of the second block, in place
    quire_step running = m.commit();
    Blocks shared = m.table(parent);
    m.begin({.queue = 2});
    m.add(child, {7});
    m.add(other, {8});
    m.end(parent);
    m.abort();
    m.end(other);
    m.begin({.queue = 2});
    m.add(child, {7});
    EXPECT_NE(m.table(child)[1], shared[1]) << "two running queues would write one slot";
    m.abort();
    m.finish(running);
}

TEST(Undo, drop_keeps_what_a_copy_of_the_step_has_yet_to_read) {
    Manager m({.block_tokens = 8});
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 5));
    quire_seq a = m.fork(parent, 3), b = m.fork(parent, 5);
    m.end(parent);
    m.begin({.queue = 2});
    quire_step other = m.commit();
    m.begin({.queue = 1});
    m.add(a, {8});
    m.add(b, {9});
    std::vector<quire_seq> dropped = m.drop(a);
    if (dropped.size() == 2) m.add(b, {9});
    quire_step running = m.commit();
    std::vector<quire_block_copy> copies = m.copies(running);
    ASSERT_EQ(copies.size(), 1u);
    m.finish(other);
    m.begin({.queue = 2});
    m.add(a, {8});
    EXPECT_NE(m.table(a)[0], copies[0].src) << "the copy may not have read it yet";
    m.finish(m.commit());
    m.finish(running);
}

// While a step is open, another sequence names a block that an item of the step also published.
// After the item is gone, lookups find the sequence's own block.
TEST(Undo, abort_and_drop_leave_what_others_published_meanwhile) {
    for (int how = 0; how < 3; ++how) {
        Manager m;
        quire_seq named = m.sequence(), item = m.sequence();
        m.compute(named, joined(tokens_from(1, 3), {QUIRE_TOKEN_UNKNOWN}));
        if (how == 2) m.compute(named, {5});
        m.begin();
        m.add(item, tokens_from(1, 9));
        m.set_tokens(named, 3, {4});
        if (how == 0) {
            m.abort();
        } else {
            m.drop(item);
            m.finish(m.commit());
        }
        EXPECT_EQ(m.probe(tokens_from(1, 9)), 4u) << how;
    }
}

// Each of two items evicts one group's block of the same node. Neither alone can restore it.
TEST(Undo, abort_after_drop_caches_a_node_again_that_two_items_took_apart) {
    Manager m({.groups = {{0, 4}, {0, 5}}});
    quire_seq gone = m.sequence();
    m.compute(gone, tokens_from(1, 16));
    m.end(gone);
    quire_seq a = m.sequence(), b = m.sequence();
    std::string before = m.snapshot();
    ASSERT_EQ(m.probe(tokens_from(1, 17)), 16u);
    m.begin();
    m.add(a, {101, 102});  // evicts the last node's block of the first group
    m.add(b, {103, 104});  // and that of the second
    EXPECT_EQ(m.drop(a).size(), 1u);
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 8u);
    m.add(a, {105, 106});  // may take the block that dropping it freed
    m.drop(a);
    m.abort();
    EXPECT_EQ(m.snapshot(), before);
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 16u);
    m.compute(a, {107, 108});
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 12u) << "the tail is the oldest, as before";
}

TEST(Undo, commit_after_drop_forgets_a_node_that_two_items_took_apart) {
    Manager m({.groups = {{0, 4}, {0, 5}}});
    quire_seq gone = m.sequence();
    m.compute(gone, tokens_from(1, 16));
    m.end(gone);
    quire_seq a = m.sequence(), b = m.sequence();
    m.begin();
    m.add(a, {101, 102});
    m.add(b, {103, 104});
    m.drop(a);
    m.finish(m.commit());
    m.check();
    EXPECT_EQ(m.probe(tokens_from(1, 17)), 8u);
    EXPECT_EQ(m.stats().blocks_cached, 4u);
    EXPECT_EQ(m.stats().nodes, 2u);
}

}  // namespace
