// SPDX-License-Identifier: Apache-2.0
//
// traffic: random requests on a cache over several devices, and on the followers of a leader, with
// their kernels: forks, copies on write, swaps, recomputation and failed steps.
#pragma once

#include <algorithm>
#include <random>

#include "sharded_cache.hpp"

namespace quire::test {

// Random traffic whose choices depend only on the seed and the cache's answers.
class Traffic {
 public:
    // followers: those of the cache, which is then a leader; they hold the parts that it does not.
    Traffic(ShardedCache *cache, uint32_t seed, std::vector<ShardedCache *> followers = {})
        : c_(*cache), followers_(followers), random_(seed) {}

    // Runs more steps.
    void run_on(int steps) {
        for (int i = 0; i < steps; ++i) {
            change_sequences();
            step(number_++);
        }
    }
    void run(int steps) {
        run_on(steps);
        auto stats = described<quire_cache_stats>();
        c_.must(c_.api.cache_get_stats(c_.cache, &stats, &c_.error));
        EXPECT_GT(stats.copies_on_write, 0u);
        EXPECT_GT(stats.blocks_swapped_in, 0u);
        EXPECT_GT(stats.preemptions_recompute, 0u);
        EXPECT_GT(stats.forks, 0u);
        EXPECT_GT(stats.prefix_cache_hits, 0u);
    }

    std::vector<quire_seq> sequences() const {
        std::vector<quire_seq> out;
        for (const Live &one : live_) out.push_back(one.seq);
        return out;
    }

    std::vector<float> outputs;      // of all steps
    std::vector<int32_t> decisions;  // tables after every step

 private:
    struct Live {
        quire_seq seq;
        std::vector<uint32_t> tokens;  // known
    };

    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

    void change_sequences() {
        if (live_.size() < 6 && below(3) != 0) {
            auto desc = described<quire_seq_desc>();
            quire_seq seq = 0;
            c_.must(c_.api.seq_create(c_.cache, &desc, &seq, &c_.error));
            live_.push_back({seq, {}});
        }
        if (live_.size() < 8 && !live_.empty() && below(4) == 0) fork(below(size()));
        if (live_.size() > 3 && below(5) == 0) end(below(size()));
        if (!live_.empty() && below(6) == 0) {
            Live &one = live_[below(size())];
            uint32_t kept = below(static_cast<uint32_t>(one.tokens.size()) + 1);
            c_.must(c_.api.seq_truncate(c_.cache, one.seq, kept, &c_.error));
            one.tokens.resize(kept);
        }
        for (uint32_t i = 0; i < live_.size();) live_[i].tokens.size() > 50 ? end(i) : void(++i);
    }
    uint32_t size() const { return static_cast<uint32_t>(live_.size()); }
    void end(uint32_t i) {
        c_.must(c_.api.seq_end(c_.cache, live_[i].seq, 0, &c_.error));
        live_.erase(live_.begin() + i);
    }
    void fork(uint32_t i) {
        quire_seq child = 0;
        auto length = static_cast<uint32_t>(live_[i].tokens.size());
        if (c_.api.seq_fork(c_.cache, live_[i].seq, length, &child, &c_.error) < 0) return;
        live_.push_back({child, live_[i].tokens});
    }

    void step(int number) {
        std::vector<uint32_t> chosen;
        for (uint32_t i = 0; i < size(); ++i) {
            if (below(3) != 0) chosen.push_back(i);
        }
        std::vector<quire_step_item> items;
        std::vector<uint32_t> tokens;
        for (uint32_t i : chosen) {
            quire_step_item item{};
            item.seq = live_[i].seq;
            item.token_offset = static_cast<uint32_t>(tokens.size());
            item.token_count = 1 + below(7);
            for (uint32_t k = 0; k < item.token_count; ++k) {
                // Sequences begin alike, so that prefixes are found.
                size_t position = live_[i].tokens.size() + k;
                tokens.push_back(position < 9 ? static_cast<uint32_t>(position) : below(4));
            }
            items.push_back(item);
        }
        auto desc = c_.step_desc();
        desc.flags = QUIRE_STEP_MAY_PREEMPT;
        desc.preempt = number % 2 == 0 ? QUIRE_PREEMPT_SWAP : QUIRE_PREEMPT_RECOMPUTE;
        std::vector<quire_step_result> results(items.size());
        quire_step step = 0;
        c_.must(c_.api.step_begin(c_.cache, &desc, items.data(), items_count(items),
                                  sizeof items[0], tokens.data(),
                                  static_cast<uint32_t>(tokens.size()), results.data(),
                                  sizeof results[0], &step, &c_.error));
        std::vector<TestRow> rows = take(chosen, items, tokens, results);
        c_.must(c_.api.step_commit(c_.cache, step, c_.batch, &c_.error));
        std::vector<quire_step> followed = lead(step);
        if (!rows.empty()) launch(rows);
        uint32_t outcome = below(12) == 0 ? QUIRE_STEP_FAILED : QUIRE_STEP_OK;
        c_.must(c_.api.step_finish(c_.cache, step, nullptr, outcome, &c_.error));
        for (size_t i = 0; i < followers_.size(); ++i) {
            ShardedCache &f = *followers_[i];
            f.must(f.api.step_finish(f.cache, followed[i], nullptr, QUIRE_STEP_OK, &f.error));
            f.sync();
            f.must(f.api.cache_check(f.cache, &f.error));
        }
        c_.sync();
        c_.must(c_.api.cache_check(c_.cache, &c_.error));
        note_tables();
    }

    // Passes the step's log to the followers; returns the steps that they applied.
    std::vector<quire_step> lead(quire_step step) {
        std::vector<quire_step> steps;
        if (followers_.empty()) return steps;
        std::vector<uint8_t> log(1 << 16);
        uint64_t size = 0;
        c_.must(c_.api.step_log(c_.cache, step, log.data(), log.size(), &size, &c_.error));
        for (ShardedCache *f : followers_) {
            auto desc = f->step_desc();
            quire_step applied = 0;
            f->must(
                f->api.log_apply(f->cache, log.data(), size, &desc, f->batch, &applied, &f->error));
            steps.push_back(applied);
        }
        return steps;
    }

    // All ranks compute their heads, which are then put side by side.
    void launch(const std::vector<TestRow> &rows) {
        std::vector<float> out = c_.launch(rows);
        for (ShardedCache *f : followers_) {
            std::vector<float> part = f->launch(rows);
            for (size_t i = 0; i < out.size(); ++i) {
                if (std::isnan(out[i])) out[i] = part[i];
            }
        }
        for (float x : out) EXPECT_FALSE(std::isnan(x)) << "a head that no rank computed";
        outputs.insert(outputs.end(), out.begin(), out.end());
    }

    static uint32_t items_count(const std::vector<quire_step_item> &items) {
        return static_cast<uint32_t>(items.size());
    }

    std::vector<TestRow> take(const std::vector<uint32_t> &chosen,
                              const std::vector<quire_step_item> &items,
                              const std::vector<uint32_t> &tokens,
                              const std::vector<quire_step_result> &results) {
        std::vector<TestRow> rows;
        for (size_t i = 0; i < items.size(); ++i) {
            if (results[i].outcome != QUIRE_ITEM_RUN) continue;
            Live &one = live_[chosen[i]];
            auto first = tokens.begin() + items[i].token_offset;
            one.tokens.insert(one.tokens.end(), first, first + items[i].token_count);
            TestRow row{{}, results[i].first_position};
            auto begin = one.tokens.begin() + row.first_position;
            row.tokens.assign(begin, begin + results[i].compute_count);
            EXPECT_EQ(results[i].row, rows.size());
            rows.push_back(row);
        }
        return rows;
    }

    void note_tables() {
        for (const Live &one : live_) {
            for (uint32_t g = 0; g < kGroups.size(); ++g) {
                int32_t ids[16] = {};
                uint32_t count = 0;
                c_.must(c_.api.step_blocks(c_.cache, 0, one.seq, g, 0, ids, 16, &count, &c_.error));
                decisions.insert(decisions.end(), ids, ids + count);
            }
        }
    }

    ShardedCache &c_;
    std::vector<ShardedCache *> followers_;
    std::mt19937 random_;
    std::vector<Live> live_;
    int number_ = 0;  // of the next step
};

}  // namespace quire::test
