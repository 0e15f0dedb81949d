// SPDX-License-Identifier: Apache-2.0
//
// Random scripts on the library and on the reference. A failure prints the seed and the script up
// to the operation that differs; QUIRE_SCRIPT=FILE plays a script from a file.

#include <gtest/gtest.h>
#include <quire/dyn.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runner.hpp"

namespace {

using namespace quire::model;

const quire_api &library() {
    static const quire_api *api = [] {
        const quire_api *loaded = nullptr;
        char why[512] = "";
        if (quire_dyn_load(nullptr, &loaded, why, sizeof why) < 0) {
            std::fprintf(stderr, "%s\n", why);
            std::abort();
        }
        return loaded;
    }();
    return *api;
}

bool short_run() { return std::getenv("QUIRE_TEST_SHORT") != nullptr; }

void play_seeds(uint64_t first, uint64_t count, int length, Tally *tally) {
    for (uint64_t seed = first; seed < first + count; ++seed) {
        Script script = make_script(seed, length);
        std::string difference = play(library(), script, tally);
        ASSERT_EQ(difference, "") << "seed " << seed;
    }
}

TEST(Model, random_scripts_give_what_the_reference_says) {
    Tally tally;
    play_seeds(1, short_run() ? 300 : 1500, 400, &tally);
    // The scripts must reach what they are made for.
    EXPECT_GT(tally.runs, tally.ops / 20);
    EXPECT_GT(tally.hits, 100u);
    EXPECT_GT(tally.waits, 100u);
    EXPECT_GT(tally.preemptions, 50u);
    EXPECT_GT(tally.failures, 20u);
    EXPECT_GT(tally.forks, 20u);
    EXPECT_GT(tally.evictions, 10u);
    EXPECT_GT(tally.swaps_in, 10u);
    EXPECT_GT(tally.lost, 0u);
}

TEST(Model, long_scripts_give_what_the_reference_says) {
    Tally tally;
    play_seeds(1000000, short_run() ? 2 : 20, 4000, &tally);
}

TEST(Model, a_script_survives_being_written_down) {
    Script script = make_script(7, 200);
    Script again = parse_script(script_text(script));
    ASSERT_EQ(script_text(again), script_text(script));
}

TEST(Model, a_script_from_a_file_gives_what_the_reference_says) {
    const char *path = std::getenv("QUIRE_SCRIPT");
    if (path == nullptr) GTEST_SKIP() << "QUIRE_SCRIPT names no file to play";
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    Tally tally;
    ASSERT_EQ(play(library(), parse_script(text.str()), &tally), "");
}

}  // namespace
