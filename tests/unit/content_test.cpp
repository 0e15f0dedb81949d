// SPDX-License-Identifier: Apache-2.0
//
// An engine of one number a token: it executes the listed copies and writes tokens at their slots,
// so that a block that was handed out too early, copied too late or named by the wrong sequence
// shows up as a wrong number in somebody's context.

#include <algorithm>
#include <map>
#include <random>

#include "manager.hpp"

namespace {

using namespace quire::test;

struct Row {
    quire_seq seq = 0;
    Tokens tokens;
};

class Engine {
 public:
    explicit Engine(const CacheOptions &options) : options_(options), m_(options) {
        memory_.resize(options.groups.size());
        for (size_t g = 0; g < memory_.size(); ++g) {
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

 private:
    struct Memory {
        std::vector<quire_token> device, host;
    };

    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(dice_() % limit); }

    void change_sequences() {
        if (rows_.size() < 9) rows_.push_back(Row{m_.sequence(), {}});
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
                    uint32_t at = below(known + 1);
                    Tokens tokens(row.tokens.begin(), row.tokens.begin() + at);
                    rows_.push_back(Row{m_.fork(row.seq, at), tokens});
                }
                break;
            case 3: {
                uint32_t kept = known - below(known / 3 + 1);
                ASSERT_EQ(m_.api().seq_truncate(m_.cache(), row.seq, kept, m_.error()), QUIRE_OK);
                row.tokens.resize(kept);
                break;
            }
            default:
                break;
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
            // Few different contents, so that prefixes are found.
            Tokens more = tokens_from(1000 * below(2) + known, below(4) == 0 ? 1 + below(12) : 1);
            ItemOptions item{.max_compute = below(4) == 0 ? 1 + below(6) : 0};
            quire_step_result result = m_.add(row.seq, more, item);
            if (result.outcome != QUIRE_ITEM_RUN) continue;
            row.tokens = joined(row.tokens, more);
            ran[row.seq] = result;
        }
        bool aborted = below(8) == 0;
        if (aborted) {
            m_.abort();
            for (Row &row : rows_) row.tokens.resize(m_.info(row.seq).known_tokens);
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
        for (const Row &row : rows_) {
            if (ran.count(row.seq) != 0) write(row, ran[row.seq], planned[row.seq]);
        }
        m_.finish(committed);
    }

    void execute(const std::vector<quire_block_copy> &copies) {
        for (const quire_block_copy &copy : copies) {
            Memory &memory = memory_[copy.group];
            auto &from = copy.kind == QUIRE_COPY_SWAP_IN ? memory.host : memory.device;
            auto &to = copy.kind == QUIRE_COPY_SWAP_OUT ? memory.host : memory.device;
            for (uint32_t slot = 0; slot < options_.block_tokens; ++slot) {
                to[at(copy.dst) + slot] = from[at(copy.src) + slot];
            }
        }
    }

    void write(const Row &row, const quire_step_result &result, const std::vector<Blocks> &tables) {
        for (uint32_t i = 0; i < result.compute_count; ++i) {
            uint32_t position = result.first_position + i;
            for (size_t g = 0; g < memory_.size(); ++g) {
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
            uint32_t window = options_.groups[g].window;
            uint32_t next = info.computed_tokens;  // the next token sees this much of what is there
            uint32_t first = window != 0 && next + 1 > window ? next + 1 - window : 0;
            for (uint32_t p = first; p < info.computed_tokens; ++p) {
                int32_t block = ids[p / options_.block_tokens];
                ASSERT_EQ(memory_[g].device[at(block) + p % options_.block_tokens], row.tokens[p])
                    << "group " << g << ", position " << p << " of " << info.computed_tokens;
            }
        }
    }

    size_t at(int32_t block) const { return static_cast<size_t>(block) * options_.block_tokens; }

    CacheOptions options_;
    Manager m_;
    std::vector<Memory> memory_;
    std::vector<Row> rows_;
    std::mt19937_64 dice_;
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

TEST(Content, window_groups_keep_what_is_seen) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Engine engine({.blocks = 40, .host_blocks = 30, .groups = {{}, {.window = 7}}});
        engine.run(seed, 150);
        ASSERT_FALSE(HasFailure()) << "seed " << seed;
    }
}

}  // namespace
