// SPDX-License-Identifier: Apache-2.0
//
// Accepting a path through a tree of drafts, by named examples (random ones: content_test, model).

#include "manager.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kRoot = QUIRE_MASK_ROOT;

class PathTest : public testing::Test {
 protected:
    // 5 tokens, one more and 5 drafts:   0 - 2 - 4
    //                                    |   \ 3      and 1, a child of 0
    quire_seq drafted() {
        quire_seq seq = m.sequence();
        m.compute(seq, tokens_from(1, 5));
        m.compute(seq, tokens_from(6, 6), {.drafts = 5, .parents = {kRoot, 0, 0, 2, 2}});
        return seq;
    }
    quire_status accept(quire_seq seq, const std::vector<uint32_t> &path) {
        return m.api().seq_accept_path(m.cache(), seq, path.data(),
                                       static_cast<uint32_t>(path.size()), m.error());
    }
    // The token moves of the sequence's next step, as slots.
    std::vector<std::pair<int32_t, int32_t>> moves_of_next(quire_seq seq) {
        m.begin();
        m.add(seq, tokens_from(70, 1));
        std::vector<std::pair<int32_t, int32_t>> out;
        for (const quire_block_copy &copy : m.copies(m.open())) {
            EXPECT_EQ(copy.kind, uint32_t{QUIRE_COPY_TOKEN});
            out.emplace_back(copy.src * 4 + static_cast<int32_t>(copy.src_place),
                             copy.dst * 4 + static_cast<int32_t>(copy.dst_place));
        }
        m.finish(m.commit());
        return out;
    }
    int32_t slot(const Blocks &table, uint32_t position) {
        return table[position / 4] * 4 + static_cast<int32_t>(position % 4);
    }

    Manager m{{.host_blocks = 16}};
};

TEST_F(PathTest, tokens_out_of_place_move_in_the_next_step) {
    quire_seq seq = drafted();
    Blocks table = m.table(seq);
    ASSERT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK) << m.message();
    EXPECT_EQ(m.info(seq).known_tokens, 9u);
    EXPECT_EQ(m.info(seq).computed_tokens, 9u);
    EXPECT_EQ(m.info(seq).draft_tokens, 0u);
    using Moves = std::vector<std::pair<int32_t, int32_t>>;
    Moves wanted = {{slot(table, 8), slot(table, 7)}, {slot(table, 10), slot(table, 8)}};
    EXPECT_EQ(moves_of_next(seq), wanted);
    EXPECT_EQ(moves_of_next(seq), Moves()) << "once";
    // The kept tokens are 1 to 5, 6, and drafts 7, 9 and 11.
    Tokens kept = {1, 2, 3, 4, 5, 6, 7, 9, 11, 70, 70};
    EXPECT_EQ(m.probe(joined(kept, {1, 2})), 8u);
}

TEST_F(PathTest, a_second_path_leaves_the_moves_of_the_first) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK);
    std::string before = m.books();
    EXPECT_EQ(accept(seq, {}), QUIRE_OK);
    EXPECT_EQ(accept(seq, {1}), QUIRE_E_ARG);
    EXPECT_NE(m.message().find("no drafts"), std::string::npos) << m.message();
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(moves_of_next(seq).size(), 2u);
}

TEST_F(PathTest, a_path_in_place_moves_nothing) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 1}), QUIRE_OK);
    EXPECT_TRUE(moves_of_next(seq).empty());
    quire_seq none = drafted();
    ASSERT_EQ(accept(none, {}), QUIRE_OK);
    EXPECT_EQ(m.info(none).known_tokens, 6u);
}

TEST_F(PathTest, only_ways_through_the_tree_are_accepted) {
    quire_seq seq = drafted();
    std::string before = m.books();
    for (const std::vector<uint32_t> &path :
         {std::vector<uint32_t>{1}, {0, 3}, {0, 2, 2}, {2, 0}, {0, 5}, {0, 1, 2}, {kRoot}}) {
        EXPECT_EQ(accept(seq, path), QUIRE_E_ARG) << path[0];
        EXPECT_NE(m.message().find("path["), std::string::npos) << m.message();
        EXPECT_EQ(m.books(), before);
    }
    ASSERT_EQ(accept(seq, {0, 2, 3}), QUIRE_OK);
    EXPECT_EQ(accept(seq, {0}), QUIRE_E_ARG) << "its drafts are accepted";
}

TEST_F(PathTest, siblings_are_no_chain) {
    quire_seq seq = drafted();
    std::string before = m.books();
    EXPECT_EQ(m.api().seq_accept(m.cache(), seq, 3, m.error()), QUIRE_E_ARG);
    EXPECT_NE(m.message().find("quire_seq_accept_path"), std::string::npos) << m.message();
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(m.api().seq_accept(m.cache(), seq, 2, m.error()), QUIRE_OK) << "0 and its child 1";
}

// The tree of drafted() as bits: rows 1, 3, 5, 13, 21 about the drafts, after six tokens.
TEST_F(PathTest, a_tree_of_bits_is_the_tree_of_its_parents) {
    for (uint32_t spoilt = 0; spoilt < 4; ++spoilt) {
        quire_seq seq = m.sequence();
        m.compute(seq, tokens_from(1, 5));
        Tokens words = {6, 6, 7, 7, 8, 8, 1, 3, 5, 13, 21};
        if (spoilt == 1) words[4] = 9;   // draft 3's position is too large
        if (spoilt == 2) words[9] = 9;   // draft 3 does not see 2, which sees 0
        if (spoilt == 3) words[9] = 29;  // it sees draft 4, which comes later
        m.compute(seq, tokens_from(6, 6), {.drafts = 5, .bits = words, .bits_rows = 5});
        EXPECT_EQ(accept(seq, {1}), QUIRE_E_ARG);
        EXPECT_EQ(accept(seq, {0, 2, 3}), spoilt == 0 ? QUIRE_OK : QUIRE_E_ARG) << spoilt;
        if (spoilt != 0) {
            EXPECT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK) << m.message();
        }
        EXPECT_EQ(moves_of_next(seq).size(), 2u);
    }
}

// A draft that does not see all of the text before it is not what plain text would have there.
TEST_F(PathTest, a_draft_that_misses_a_token_is_not_accepted) {
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 5));
    m.compute(seq, {6, 7}, {.drafts = 1, .bits = {0, 6, 0x7E}, .bits_rows = 1});
    EXPECT_EQ(accept(seq, {0}), QUIRE_E_ARG);
    EXPECT_EQ(accept(seq, {}), QUIRE_OK);
}

TEST_F(PathTest, a_chain_is_accepted_from_its_front) {
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 4), {.drafts = 3});
    EXPECT_EQ(accept(seq, {1}), QUIRE_E_ARG);
    EXPECT_EQ(accept(seq, {0, 1}), QUIRE_OK);
    EXPECT_EQ(m.info(seq).known_tokens, 3u);
}

TEST_F(PathTest, nothing_that_is_to_be_moved_is_found_or_forked) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK);
    Tokens kept = {1, 2, 3, 4, 5, 6, 7, 9, 11};
    EXPECT_EQ(m.probe(kept), 4u) << "the second block's tokens are still to be moved";
    quire_seq fork = m.fork(seq, 9);
    EXPECT_EQ(m.info(fork).computed_tokens, 7u);
    EXPECT_EQ(m.info(fork).known_tokens, 9u);
    moves_of_next(seq);
    EXPECT_EQ(m.probe(kept), 8u);
}

TEST_F(PathTest, an_aborted_step_leaves_the_moves_to_the_next) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2}), QUIRE_OK);
    m.begin();
    m.add(seq, tokens_from(70, 1));
    EXPECT_EQ(m.copies(m.open()).size(), 1u);
    m.abort();
    EXPECT_EQ(moves_of_next(seq).size(), 1u);
}

TEST_F(PathTest, a_failed_step_leaves_only_what_was_in_place) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2}), QUIRE_OK);
    m.begin();
    m.add(seq, tokens_from(70, 1));
    m.finish(m.commit(), QUIRE_STEP_FAILED);
    EXPECT_EQ(m.info(seq).computed_tokens, 7u);
    EXPECT_EQ(m.info(seq).known_tokens, 9u);
}

TEST_F(PathTest, a_swap_gives_the_moved_tokens_up) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK);
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), seq, QUIRE_PREEMPT_SWAP, &freed, m.error()),
              QUIRE_OK);
    m.finish(m.commit());
    quire_step_result result = m.compute(seq, {});
    EXPECT_EQ(result.first_position, 7u);
    EXPECT_EQ(result.compute_count, 2u);
}

TEST_F(PathTest, a_truncate_forgets_what_it_cuts_off) {
    quire_seq seq = drafted();
    ASSERT_EQ(accept(seq, {0, 2, 4}), QUIRE_OK);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), seq, 8, m.error()), QUIRE_OK);
    EXPECT_EQ(moves_of_next(seq).size(), 1u);
}

TEST(Path, of_none_without_drafts_leaves_the_lookahead) {
    Manager m;
    quire_seq seq = m.sequence();
    m.compute(seq, tokens_from(1, 5), {.lookahead = 6});
    std::string before = m.books();
    EXPECT_EQ(m.api().seq_accept_path(m.cache(), seq, nullptr, 0, m.error()), QUIRE_OK);
    EXPECT_EQ(m.books(), before);
    EXPECT_EQ(m.api().seq_accept(m.cache(), seq, 6, m.error()), QUIRE_OK) << m.message();
}

}  // namespace
