// SPDX-License-Identifier: Apache-2.0
//
// Masks of items: how a batch's views describe them, which are refused, and how they affect lookup.

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kQuery = 64, kWords = 64;

class MaskTest : public testing::Test {
 protected:
    MaskTest() : m({.max_sequence_tokens = 100}) {
        auto desc = described<quire_batch_desc>();
        desc.max_rows = 4;
        desc.max_blocks_per_row = 16;
        desc.max_query_tokens = kQuery;
        desc.max_mask_words = kWords;
        EXPECT_EQ(m.api().batch_create(m.cache(), &desc, &batch, m.error()), QUIRE_OK)
            << m.message();
    }
    ~MaskTest() override { EXPECT_EQ(m.api().batch_destroy(batch, m.error()), QUIRE_OK); }

    quire_batch_views views() {
        auto out = described<quire_batch_views>();
        EXPECT_EQ(m.api().batch_get_views(batch, 0, 0, &out, m.error()), QUIRE_OK);
        return out;
    }
    template <typename T>
    std::vector<T> read(uint64_t address, size_t count) {
        const T *at = reinterpret_cast<const T *>(address);
        return std::vector<T>(at, at + count);
    }
    // Commits the step with its batch and finishes it.
    void run() { m.finish(m.commit(batch)); }

    Manager m;
    quire_batch *batch = nullptr;
};

using Ints = std::vector<int32_t>;
using Words = std::vector<uint32_t>;

// The drafts   0 - 2 - 4
//              |   \ 3
//              1
TEST_F(MaskTest, a_tree_sees_ancestors_and_counts_positions_by_depth) {
    quire_seq plain = m.sequence(), tree = m.sequence();
    m.compute(plain, tokens_from(1, 3));
    m.compute(tree, tokens_from(50, 6));
    m.begin();
    m.add(plain, tokens_from(4, 2));
    uint32_t root = QUIRE_MASK_ROOT;
    m.add(tree, tokens_from(90, 6), {.drafts = 5, .parents = {root, 0, 0, 2, 2}});
    run();
    quire_batch_views v = views();
    EXPECT_EQ(read<int32_t>(v.positions, 8), (Ints{3, 4, 6, 7, 8, 8, 9, 9}));
    EXPECT_EQ(read<int32_t>(v.mask_rows, 8), (Ints{-1, -1, -1, 0, 1, 2, 3, 4}));
    EXPECT_EQ(read<int32_t>(v.mask_first, 2)[1], 7);
    EXPECT_EQ(read<uint32_t>(v.mask, 5), (Words{1, 3, 5, 13, 21}));
    ASSERT_EQ(m.api().seq_accept(m.cache(), tree, 0, m.error()), QUIRE_OK);
    // The next step, without masks, leaves no trace of them.
    m.begin();
    m.add(plain, tokens_from(6, 1));
    m.add(tree, tokens_from(96, 1));
    run();
    EXPECT_EQ(read<int32_t>(views().mask_rows, 8), Ints(8, -1));
    EXPECT_EQ(read<int32_t>(views().positions, 2), (Ints{5, 7}));
}

TEST_F(MaskTest, bits_reach_the_batch_as_they_are) {
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 30));
    m.begin();
    // With 4 more, 34 tokens are known; bits about keys 1 to 33 take two words per row.
    Tokens words = {1, 31, 32, 31, 0xF0F0F0F0, 1, 0xFFFFFFFF, 0, 0x80000001, 1};
    m.add(seq, tokens_from(31, 4), {.bits = words, .bits_rows = 3});
    run();
    quire_batch_views v = views();
    EXPECT_EQ(read<int32_t>(v.positions, 4), (Ints{30, 31, 32, 31}));
    EXPECT_EQ(read<int32_t>(v.mask_rows, 4), (Ints{-1, 0, 2, 4}));
    EXPECT_EQ(read<int32_t>(v.mask_first, 1), Ints{1});
    EXPECT_EQ(read<uint32_t>(v.mask, 6), (Words{0xF0F0F0F0, 1, 0xFFFFFFFF, 0, 0x80000001, 1}));
}

TEST_F(MaskTest, what_a_mask_is_about_is_not_taken_from_a_prefix) {
    quire_seq first = m.sequence(), second = m.sequence();
    m.compute(first, tokens_from(1, 16));
    m.begin();
    Tokens words = {10, 10, 11, 12, 13, 63, 63, 63, 63};
    quire_step_result result = m.add(second, tokens_from(1, 14), {.bits = words, .bits_rows = 4});
    EXPECT_EQ(result.hit_tokens, 8u) << "whole blocks before token 10, not 12 of them";
    EXPECT_EQ(result.compute_count, 6u);
    run();
    EXPECT_EQ(read<int32_t>(views().mask_rows, 6), (Ints{-1, -1, 0, 1, 2, 3}));
}

// Drafts may be accepted before they are written, and moved, which a shared block does not allow.
TEST_F(MaskTest, drafts_are_not_taken_from_a_prefix) {
    m.compute(m.sequence(), tokens_from(1, 16));
    quire_seq chain = m.sequence(), tree = m.sequence();
    m.begin();
    EXPECT_EQ(m.add(chain, tokens_from(1, 15), {.drafts = 6}).hit_tokens, 8u);
    m.abort();
    m.begin();
    // The mask is about the last draft only.
    Tokens words = {0, 14, 0x7FFF};
    EXPECT_EQ(
        m.add(tree, tokens_from(1, 15), {.drafts = 6, .bits = words, .bits_rows = 1}).hit_tokens,
        8u);
    m.abort();
}

TEST_F(MaskTest, wrong_masks_are_refused_and_nothing_changes) {
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 5));
    m.begin();
    std::string before = m.books();
    auto refuse = [&](const ItemOptions &item, quire_status expected, uint32_t count = 4) {
        quire_step_result result{};
        EXPECT_EQ(m.try_add(seq, tokens_from(6, count), item, &result), expected);
        EXPECT_NE(m.message().find("items[0]"), std::string::npos) << m.message();
        EXPECT_EQ(m.books(), before);
    };
    refuse({.drafts = 2, .parents = {0}}, QUIRE_E_ARG);            // one parent per draft
    refuse({.drafts = 2, .parents = {0, 1}}, QUIRE_E_ARG);         // its own parent
    refuse({.drafts = 2, .parents = {1, 0}}, QUIRE_E_ARG);         // a later one
    refuse({.bits = {0, 5, 511}, .bits_rows = 1}, QUIRE_E_ARG);    // position before the token
    refuse({.bits = {0, 9, 511}, .bits_rows = 1}, QUIRE_E_ARG);    // after the last token
    refuse({.bits = {9, 8, 511}, .bits_rows = 1}, QUIRE_E_ARG);    // bits after the token
    refuse({.bits = {0, 8}, .bits_rows = 1}, QUIRE_E_ARG);         // no bits
    refuse({.bits = {0}, .bits_rows = 1}, QUIRE_E_ARG);            // neither position nor bits
    refuse({.bits = {0, 8, 511}, .bits_rows = 0}, QUIRE_E_ARG);    // about no token
    refuse({.bits = Tokens(40, 0), .bits_rows = 5}, QUIRE_E_ARG);  // about a computed token
    refuse({.bits = {0, 8, 511}, .bits_rows = 0xFFFFFFFF}, QUIRE_E_ARG);
    refuse({.max_compute = 3, .bits = {0, 8, 511}, .bits_rows = 1}, QUIRE_E_ARG);  // in parts
    m.add(seq, tokens_from(6, 4), {.bits = {0, 8, 511}, .bits_rows = 1});
    m.abort();
    EXPECT_EQ(m.info(seq).known_tokens, 5u);
}

TEST_F(MaskTest, more_words_than_the_batch_holds_leave_the_step_open) {
    quire_seq seq = m.sequence();
    m.begin();
    uint32_t drafts = 40;  // each row takes two words
    std::vector<uint32_t> parents(drafts, QUIRE_MASK_ROOT);
    m.add(seq, tokens_from(1, drafts), {.drafts = drafts, .parents = parents});
    EXPECT_EQ(m.api().step_commit(m.cache(), m.open(), batch, m.error()), QUIRE_E_LIMIT);
    EXPECT_NE(m.message().find("max_mask_words"), std::string::npos) << m.message();
    m.abort();
}

TEST_F(MaskTest, a_batch_without_room_for_masks_refuses_them) {
    auto desc = described<quire_batch_desc>();
    desc.max_rows = desc.max_blocks_per_row = desc.max_query_tokens = 8;
    quire_batch *bare = nullptr;
    ASSERT_EQ(m.api().batch_create(m.cache(), &desc, &bare, m.error()), QUIRE_OK);
    m.begin();
    m.add(m.sequence(), tokens_from(1, 2), {.drafts = 1, .parents = {QUIRE_MASK_ROOT}});
    EXPECT_EQ(m.api().step_commit(m.cache(), m.open(), bare, m.error()), QUIRE_E_LIMIT);
    m.abort();
    EXPECT_EQ(m.api().batch_destroy(bare, m.error()), QUIRE_OK);
}

}  // namespace
