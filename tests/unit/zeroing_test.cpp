// SPDX-License-Identifier: Apache-2.0
//
// Data of one namespace is gone from a block before a sequence of another gets the block, and with
// QUIRE_CACHE_ZERO_ON_FREE all data is gone once the block is unowned: checked in the list of
// copies, and in a simulated memory that executes the list.

#include <algorithm>
#include <random>

#include "manager.hpp"

namespace {

using namespace quire::test;

std::vector<int32_t> zeroed(const std::vector<quire_block_copy> &copies) {
    std::vector<int32_t> blocks;
    for (const quire_block_copy &copy : copies) {
        if (copy.kind != QUIRE_COPY_ZERO) continue;
        EXPECT_EQ(copy.src, copy.dst);
        blocks.push_back(copy.dst);
    }
    return blocks;
}

std::vector<int32_t> zeroed_by(Manager &m, quire_seq seq, const Tokens &tokens) {
    m.begin();
    EXPECT_EQ(m.add(seq, tokens).outcome, uint32_t{QUIRE_ITEM_RUN});
    quire_step step = m.commit();
    std::vector<int32_t> blocks = zeroed(m.copies(step));
    m.finish(step);
    return blocks;
}

TEST(Zeroing, block_of_another_namespace_is_zeroed_before_it_is_written) {
    Manager m({.blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq a = m.sequence();
    EXPECT_EQ(zeroed_by(m, a, tokens_from(1, 14)), Blocks{}) << "fresh blocks hold zeros";
    Blocks left = m.table(a);
    m.end(a);
    quire_seq b = m.sequence({.ns = other});
    Blocks zero = zeroed_by(m, b, tokens_from(100, 14));
    EXPECT_EQ(zero, m.table(b)) << "free ones, and evicted ones";
    std::sort(zero.begin(), zero.end());
    std::sort(left.begin(), left.end());
    EXPECT_EQ(zero, left);
    m.end(b);
    quire_seq c = m.sequence({.ns = other});
    EXPECT_EQ(zeroed_by(m, c, tokens_from(200, 14)), Blocks{}) << "its own namespace wrote it last";
}

TEST(Zeroing, one_namespace_zeroes_nothing) {
    Manager m({.blocks = 4});
    for (quire_token first : {1u, 100u, 200u}) {
        quire_seq seq = m.sequence();
        EXPECT_EQ(zeroed_by(m, seq, tokens_from(first, 14)), Blocks{});
        m.end(seq);
    }
}

TEST(Zeroing, namespace_that_was_destroyed_is_still_another_one) {
    Manager m({.blocks = 4});
    quire_namespace first = m.name_space();
    quire_seq a = m.sequence({.ns = first});
    m.compute(a, tokens_from(1, 14));
    m.end(a);
    ASSERT_EQ(m.api().namespace_destroy(m.cache(), first, m.error()), QUIRE_OK) << m.message();
    quire_namespace second = m.name_space();  // in the slot of the first
    quire_seq b = m.sequence({.ns = second});
    EXPECT_EQ(zeroed_by(m, b, tokens_from(1, 14)).size(), 4u);
}

TEST(Zeroing, step_that_is_aborted_or_an_item_that_is_dropped_leaves_it_to_do) {
    Manager m({.blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    m.end(a);
    quire_seq b = m.sequence({.ns = other});
    m.begin();
    m.add(b, tokens_from(1, 14));
    EXPECT_EQ(zeroed(m.copies(m.open())).size(), 4u);
    m.abort();
    m.begin();
    m.add(b, tokens_from(1, 14));
    m.drop(b);
    EXPECT_EQ(zeroed(m.copies(m.open())), Blocks{});
    m.finish(m.commit());
    EXPECT_EQ(zeroed_by(m, b, tokens_from(1, 14)).size(), 4u);
}

TEST(Zeroing, step_that_failed_may_not_have_zeroed) {
    Manager m({.blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    m.end(a);
    quire_seq b = m.sequence({.ns = other});
    m.begin();
    m.add(b, tokens_from(1, 14));
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(zeroed_by(m, b, {}).size(), 4u);
}

TEST(Zeroing, copies_overwrite_what_they_are_copied_to) {
    Manager m({.blocks = 4, .host_blocks = 4});
    quire_namespace other = m.name_space();
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    m.end(a, QUIRE_END_DROP_PREFIX);
    quire_seq b = m.sequence({.ns = other});
    m.compute(b, tokens_from(100, 6));
    quire_seq fork = m.fork(b, 6);
    EXPECT_EQ(zeroed_by(m, fork, tokens_from(500, 1)), Blocks{}) << "its tail was copied whole";
}

std::vector<int32_t> sorted(std::vector<int32_t> blocks) {
    std::sort(blocks.begin(), blocks.end());
    return blocks;
}

// The blocks that a step without items zeroes.
std::vector<int32_t> zeroed_by_nothing(Manager &m, const StepOptions &options = {}) {
    m.begin(options);
    quire_step step = m.commit();
    std::vector<int32_t> blocks = zeroed(m.copies(step));
    m.finish(step);
    return sorted(blocks);
}

TEST(ZeroOnFree, blocks_that_were_given_up_are_zeroed_once_by_the_next_commit) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence(), b = m.sequence();
    EXPECT_EQ(zeroed_by(m, a, tokens_from(1, 14)), Blocks{});
    EXPECT_EQ(zeroed_by(m, b, tokens_from(1, 6)), Blocks{});
    EXPECT_EQ(zeroed_by_nothing(m), Blocks{}) << "no sequence gave up a block";
    Blocks left = sorted(m.table(a));
    m.end(a);
    m.begin();
    m.add(b, tokens_from(50, 1));
    quire_step step = m.commit();
    EXPECT_EQ(sorted(zeroed(m.copies(step))), left) << "together with a step's other work";
    m.finish(step);
    EXPECT_EQ(zeroed_by_nothing(m), Blocks{}) << "they are clean";
    m.check();
}

TEST(ZeroOnFree, cached_blocks_keep_their_content_until_they_are_forgotten) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_ZERO_ON_FREE});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    Blocks table = m.table(a);
    m.end(a);
    EXPECT_EQ(zeroed_by_nothing(m), Blocks{table[3]}) << "its tail was in no tree";
    quire_seq b = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(b, tokens_from(1, 14)).hit_tokens, 12u);
    m.finish(m.commit());
    Blocks all = sorted(m.table(b));
    m.end(b, QUIRE_END_DROP_PREFIX);
    EXPECT_EQ(zeroed_by_nothing(m), all);
    m.check();
}

TEST(ZeroOnFree, block_that_is_taken_before_is_zeroed_first) {
    Manager m({.blocks = 4, .flags = QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    Blocks left = sorted(m.table(a));
    m.end(a);
    quire_seq b = m.sequence();
    EXPECT_EQ(sorted(zeroed_by(m, b, tokens_from(1, 14))), left) << "each once";
    m.check();
}

TEST(ZeroOnFree, block_that_another_queue_may_still_read_waits) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.begin({.queue = 1});
    m.add(a, tokens_from(1, 14));
    quire_step running = m.commit();
    Blocks left = sorted(m.table(a));
    m.end(a);
    EXPECT_EQ(zeroed_by_nothing(m, {.queue = 2}), Blocks{});
    m.finish(running);
    EXPECT_EQ(zeroed_by_nothing(m, {.queue = 2}), left);
    m.check();
}

TEST(ZeroOnFree, step_that_failed_leaves_it_to_do) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence();
    m.compute(a, tokens_from(1, 14));
    Blocks left = sorted(m.table(a));
    m.end(a);
    m.begin();
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(zeroed_by_nothing(m), left);
    m.check();
}

TEST(ZeroOnFree, step_that_is_aborted_zeroes_nothing) {
    Manager m({.blocks = 8, .flags = QUIRE_CACHE_ZERO_ON_FREE | QUIRE_CACHE_NO_PREFIX});
    quire_seq a = m.sequence(), b = m.sequence();
    m.compute(a, tokens_from(1, 14));
    m.compute(b, tokens_from(1, 2));
    Blocks left = sorted(m.table(a));
    m.end(a);
    m.begin();
    m.add(b, tokens_from(70, 20));
    m.abort();
    m.check();
    EXPECT_EQ(zeroed_by_nothing(m), left);
    m.check();
}

// A value per slot: the number of the namespace that wrote it.
class Memory {
 public:
    explicit Memory(uint32_t blocks, uint32_t host_blocks)
        : device_((blocks + 1) * kTokens), host_((host_blocks + 1) * kTokens) {}

    void execute(const std::vector<quire_block_copy> &copies) {
        for (const quire_block_copy &copy : copies) {
            auto &from = copy.kind == QUIRE_COPY_SWAP_IN ? host_ : device_;
            auto &to = copy.kind == QUIRE_COPY_SWAP_OUT ? host_ : device_;
            for (int32_t i = 0; i < kTokens; ++i) {
                bool is_zero = copy.kind == QUIRE_COPY_ZERO;
                to[copy.dst * kTokens + i] = is_zero ? 0 : from[copy.src * kTokens + i];
            }
        }
    }
    // The number of device blocks that hold any value.
    uint32_t written() const {
        uint32_t count = 0;
        for (size_t at = 0; at < device_.size(); at += kTokens) {
            count += std::any_of(device_.begin() + static_cast<ptrdiff_t>(at),
                                 device_.begin() + static_cast<ptrdiff_t>(at + kTokens),
                                 [](int value) { return value != 0; });
        }
        return count;
    }
    int &slot(const Blocks &table, uint32_t position) {
        return device_[table[position / kTokens] * kTokens + position % kTokens];
    }

    static constexpr int32_t kTokens = 4;

 private:
    std::vector<int> device_;
    std::vector<int> host_;
};

struct Tenants {
    struct Text {
        quire_seq seq;
        int tenant;  // 1 or 2
        uint32_t known = 0;
    };

    explicit Tenants(uint32_t flags = 0)
        : m({.blocks = 24, .host_blocks = 12, .flags = flags}),
          scrubs((flags & QUIRE_CACHE_ZERO_ON_FREE) != 0) {}

    Manager m;
    bool scrubs;
    Memory memory{24, 12};
    quire_namespace second = m.name_space();
    std::vector<Text> texts;
    std::mt19937 dice{7};
    uint64_t zeroed_blocks = 0;

    uint32_t roll(uint32_t sides) { return static_cast<uint32_t>(dice() % sides); }

    void begin_or_end() {
        if (texts.size() > 5 || (!texts.empty() && roll(4) == 0)) {
            uint32_t i = roll(static_cast<uint32_t>(texts.size()));
            m.end(texts[i].seq);
            texts.erase(texts.begin() + i);
        } else if (!texts.empty() && roll(3) == 0) {
            const Text &parent = texts[roll(static_cast<uint32_t>(texts.size()))];
            uint32_t computed = m.info(parent.seq).computed_tokens;
            if ((m.info(parent.seq).flags & QUIRE_SEQ_SWAPPED) != 0 || computed == 0) return;
            texts.push_back({m.fork(parent.seq, computed), parent.tenant, computed});
        } else {
            int tenant = 1 + static_cast<int>(roll(2));
            texts.push_back({m.sequence({.ns = tenant == 1 ? 0 : second}), tenant, 0});
        }
    }

    void step() {
        m.begin({.may_preempt = true});
        std::vector<std::pair<Text *, quire_step_result>> ran;
        for (Text &text : texts) {
            if (roll(3) == 0) continue;
            uint32_t count = 1 + roll(9);
            bool is_first = m.info(text.seq).known_tokens == 0;
            Tokens tokens = tokens_from(is_first ? 1 + roll(2) : dice() % 9999, count);
            quire_step_result result{};
            if (m.try_add(text.seq, tokens, {}, &result) != QUIRE_OK) continue;
            if (result.outcome == QUIRE_ITEM_RUN) ran.emplace_back(&text, result);
        }
        if (roll(8) == 0) return m.abort();
        quire_step committed = m.commit();
        std::vector<quire_block_copy> copies = m.copies(committed);
        zeroed_blocks += zeroed(copies).size();
        memory.execute(copies);
        if (scrubs) {
            quire_cache_stats stats = m.stats();
            ASSERT_LE(memory.written(), stats.blocks_held + stats.blocks_cached);
        }
        for (auto &[text, result] : ran) {
            Blocks table = m.table(text->seq);
            for (uint32_t i = 0; i < table.size() * Memory::kTokens; ++i) {
                int found = memory.slot(table, i);
                ASSERT_TRUE(found == 0 || found == text->tenant)
                    << "slot " << i << " of tenant " << text->tenant << " holds " << found;
            }
            for (uint32_t i = 0; i < result.compute_count; ++i) {
                memory.slot(table, result.first_position + i) = text->tenant;
            }
        }
        m.finish(committed, roll(10) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK);
    }
};

TEST(Zeroing, no_sequence_finds_what_another_tenant_wrote) {
    Tenants tenants;
    for (int i = 0; i < 4000 && !testing::Test::HasFatalFailure(); ++i) {
        tenants.begin_or_end();
        tenants.step();
    }
    tenants.m.check();
    EXPECT_GT(tenants.zeroed_blocks, 1000u);
    EXPECT_GT(tenants.m.stats().blocks_swapped_in, 20u);
}

TEST(ZeroOnFree, only_blocks_that_somebody_has_hold_anything) {
    Tenants tenants(QUIRE_CACHE_ZERO_ON_FREE);
    for (int i = 0; i < 4000 && !testing::Test::HasFatalFailure(); ++i) {
        tenants.begin_or_end();
        tenants.step();
        if (i % 64 == 0) tenants.m.check();
    }
    EXPECT_GT(tenants.zeroed_blocks, 1000u);
    EXPECT_GT(tenants.m.stats().blocks_swapped_in, 20u);
}

// Without any namespace: the target of a copy that was lost with a failed step must be zeroed, and
// an item that takes several such blocks has room for that many copies.
TEST(Zeroing, blocks_that_failed_copies_left_are_zeroed_in_a_cache_of_one_tenant) {
    Manager m;
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    quire_seq x = m.sequence();
    auto fail_a_copy = [&] {
        quire_seq child = m.fork(parent, 6);
        m.begin();
        m.add(child, {7});
        m.finish(m.commit(), QUIRE_STEP_FAILED);
        m.end(child);
    };
    fail_a_copy();
    m.compute(x, tokens_from(50, 2));  // takes the copy's target: zeroed, and trusted again
    fail_a_copy();
    m.end(x);
    fail_a_copy();
    EXPECT_EQ(zeroed_by(m, m.sequence(), tokens_from(100, 8)).size(), 2u);
}

// Tenant 2's data is in the block that step 1 was to zero and that step 2 hands on.
struct HandedOn {
    Manager m{{.blocks = 2}};
    quire_seq holder = 0;
    quire_step zeroing = 0;

    explicit HandedOn(uint32_t token_count, const ItemOptions &item = {}, bool forks = false) {
        quire_seq foreign = m.sequence({.ns = m.name_space()});
        m.compute(foreign, tokens_from(100, 6));
        m.end(foreign, QUIRE_END_DROP_PREFIX);
        quire_seq first = m.sequence();
        m.begin();
        m.add(first, tokens_from(200, 6));
        zeroing = m.commit();
        EXPECT_EQ(zeroed(m.copies(zeroing)), m.table(first));
        m.end(first, QUIRE_END_DROP_PREFIX);
        holder = m.sequence();
        m.begin();
        m.add(holder, tokens_from(1, token_count), item);
        quire_step later = m.commit();
        EXPECT_EQ(zeroed(m.copies(later)), Blocks{}) << "its own tenant wrote it last";
        m.finish(later);
        if (forks) m.fork(holder, token_count);
        m.finish(zeroing, QUIRE_STEP_FAILED);
        m.check();
    }
};

TEST(Zeroing, block_handed_on_before_its_zeroing_failed_is_zeroed_again) {
    HandedOn t(2);
    quire_seq_info info = t.m.info(t.holder);
    EXPECT_EQ(info.computed_tokens, 0u);
    EXPECT_EQ(info.known_tokens, 2u);
    EXPECT_NE(info.flags & QUIRE_SEQ_LOST, 0u);
    EXPECT_EQ(t.m.stats().sequences_lost, 1u);
    Blocks zero = zeroed_by(t.m, t.holder, {});
    EXPECT_EQ(zero, t.m.table(t.holder));
}

TEST(Zeroing, block_written_whole_before_its_zeroing_failed_stays) {
    HandedOn t(4);
    EXPECT_EQ(t.m.info(t.holder).computed_tokens, 4u);
    EXPECT_EQ(t.m.stats().sequences_lost, 0u);
}

TEST(Zeroing, fork_of_a_block_whose_zeroing_failed_loses_it_too) {
    HandedOn t(2, {}, true);
    EXPECT_EQ(t.m.stats().sequences_lost, 2u);
    EXPECT_EQ(t.m.stats().blocks_held, 0u);
}

TEST(Zeroing, only_the_tail_of_what_was_handed_on_is_lost) {
    HandedOn t(6);
    EXPECT_EQ(t.m.info(t.holder).computed_tokens, 4u);
    Blocks zero = zeroed_by(t.m, t.holder, {});
    EXPECT_EQ(zero, Blocks{t.m.table(t.holder)[1]});
}

TEST(Zeroing, lookahead_before_what_was_handed_on_stays) {
    Manager m({.blocks = 3, .flags = QUIRE_CACHE_NO_PREFIX});
    quire_seq foreign = m.sequence({.ns = m.name_space()});
    m.compute(foreign, tokens_from(100, 6));
    m.end(foreign);
    quire_seq holder = m.sequence(), first = m.sequence();
    m.compute(holder, tokens_from(1, 2));
    m.begin();
    m.add(first, tokens_from(200, 6));
    quire_step zeroing = m.commit();
    m.end(first);
    m.compute(holder, {3}, {.lookahead = 9});  // the last of three blocks is reserved
    EXPECT_EQ(m.info(holder).blocks_held, 3u);
    m.finish(zeroing, QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(holder).computed_tokens, 3u);
    EXPECT_EQ(m.info(holder).lookahead_tokens, 1u);
    EXPECT_EQ(m.info(holder).blocks_held, 1u);
}

// Without published blocks, so that truncated tokens are written again in place: the holder wrote
// all of the block, in steps of the given numbers of tokens, and then its zeroing failed.
struct Covered {
    Manager m{{.blocks = 3, .flags = QUIRE_CACHE_NO_PREFIX}};
    quire_seq holder = 0;
    std::vector<quire_step> writers;

    explicit Covered(const std::vector<uint32_t> &counts) {
        quire_seq foreign = m.sequence({.ns = m.name_space()});
        m.compute(foreign, tokens_from(100, 10));
        m.end(foreign);
        quire_seq first = m.sequence();
        m.begin();
        m.add(first, tokens_from(200, 10));
        quire_step zeroing = m.commit();
        m.end(first);
        holder = m.sequence();
        for (uint32_t count : counts) writers.push_back(write(count));
        m.finish(zeroing, QUIRE_STEP_FAILED);
        EXPECT_EQ(m.info(holder).computed_tokens, 4u);
    }
    quire_step write(uint32_t count) {
        m.begin();
        EXPECT_EQ(m.add(holder, tokens_from(1, count)).outcome, uint32_t{QUIRE_ITEM_RUN});
        return m.commit();
    }
    void truncate(uint32_t count) {
        EXPECT_EQ(m.api().seq_truncate(m.cache(), holder, count, m.error()), QUIRE_OK);
        m.check();
    }
    void expect_computed(uint32_t count) { EXPECT_EQ(m.info(holder).computed_tokens, count); }
};

TEST(CoveredBlock, keeps_the_tokens_before_one_that_was_truncated_and_failed) {
    for (bool finishes : {true, false}) {
        Covered t({4});
        if (finishes) t.m.finish(t.writers[0]);
        t.truncate(3);
        t.m.finish(t.write(1), QUIRE_STEP_FAILED);
        t.expect_computed(3);
        t.m.finish(t.write(1));
        t.expect_computed(4 + 1);  // the token that failed was known, and was computed too
        if (finishes) continue;
        t.m.finish(t.writers[0], QUIRE_STEP_FAILED);
        t.expect_computed(0);
        EXPECT_FALSE(zeroed_by(t.m, t.holder, {}).empty());
    }
}

TEST(CoveredBlock, depends_on_each_step_that_wrote_it) {
    Covered t({2, 2});
    t.truncate(2);
    t.m.finish(t.writers[1], QUIRE_STEP_FAILED);
    t.expect_computed(0);  // nothing overwrote its last two slots
    EXPECT_EQ(zeroed_by(t.m, t.holder, {}).size(), 1u);
    t.m.finish(t.writers[0]);
}

TEST(CoveredBlock, depends_on_the_steps_that_wrote_all_of_it_again) {
    Covered t({2, 2});
    t.truncate(2);
    quire_step again = t.write(2);
    t.m.finish(t.writers[1], QUIRE_STEP_FAILED);
    t.expect_computed(4);
    t.truncate(3);
    t.m.finish(t.writers[0]);
    t.m.finish(again, QUIRE_STEP_FAILED);
    t.expect_computed(0);
}

TEST(CoveredBlock, copies_of_it_depend_on_the_same_steps) {
    Covered t({2, 2});
    quire_seq fork = t.m.fork(t.holder, 1);
    t.m.begin();
    t.m.add(fork, {70});
    quire_step copy = t.m.commit();
    ASSERT_EQ(t.m.copies(copy).size(), 1u);
    t.m.finish(copy);
    t.m.finish(t.writers[0]);
    t.m.finish(t.writers[1], QUIRE_STEP_FAILED);
    t.expect_computed(0);
    EXPECT_EQ(t.m.info(fork).computed_tokens, 0u) << "two slots of the copy are foreign";
}

TEST(CoveredBlock, that_an_aborted_step_published_depends_on_what_it_did_before) {
    Manager m({.blocks = 2});
    quire_seq foreign = m.sequence({.ns = m.name_space()});
    m.compute(foreign, tokens_from(100, 6));
    m.end(foreign, QUIRE_END_DROP_PREFIX);
    quire_seq first = m.sequence();
    m.begin();
    m.add(first, tokens_from(200, 6));
    quire_step zeroing = m.commit();
    m.end(first, QUIRE_END_DROP_PREFIX);
    quire_seq holder = m.sequence();
    m.begin();
    Tokens unnamed = tokens_from(1, 4);
    unnamed[1] = QUIRE_TOKEN_UNKNOWN;
    m.add(holder, unnamed);
    quire_step writer = m.commit();
    m.finish(zeroing, QUIRE_STEP_FAILED);
    m.begin();
    m.set_tokens(holder, 1, {2});
    m.add(holder, {5});
    m.abort();
    m.finish(writer, QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(holder).computed_tokens, 0u);
    m.check();
}

TEST(Zeroing, lookahead_in_what_was_handed_on_is_given_back) {
    HandedOn t(4, {.lookahead = 3});
    quire_seq_info info = t.m.info(t.holder);
    EXPECT_EQ(info.computed_tokens, 4u);
    EXPECT_EQ(info.lookahead_tokens, 0u);
    EXPECT_EQ(info.blocks_held, 1u);
    EXPECT_EQ(info.flags & QUIRE_SEQ_LOST, 0u) << "no computed token was taken back";
    Blocks zero = zeroed_by(t.m, t.holder, {5});
    EXPECT_EQ(zero, Blocks{t.m.table(t.holder)[1]});
}

}  // namespace
