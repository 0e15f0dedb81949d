// SPDX-License-Identifier: Apache-2.0
//
// Random drops of items anywhere in a step: whatever happens around them, two tables never read
// different tokens from one block. The reference model drops only the newest item; this test covers
// the other drops.

#include <algorithm>
#include <map>
#include <optional>
#include <random>

#include "manager.hpp"
#include "tests/effort.hpp"
#include "tests/whole_state.hpp"

namespace {

using namespace quire::test;

constexpr uint32_t kBlockTokens = 4;

struct Player {
    quire_seq seq = 0;
    Tokens tokens;
};

class Game {
 public:
    explicit Game(uint32_t seed) : dice_(seed), looks_(seed % 8 == 0) {
        bool windows = seed % 2 == 0;
        CacheOptions options{.blocks = 14 + seed % 20, .host_blocks = 24};
        if (windows) options.groups = {{0, options.blocks}, {9, options.blocks}};
        group_count_ = windows ? 2 : 1;
        m_.emplace(options);
    }

    void play(uint32_t operations) {
        for (uint32_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
            one();
            expect_no_block_of_two_contents();
        }
    }

    uint64_t dropped = 0, dropped_along = 0, refused = 0, aborted = 0;

 private:
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>(dice_() % bound); }

    void one() {
        if (m_->open() == 0) return between_steps();
        if (players_.empty()) return abort();
        Player &p = players_[below(static_cast<uint32_t>(players_.size()))];
        switch (below(10)) {
            case 0:
            case 1:
                return drop(p.seq);
            case 2:
                return preempt(p.seq);
            case 3:
                return below(2) == 0 ? abort() : commit();
            default:
                return add(&p);
        }
    }

    void between_steps() {
        uint32_t choice = below(12);
        if (players_.size() < 3 || (choice == 0 && players_.size() < 9)) {
            players_.push_back({m_->sequence(), {}});
        } else if (choice == 1) {
            uint32_t i = below(static_cast<uint32_t>(players_.size()));
            m_->end(players_[i].seq);
            players_.erase(players_.begin() + i);
        } else if (choice <= 3 && players_.size() < 9) {
            fork();
        } else if (choice == 4) {
            Player &p = players_[below(static_cast<uint32_t>(players_.size()))];
            uint32_t known = m_->info(p.seq).known_tokens;
            // Refused if the sequence is swapped out.
            (void)m_->api().seq_truncate(m_->cache(), p.seq, below(known + 1), m_->error());
        } else {
            if (looks_) at_begin_ = m_->snapshot();
            m_->begin({.queue = below(2), .may_preempt = below(2) == 0});
        }
    }

    // Some steps run on while others begin, also on another queue.
    void commit() {
        running_.push_back(m_->commit());
        while (running_.size() > 3 || (!running_.empty() && below(2) == 0)) {
            m_->finish(running_.front());
            running_.erase(running_.begin());
        }
    }

    void abort() {
        m_->abort();
        ++aborted;
        if (!looks_) return;
        EXPECT_EQ(difference(at_begin_, m_->snapshot()), "") << "aborted, and something changed";
    }

    void fork() {
        Player parent = players_[below(static_cast<uint32_t>(players_.size()))];
        quire_seq child = 0;
        uint32_t count = below(m_->info(parent.seq).known_tokens + 1);
        if (m_->api().seq_fork(m_->cache(), parent.seq, count, &child, m_->error()) < 0) return;
        m_->adopt(child);
        players_.push_back({child, parent.tokens});
    }

    // Prompts of four families, so that some hit; an error if the sequence is already in the step.
    void add(Player *p) {
        uint32_t known = m_->info(p->seq).known_tokens;
        Tokens more;
        uint32_t count = below(3) == 0 ? 1 + below(18) : 1 + below(4), family = below(4);
        for (uint32_t i = 0; i < count; ++i) more.push_back(100 * family + (known + i) % 50);
        quire_step_result result{};
        std::string before = looked_at();
        if (m_->try_add(p->seq, more, {}, &result) < 0) return expect_refused(before);
        p->tokens.resize(known);
        p->tokens.insert(p->tokens.end(), more.begin(), more.end());
    }

    // The books, which are slow to take, before some calls of one game in eight; otherwise empty.
    std::string looked_at() { return looks_ && below(5) == 0 ? m_->books() : ""; }
    void expect_refused(const std::string &before) {
        ++refused;
        if (before.empty()) return;
        EXPECT_EQ(difference(before, m_->books()), "") << "refused, and something changed";
    }

    void drop(quire_seq seq) {
        std::string before = looked_at();
        quire_seq out[16];
        uint32_t count = 0;
        quire_status status =
            m_->api().step_drop(m_->cache(), m_->open(), seq, out, 16, &count, m_->error());
        if (status == QUIRE_OK) {
            ++dropped;
            dropped_along += count - 1;
        } else {
            expect_refused(before);
        }
    }

    void preempt(quire_seq seq) {
        uint32_t freed = 0;
        std::string before = looked_at();
        quire_status status =
            m_->api().step_preempt(m_->cache(), m_->open(), seq, below(3), &freed, m_->error());
        if (status != QUIRE_OK) expect_refused(before);
    }

    void expect_no_block_of_two_contents() {
        m_->check();
        for (uint32_t g = 0; g < group_count_; ++g) {
            std::map<int32_t, std::pair<const Player *, uint32_t>> seen;
            for (const Player &p : players_) {
                Blocks table = m_->table(p.seq, g);
                for (uint32_t i = 0; i < table.size(); ++i) {
                    if (table[i] == 0) continue;
                    auto [it, fresh] = seen.emplace(table[i], std::pair(&p, i));
                    if (!fresh) expect_same(*it->second.first, p, it->second.second, i);
                }
            }
        }
    }
    // Two tables may share a block only at the same index, with equal tokens up to its end.
    void expect_same(const Player &a, const Player &b, uint32_t place_a, uint32_t place_b) {
        ASSERT_EQ(place_a, place_b) << "one block at two indices";
        uint32_t end = std::min({m_->info(a.seq).computed_tokens, m_->info(b.seq).computed_tokens,
                                 (place_a + 1) * kBlockTokens});
        for (uint32_t i = 0; i < end; ++i) {
            ASSERT_EQ(a.tokens[i], b.tokens[i]) << "one block holds two contents";
        }
    }

    std::mt19937 dice_;
    bool looks_;
    std::string at_begin_;
    std::vector<quire_step> running_;
    std::optional<Manager> m_;
    uint32_t group_count_ = 1;
    std::vector<Player> players_;
};

TEST(Drop, anywhere_in_a_step_leaves_no_block_with_two_contents) {
    uint64_t dropped = 0, along = 0, refused = 0, aborted = 0;
    auto all = quire::tests::seeds(1, {.all = 1500, .usual = 500, .few = 200});
    for (uint64_t seed : all) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        Game game(static_cast<uint32_t>(seed));
        game.play(200);
        dropped += game.dropped, along += game.dropped_along, refused += game.refused;
        aborted += game.aborted;
        if (HasFailure()) return;
    }
    bool is_whole = all.size() == 1500;
    EXPECT_GT(dropped, is_whole ? 8000 : 5 * all.size());
    // The list has 169; the poorest 200 seeds in a row have 11, the poorest 500 have 35.
    EXPECT_GT(along, is_whole ? 100 : all.size() / 20) << "later items go with their bases";
    EXPECT_GT(refused, 100u);
    EXPECT_GT(aborted, all.size());
}

// The parent's copy on write gives up its block, and the same step hands it to another sequence.
TEST(Drop, item_that_took_what_another_gave_up_goes_with_it) {
    Manager m({.blocks = 3});
    quire_seq a = m.sequence(), c = m.sequence();
    m.compute(a, tokens_from(1, 8));
    ASSERT_EQ(m.api().seq_truncate(m.cache(), a, 6, m.error()), QUIRE_OK);
    Blocks before = m.table(a);
    m.begin();
    m.add(a, {77});  // its last block is published: the item copies it and gives it up
    ASSERT_NE(m.table(a)[1], before[1]);
    ASSERT_EQ(m.add(c, tokens_from(500, 3)).outcome, uint32_t{QUIRE_ITEM_RUN});
    ASSERT_EQ(m.table(c)[0], before[1]) << "taken in the same step";
    EXPECT_EQ(m.drop(a), (std::vector<quire_seq>{a, c}));
    EXPECT_EQ(m.table(a), before);
    EXPECT_TRUE(m.table(c).empty());
}

// C1 copies the block that it shares with C2 and drops its reference, so that C2 writes in place.
TEST(Drop, item_that_writes_in_place_because_another_let_go_goes_with_it) {
    for (uint32_t sharers : {2u, 3u}) {
        Manager m({.block_tokens = 8});
        quire_seq parent = m.sequence();
        m.compute(parent, tokens_from(1, 6));
        quire_seq c1 = m.fork(parent, 6), c2 = m.fork(parent, 3);
        if (sharers == 2) m.end(parent);
        Blocks shared = m.table(c1);
        m.begin();
        m.add(c1, {7});
        // The third sharer gives up the block too, but is not dropped along with C1.
        uint32_t freed = 0;
        if (sharers == 3) {
            ASSERT_EQ(m.api().step_preempt(m.cache(), m.open(), parent, QUIRE_PREEMPT_RECOMPUTE,
                                           &freed, m.error()),
                      QUIRE_OK);
        }
        m.add(c2, {8});
        ASSERT_EQ(m.table(c2), shared) << "written in place";
        EXPECT_EQ(m.drop(c1), (std::vector<quire_seq>{c1, c2}));
        m.add(c2, {8});
        EXPECT_NE(m.table(c2), shared) << "a copy, because C1 reads the block";
        EXPECT_EQ(m.table(c1), shared);
        m.finish(m.commit());
    }
}

// A victim's swap drops a reference to the block just as an item's copy does.
TEST(Drop, item_does_not_go_for_what_a_victim_let_go) {
    Manager m({.block_tokens = 8, .host_blocks = 8});
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 6));
    quire_seq child = m.fork(parent, 3), other = m.sequence();
    m.begin();
    uint32_t freed = 0;
    ASSERT_EQ(
        m.api().step_preempt(m.cache(), m.open(), parent, QUIRE_PREEMPT_SWAP, &freed, m.error()),
        QUIRE_OK);
    m.add(other, {1});
    m.add(child, {8});
    EXPECT_EQ(m.drop(other), (std::vector<quire_seq>{other}));
    m.finish(m.commit());
    EXPECT_EQ(m.info(child).computed_tokens, 4u);
}

TEST(Drop, fork_that_published_over_what_the_parent_gave_up_goes_with_it) {
    Manager m({.blocks = 8});
    quire_seq parent = m.sequence();
    m.compute(parent, tokens_from(1, 4));
    quire_seq fork = m.fork(parent, 3);
    ASSERT_EQ(m.api().seq_truncate(m.cache(), parent, 3, m.error()), QUIRE_OK);
    m.begin();
    m.add(parent, {9});
    m.add(fork, {4});
    m.drop(parent);
    m.abort();
    m.check();
    EXPECT_EQ(m.info(parent).computed_tokens, 3u);
}

}  // namespace
