// SPDX-License-Identifier: Apache-2.0
//
// Random scripts on the library and on the reference. A failure prints the seed, the operation that
// differs, and a script shrunk as far as it still fails; QUIRE_SCRIPT=FILE plays a script from a
// file.

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "library.hpp"
#include "runner.hpp"
#include "shrink.hpp"
#include "tests/effort.hpp"

namespace {

using namespace quire::model;
using quire::tests::seeds;

// The difference, and the smallest script found that shows it, also written to a file.
std::string report(const Script &script, const std::string &difference) {
    Script small = shrink(script, [](const Script &candidate) {
        Tally tally;
        return !play(library(), candidate, &tally).empty();
    });
    std::string path = testing::TempDir() + "quire-failing.script";
    std::ofstream(path) << script_text(small);
    return difference + "\nshrunk, and written to " + path + " for QUIRE_SCRIPT:\n" +
           script_text(small);
}

void play_seeds(const std::vector<uint64_t> &seeds, int length, Tally *tally) {
    for (uint64_t seed : seeds) {
        Script script = make_script(seed, length);
        std::string difference = play(library(), script, tally);
        if (!difference.empty()) FAIL() << "seed " << seed << ": " << report(script, difference);
    }
}

TEST(Model, random_scripts_give_what_the_reference_says) {
    Tally tally;
    auto played = seeds(1, {.all = 1500, .usual = 500, .few = 250});
    play_seeds(played, 400, &tally);
    // The scripts must reach what they are made for; a part of them proportionally.
    EXPECT_GT(tally.runs, tally.ops / (played.size() == 1500 ? 10 : 12));
    EXPECT_GT(tally.hits, 100u);
    EXPECT_GT(tally.waits, 100u);
    EXPECT_GT(tally.preemptions, 50u);
    EXPECT_GT(tally.failures, 20u);
    EXPECT_GT(tally.forks, 20u);
    EXPECT_GT(tally.evictions, 10u);
    EXPECT_GT(tally.swaps_in, 10u);
    EXPECT_GT(tally.lost, 0u);
    EXPECT_GT(tally.moves, played.size() / 10);
}

TEST(Model, long_scripts_give_what_the_reference_says) {
    Tally tally;
    play_seeds(seeds(1000000, {.all = 20, .usual = 8, .few = 2}), 4000, &tally);
}

// Migrations anywhere: to fewer blocks and to more, with and without followers. Sequences that fit
// go on as if nothing had happened.
TEST(Model, a_cache_that_is_moved_at_any_time_gives_what_the_reference_says) {
    Tally tally;
    for (uint64_t seed : seeds(2000000, {.all = 900, .usual = 300, .few = 300})) {
        std::mt19937_64 random(seed);
        Script script = make_script(seed, 300);
        if (seed % 4 != 0) script[0].args[3] |= 4;
        for (size_t at = 1; at < script.size(); at += 1 + random() % 12) {
            int percent = static_cast<int>(20 + random() % 180);
            int host_blocks = static_cast<int>(random() % 2 == 0 ? 0 : 1 + random() % 40);
            // Often with no step in flight, so that the migration is not refused.
            Script ops(random() % 2 == 0 ? 5 : 0, Op{"finish", {0, 0}});
            if (!ops.empty()) ops.front() = Op{"commit", {}};
            ops.push_back(Op{"migrate", {percent, host_blocks}});
            script.insert(script.begin() + static_cast<long>(at), ops.begin(), ops.end());
            at += ops.size();
        }
        std::string difference = play(library(), script, &tally);
        if (!difference.empty()) FAIL() << "seed " << seed << ": " << report(script, difference);
    }
    EXPECT_GT(tally.migrations, 1000u);
    EXPECT_GT(tally.short_targets, 200u);
    EXPECT_GT(tally.renumbered, 1000u);
    EXPECT_GT(tally.blocks_dropped, 500u);
    EXPECT_GT(tally.host_moves, 100u);
    EXPECT_GT(tally.hits, 100u);
    EXPECT_GT(tally.runs, tally.ops / 20);
}

// Inserts one more operation after every operation of a script: the failure of each unfinished
// step, the abort of the open one, or a drop of its newest item. (Other items:
// tests/unit/drop_test.cpp.)
TEST(Model, failure_abort_and_drop_of_the_newest_at_every_point_give_what_the_reference_says) {
    const Op inserted[] = {{"finish", {0, 1}}, {"finish", {1, 1}}, {"finish", {2, 1}},
                           {"abort", {}},      {"drop", {0}},      {"drop", {3}}};
    // A run of part of the cases takes every third or eighth place of all scripts: not all drop.
    const uint64_t stride = quire::tests::chosen({.all = 1, .usual = 3, .few = 8});
    Tally tally;
    for (uint64_t seed = 1; seed <= 12; ++seed) {
        const Script script = make_script(seed, 150);
        for (size_t at = 1 + quire::tests::run_seed() % stride; at <= script.size(); at += stride) {
            for (const Op &op : inserted) {
                Script more = script;
                more.insert(more.begin() + static_cast<long>(at), op);
                std::string difference = play(library(), more, &tally);
                if (!difference.empty()) {
                    FAIL() << "seed " << seed << ", " << op.text() << " at " << at << ": "
                           << report(more, difference);
                }
            }
        }
    }
    EXPECT_GT(tally.failures, 100u / stride);
    EXPECT_GT(tally.drops, 100u / stride);
    EXPECT_GT(tally.aborts_compared, 100u / stride);
}

TEST(Model, a_script_survives_being_written_down) {
    Script script = make_script(7, 200);
    Script again = parse_script(script_text(script));
    ASSERT_EQ(again.size(), script.size());
    for (size_t i = 0; i < script.size(); ++i) {
        EXPECT_EQ(again[i].name, script[i].name) << i;
        EXPECT_EQ(again[i].args, script[i].args) << script[i].text();
    }
}

TEST(Model, a_script_from_a_file_gives_what_the_reference_says) {
    const char *path = std::getenv("QUIRE_SCRIPT");
    if (path == nullptr) GTEST_SKIP() << "set QUIRE_SCRIPT to a script to play";
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    Tally tally;
    Script script = parse_script(text.str());
    std::string difference = play(library(), script, &tally);
    if (!difference.empty()) FAIL() << report(script, difference);
}

}  // namespace
