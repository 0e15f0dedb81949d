// SPDX-License-Identifier: Apache-2.0
//
// The verdict that follows from the cases' outcomes, and proof that the list of
// capabilities stays valid.

#include "../verdict.hpp"

#include <gtest/gtest.h>

namespace quire::conformance {

namespace {

const std::vector<Capability> kList = {
    {"copies", Need::must, "", "copy", "Copy.*", nullptr, nullptr},
    {"windows", Need::may, "", "attention", "Window.*", nullptr, nullptr},
};

CaseResult result_of(const char *name, Outcome outcome, const char *text = "") {
    CaseResult result;
    result.name = name;
    result.outcome = outcome;
    result.text = text;
    return result;
}

const Json kAllOffered = {{"copies", ""}, {"windows", ""}};

}  // namespace

TEST(Verdict, all_that_is_offered_and_passes_is_a_yes) {
    Verdict verdict = judge(
        kList, kAllOffered,
        {result_of("Copy.a", Outcome::passed), result_of("Window.a", Outcome::passed)}, false);
    EXPECT_TRUE(verdict.has_passed);
    EXPECT_EQ(verdict.capabilities.passed, 2u);
    EXPECT_EQ(sentence_of(verdict), "passed: it conforms");
}

TEST(Verdict, must_that_is_not_offered_fails_and_is_named) {
    Json offered = {{"copies", "copy is NULL"}, {"windows", ""}};
    Verdict verdict = judge(kList, offered,
                            {result_of("Copy.a", Outcome::skipped, "copy is NULL"),
                             result_of("Window.a", Outcome::passed)},
                            false);
    EXPECT_FALSE(verdict.has_passed);
    EXPECT_EQ(verdict.missing, std::vector<std::string>{"copies"});
    EXPECT_EQ(verdict.findings[0].reason, "copy is NULL");
    EXPECT_NE(sentence_of(verdict).find("copies"), std::string::npos);
}

TEST(Verdict, may_that_is_not_offered_is_a_skip) {
    Json offered = {{"copies", ""}, {"windows", "no kernel"}};
    Verdict verdict = judge(kList, offered, {result_of("Copy.a", Outcome::passed)}, false);
    EXPECT_TRUE(verdict.has_passed);
    EXPECT_EQ(verdict.capabilities.skipped, 1u);
    EXPECT_EQ(verdict.findings[1].reason, "no kernel");
}

TEST(Verdict, may_that_is_offered_and_fails_fails_the_run) {
    Verdict verdict = judge(
        kList, kAllOffered,
        {result_of("Copy.a", Outcome::passed), result_of("Window.a", Outcome::failed, "wrong")},
        false);
    EXPECT_FALSE(verdict.has_passed);
    EXPECT_EQ(verdict.capabilities.failed, 1u);
    EXPECT_TRUE(verdict.missing.empty());
}

TEST(Verdict, must_whose_cases_were_all_skipped_is_not_shown_and_so_a_no) {
    Verdict verdict = judge(kList, kAllOffered,
                            {result_of("Copy.a", Outcome::skipped, "no memory"),
                             result_of("Window.a", Outcome::passed)},
                            false);
    EXPECT_FALSE(verdict.has_passed);
    EXPECT_EQ(verdict.findings[0].reason, "no memory");
}

TEST(Verdict, no_case_at_all_is_a_failure) {
    EXPECT_FALSE(judge(kList, kAllOffered, {}, false).has_passed);
    EXPECT_FALSE(judge(kList, kAllOffered, {}, true).has_passed);
}

TEST(Verdict, chosen_cases_say_nothing_of_the_rest) {
    Verdict verdict = judge(kList, kAllOffered, {result_of("Window.a", Outcome::passed)}, true);
    EXPECT_TRUE(verdict.has_passed);
    EXPECT_EQ(verdict.findings[0].outcome, Outcome::not_run);
    EXPECT_NE(sentence_of(verdict).find("chosen cases only"), std::string::npos);
}

TEST(CapabilityList, sees_a_case_that_proves_nothing) {
    auto problems = list_problems(kList, {"Copy.a", "Window.a", "Orphan.a"});
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_NE(problems[0].find("Orphan.a"), std::string::npos);
}

TEST(CapabilityList, sees_a_pattern_that_fits_no_case) {
    auto problems = list_problems(kList, {"Copy.a"});
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_NE(problems[0].find("Window.*"), std::string::npos);
}

TEST(CapabilityList, pattern_fits_as_in_a_shell) {
    EXPECT_TRUE(matches("A.*:B.c", "B.c"));
    EXPECT_TRUE(matches("*.c*e", "B.cde"));
    EXPECT_FALSE(matches("A.*:B.c", "B.cd"));
    EXPECT_FALSE(matches("", "B.c"));
}

}  // namespace quire::conformance
