// SPDX-License-Identifier: Apache-2.0
//
// An engine with one number per token: it executes the listed copies and writes tokens to their
// slots, so that a block that was handed out too early, copied too late or named by the wrong
// sequence shows up as a wrong number in some sequence's context.

#include <algorithm>
#include <map>
#include <random>

#include "manager.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::test;

struct Row {
    quire_seq seq = 0;
    Tokens tokens;
    uint32_t moved_from = UINT32_MAX;  // its next step moves the tokens from here on
    std::vector<uint32_t> parents;     // of the drafts at its end
};

// The other-input row of a sequence at a position.
quire_token cross_token(quire_seq seq, uint32_t place) {
    return static_cast<quire_token>(seq % 1000 * 1000 + place);
}

class Engine {
 public:
    explicit Engine(const CacheOptions &options) : options_(options), m_(options) {
        memory_.resize(options.groups.size());
        for (size_t g = 0; g < memory_.size(); ++g) {
            has_cross_ = has_cross_ || options.groups[g].kind == QUIRE_GROUP_CROSS;
            memory_[g].device.resize((options.blocks + 1) * options.block_tokens);
            memory_[g].host.resize((options.host_blocks + 1) * options.block_tokens);
        }
    }

    void run(uint64_t seed, int steps) {
        dice_.seed(seed);
        for (int i = 0; i < steps; ++i) {
            change_sequences();
            step();
            for (const Row &row : rows_) expect_own_content(row);
            if (testing::Test::HasFailure()) return;
        }
    }
    const quire_cache_stats stats() { return m_.stats(); }
    void draft_trees() { trees_ = true; }
    uint32_t scattered_ways() const { return accepted_; }

 private:
    struct Memory {
        std::vector<quire_token> device, host;
    };

    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(dice_() % limit); }

    void change_sequences() {
        accept_drafts();
        if (rows_.size() < 9) rows_.push_back(new_row());
        uint32_t who = below(static_cast<uint32_t>(rows_.size()));
        Row &row = rows_[who];
        uint32_t known = m_.info(row.seq).known_tokens;
        bool swapped = (m_.info(row.seq).flags & QUIRE_SEQ_SWAPPED) != 0;
        switch (below(6)) {
            case 0:
                m_.end(row.seq);
                rows_.erase(rows_.begin() + who);
                break;
            case 1:
            case 2:
                if (!swapped && rows_.size() < 14) {
                    uint32_t at = below(std::min(known, row.moved_from) + 1);
                    Tokens tokens(row.tokens.begin(), row.tokens.begin() + at);
                    rows_.push_back(Row{m_.fork(row.seq, at), tokens, UINT32_MAX, {}});
                    cross_of_[rows_.back().seq] = cross_of_[rows_[who].seq];
                }
                break;
            case 3: {
                uint32_t kept = known - below(known / 3 + 1);
                ASSERT_EQ(m_.api().seq_truncate(m_.cache(), row.seq, kept, m_.error()), QUIRE_OK);
                row.tokens.resize(kept);
                if (kept <= row.moved_from) row.moved_from = UINT32_MAX;
                break;
            }
            default:
                break;
        }
    }

    Row new_row() {
        Row row;
        row.seq = m_.sequence({.cross_tokens = has_cross_ ? 1 + below(9) : 0});
        cross_of_[row.seq] = row.seq;
        return row;
    }

    // Accepts a random path down each tree of drafts.
    void accept_drafts() {
        for (Row &row : rows_) {
            if (row.parents.empty()) continue;
            std::vector<uint32_t> path;
            for (uint32_t i = 0; i < row.parents.size(); ++i) {
                uint32_t above = path.empty() ? QUIRE_MASK_ROOT : path.back();
                if (row.parents[i] == above && below(3) != 0) path.push_back(i);
            }
            ASSERT_EQ(m_.api().seq_accept_path(m_.cache(), row.seq, path.data(),
                                               static_cast<uint32_t>(path.size()), m_.error()),
                      QUIRE_OK)
                << m_.message();
            size_t base = row.tokens.size() - row.parents.size();
            Tokens kept(row.tokens.begin(), row.tokens.begin() + static_cast<long>(base));
            for (uint32_t i = 0; i < path.size(); ++i) {
                if (path[i] != i && row.moved_from == UINT32_MAX) {
                    row.moved_from = static_cast<uint32_t>(base) + i;
                }
                kept.push_back(row.tokens[base + path[i]]);
            }
            accepted_ += row.moved_from != UINT32_MAX ? 1 : 0;
            row.tokens = kept;
            row.parents.clear();
        }
    }

    void step() {
        m_.begin({.may_preempt = true, .preempt = below(3)});
        if (below(4) == 0 && !rows_.empty()) {
            uint32_t freed = 0;
            quire_seq victim = rows_[below(static_cast<uint32_t>(rows_.size()))].seq;
            m_.api().step_preempt(m_.cache(), m_.open(), victim, below(3), &freed, m_.error());
        }
        std::map<quire_seq, quire_step_result> ran;
        for (Row &row : rows_) {
            if (below(3) == 0) continue;
            uint32_t known = static_cast<uint32_t>(row.tokens.size());
            // Only a few different contents, so that prefixes are found.
            Tokens more = tokens_from(1000 * below(2) + known,
                                      below(trees_ ? 2 : 4) == 0 ? 1 + below(12) : 1);
            ItemOptions item{.max_compute = below(4) == 0 ? 1 + below(6) : 0};
            std::vector<uint32_t> parents;
            if (trees_ && item.max_compute == 0 && below(2) == 0) {
                item.drafts = below(static_cast<uint32_t>(more.size()) + 1);
                for (uint32_t i = 0; i < item.drafts; ++i) parents.push_back(below(i + 1) - 1);
                item.parents = parents;
            }
            quire_step_result result = m_.add(row.seq, more, item);
            if (result.outcome != QUIRE_ITEM_RUN) continue;
            row.tokens = joined(row.tokens, more);
            row.parents = parents;
            ran[row.seq] = result;
        }
        bool aborted = below(8) == 0;
        if (aborted) {
            m_.abort();
            for (Row &row : rows_) {
                row.tokens.resize(m_.info(row.seq).known_tokens);
                row.parents.clear();
            }
            return;
        }
        std::map<quire_seq, std::vector<Blocks>> planned;
        for (const Row &row : rows_) {
            for (uint32_t g = 0; g < memory_.size(); ++g) {
                planned[row.seq].push_back(m_.table(row.seq, g));
            }
        }
        quire_step committed = m_.commit();
        execute(m_.copies(committed));
        for (Row &row : rows_) {
            bool gave_up = (m_.info(row.seq).flags & QUIRE_SEQ_PREEMPTED) != 0;
            if (ran.count(row.seq) != 0) write(row, ran[row.seq], planned[row.seq]);
            if (ran.count(row.seq) != 0 || gave_up) row.moved_from = UINT32_MAX;
        }
        m_.finish(committed);
    }

    void execute(const std::vector<quire_block_copy> &copies) {
        for (const quire_block_copy &copy : copies) {
            Memory &memory = memory_[copy.group];
            auto &from = copy.kind == QUIRE_COPY_SWAP_IN ? memory.host : memory.device;
            auto &to = copy.kind == QUIRE_COPY_SWAP_OUT ? memory.host : memory.device;
            if (copy.kind == QUIRE_COPY_TOKEN) {
                to[at(copy.dst) + copy.dst_place] = from[at(copy.src) + copy.src_place];
                continue;
            }
            for (uint32_t slot = 0; slot < options_.block_tokens; ++slot) {
                to[at(copy.dst) + slot] = from[at(copy.src) + slot];
            }
        }
    }

    void write(const Row &row, const quire_step_result &result, const std::vector<Blocks> &tables) {
        if (result.cross_tokens != 0) cross_of_[row.seq] = row.seq;  // whoever wrote them before
        for (uint32_t i = 0; i < result.cross_tokens; ++i) {
            for (size_t g = 0; g < memory_.size(); ++g) {
                if (options_.groups[g].kind != QUIRE_GROUP_CROSS) continue;
                int32_t block = tables[g][i / options_.block_tokens];
                ASSERT_NE(block, 0) << "a cross token is written to the null block";
                memory_[g].device[at(block) + i % options_.block_tokens] = cross_token(row.seq, i);
            }
        }
        for (uint32_t i = 0; i < result.compute_count; ++i) {
            uint32_t position = result.first_position + i;
            for (size_t g = 0; g < memory_.size(); ++g) {
                if (options_.groups[g].kind == QUIRE_GROUP_CROSS) continue;
                int32_t block = tables[g][position / options_.block_tokens];
                ASSERT_NE(block, 0) << "a token is written to the null block";
                memory_[g].device[at(block) + position % options_.block_tokens] =
                    row.tokens[position];
            }
        }
    }

    void expect_own_content(const Row &row) {
        quire_seq_info info = m_.info(row.seq);
        if ((info.flags & QUIRE_SEQ_SWAPPED) != 0) return;
        for (uint32_t g = 0; g < memory_.size(); ++g) {
            Blocks ids = m_.table(row.seq, g);
            if (options_.groups[g].kind == QUIRE_GROUP_CROSS) {
                expect_own_cross(row, g, ids);
                continue;
            }
            uint32_t end = std::min(info.computed_tokens, row.moved_from);
            for (uint32_t p = 0; p < end; ++p) {
                if (!sees(options_.groups[g], info.computed_tokens, p)) continue;
                int32_t block = ids[p / options_.block_tokens];
                ASSERT_EQ(memory_[g].device[at(block) + p % options_.block_tokens], row.tokens[p])
                    << "group " << g << ", position " << p << " of " << info.computed_tokens;
            }
        }
    }

    // True if a token at `position` sees the token at `key`, which lies before it.
    static bool sees(const GroupOptions &group, uint32_t position, uint32_t key) {
        if (group.kind == QUIRE_GROUP_CHUNKED) return key / group.window == position / group.window;
        return group.window == 0 || key < group.sinks || key + group.window > position;
    }

    void expect_own_cross(const Row &row, size_t g, const Blocks &ids) {
        for (uint32_t p = 0; p < ids.size() * options_.block_tokens; ++p) {
            quire_token held =
                memory_[g].device[at(ids[p / options_.block_tokens]) + p % options_.block_tokens];
            if (p < ids.size() * options_.block_tokens - options_.block_tokens + 1) {
                ASSERT_EQ(held, cross_token(cross_of_[row.seq], p)) << "group " << g << ", " << p;
            }
        }
    }

    size_t at(int32_t block) const { return static_cast<size_t>(block) * options_.block_tokens; }

    CacheOptions options_;
    Manager m_;
    std::vector<Memory> memory_;
    std::vector<Row> rows_;
    std::mt19937_64 dice_;
    std::map<quire_seq, quire_seq> cross_of_;  // who wrote the other input that it reads
    uint32_t accepted_ = 0;                    // paths that were not in place
    bool trees_ = false;
    bool has_cross_ = false;
};

TEST(Content, every_sequence_reads_its_own_tokens_whatever_is_shared_copied_and_swapped) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Engine engine({.blocks = 40, .host_blocks = 30});
        engine.run(seed, 150);
        ASSERT_FALSE(HasFailure()) << "seed " << seed;
        EXPECT_GT(engine.stats().copies_on_write, 0u);
        EXPECT_GT(engine.stats().blocks_swapped_in, 0u);
        EXPECT_GT(engine.stats().prefix_cache_hits, 0u);
        EXPECT_GT(engine.stats().evictions, 0u);
    }
}

// Every kind of group, and two groups that give up blocks at different positions.
const std::vector<GroupOptions> kGroups[] = {
    {{}, {.window = 7}},
    {{}, {.window = 7, .sinks = 5}},
    {{.window = 6, .sinks = 9}, {.window = 10, .kind = QUIRE_GROUP_CHUNKED}},
    {{}, {.window = 12, .kind = QUIRE_GROUP_CHUNKED}},
    {{.kind = QUIRE_GROUP_LATENT}, {.window = 3}},
    {{}, {.blocks = 60, .kind = QUIRE_GROUP_CROSS}},
};

TEST(Content, every_kind_of_group_keeps_what_is_seen) {
    const auto all = quire::tests::seeds(1, {.all = 50, .usual = 10, .few = 2});
    for (const auto &groups : kGroups) {
        for (uint64_t seed : all) {
            Engine engine({.blocks = 40, .host_blocks = 30, .groups = groups});
            engine.run(seed, 150);
            ASSERT_FALSE(HasFailure()) << "seed " << seed << ", groups " << &groups - kGroups;
        }
    }
}

TEST(Content, accepted_ways_through_trees_are_moved_to_their_places) {
    uint32_t scattered = 0;
    const auto all = quire::tests::seeds(1, {.all = 50, .usual = 10, .few = 2});
    for (const auto &groups : kGroups) {
        for (uint64_t seed : all) {
            Engine engine({.blocks = 40, .host_blocks = 30, .groups = groups});
            engine.draft_trees();
            engine.run(seed, 150);
            ASSERT_FALSE(HasFailure()) << "seed " << seed << ", groups " << &groups - kGroups;
            scattered += engine.scattered_ways();
        }
    }
    EXPECT_GT(scattered, 10 * all.size());
}

}  // namespace
