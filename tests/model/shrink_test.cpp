// SPDX-License-Identifier: Apache-2.0
//
// A failing script is shrunk to a small one that still fails for the same defect.

#include <gtest/gtest.h>

#include <algorithm>

#include "library.hpp"
#include "runner.hpp"
#include "shrink.hpp"

namespace {

using namespace quire::model;

bool differs(const quire_api &api, const Script &script) {
    Tally tally;
    return !play(api, script, &tally).empty();
}

TEST(Shrink, only_what_the_failure_needs_is_left) {
    auto forked_then_truncated = [](const Script &script) {
        auto fork = std::find_if(script.begin(), script.end(),
                                 [](const Op &op) { return op.name == "fork"; });
        return std::any_of(fork, script.end(),
                           [](const Op &op) { return op.name == "truncate" && op.args[1] >= 3; });
    };
    Script script = make_script(3, 600);
    ASSERT_TRUE(forked_then_truncated(script));
    Script small = shrink(script, forked_then_truncated);
    ASSERT_EQ(small.size(), 3u) << script_text(small);
    EXPECT_EQ(small[0].text(), script[0].text());
    EXPECT_EQ(small[1].text(), "fork");
    EXPECT_EQ(small[2].text(), "truncate count=3");
}

TEST(Shrink, number_of_tries_is_a_bound) {
    uint32_t calls = 0;
    auto none_may_go = [&](const Script &script) { return ++calls != 0 && script.size() == 600; };
    shrink(make_script(3, 600), none_may_go, 100);
    EXPECT_EQ(calls, 100u);
}

// A realistic defect: forks of more than eight tokens are one token short.
quire_status fork_too_short(quire_cache *cache, quire_seq seq, uint32_t count, quire_seq *out,
                            quire_error *error) {
    return library().seq_fork(cache, seq, count > 8 ? count - 1 : count, out, error);
}

TEST(Shrink, planted_defect_of_the_library_is_a_handful_of_operations) {
    quire_api broken = library();
    broken.seq_fork = fork_too_short;
    uint64_t seed = 1;
    while (!differs(broken, make_script(seed, 400))) ASSERT_LT(++seed, 200u);
    auto fails = [&](const Script &script) { return differs(broken, script); };
    Script small = shrink(make_script(seed, 400), fails);
    EXPECT_TRUE(differs(broken, small));
    EXPECT_FALSE(differs(library(), small)) << "it shows the defect and nothing else";
    // config, create, begin, add, commit or not, and the fork
    EXPECT_LE(small.size(), 6u) << script_text(small);
    EXPECT_EQ(small.back().name, "fork");
}

}  // namespace
