// SPDX-License-Identifier: Apache-2.0

#include "verdict.hpp"

namespace quire::conformance {

namespace {

void count(Count *all, Outcome outcome) {
    if (outcome == Outcome::passed) ++all->passed;
    if (outcome == Outcome::failed) ++all->failed;
    if (outcome == Outcome::skipped) ++all->skipped;
}

std::string first_line(const std::string &text) { return text.substr(0, text.find('\n')); }

struct Heard {
    Count count;
    std::string first_failed;
    std::string first_skip;
};

Heard hear(const Capability &one, const std::vector<CaseResult> &cases) {
    Heard heard;
    for (const CaseResult &result : cases) {
        if (!matches(one.cases, result.name)) continue;
        count(&heard.count, result.outcome);
        bool has_failed = result.outcome == Outcome::failed;
        if (has_failed && heard.first_failed.empty()) heard.first_failed = result.name;
        bool was_skipped = result.outcome == Outcome::skipped;
        if (was_skipped && heard.first_skip.empty()) heard.first_skip = first_line(result.text);
    }
    return heard;
}

void decide(Finding *finding, const Heard &heard, const std::string &why_not, bool is_partial) {
    bool is_must = finding->capability->need == Need::must;
    if (heard.count.failed != 0) {
        finding->outcome = Outcome::failed;
        finding->reason = heard.first_failed + " failed";
        if (heard.count.failed > 1) {
            finding->reason += ", and " + std::to_string(heard.count.failed - 1) + " more";
        }
    } else if (is_partial && heard.count.passed + heard.count.skipped == 0) {
        finding->outcome = Outcome::not_run;
    } else if (!why_not.empty()) {
        finding->outcome = is_must ? Outcome::failed : Outcome::skipped;
        finding->reason = why_not;
    } else if (heard.count.passed == 0) {
        finding->outcome = is_must ? Outcome::failed : Outcome::skipped;
        finding->reason = heard.first_skip.empty() ? "no case ran" : heard.first_skip;
    } else {
        finding->outcome = Outcome::passed;
    }
}

}  // namespace

Verdict judge(const std::vector<Capability> &list, const Json &offered,
              const std::vector<CaseResult> &cases, bool is_partial) {
    Verdict verdict;
    verdict.is_partial = is_partial;
    for (const CaseResult &result : cases) count(&verdict.cases, result.outcome);
    for (const Capability &one : list) {
        Heard heard = hear(one, cases);
        Finding finding;
        finding.capability = &one;
        finding.passed = heard.count.passed;
        finding.failed = heard.count.failed;
        finding.skipped = heard.count.skipped;
        decide(&finding, heard, offered.value(one.name, "the backend gave no answer"), is_partial);
        count(&verdict.capabilities, finding.outcome);
        if (one.need == Need::must && finding.outcome == Outcome::failed) {
            verdict.missing.push_back(one.name);
        }
        verdict.findings.push_back(std::move(finding));
    }
    // If nothing ran, nothing is proven.
    verdict.has_passed =
        verdict.missing.empty() && verdict.cases.failed == 0 && verdict.cases.passed != 0;
    return verdict;
}

const char *word_of(Outcome outcome) {
    switch (outcome) {
        case Outcome::passed:
            return "yes";
        case Outcome::failed:
            return "no";
        case Outcome::skipped:
            return "skip";
        case Outcome::not_run:
            return "not run";
    }
    return "";
}

std::string sentence_of(const Verdict &verdict) {
    if (verdict.is_partial) {
        std::string chosen = " (chosen cases only: no verdict on the whole backend)";
        return (verdict.has_passed ? "passed" : "FAILED") + chosen;
    }
    if (verdict.has_passed) return "passed: it conforms";
    if (verdict.missing.empty()) return "FAILED: cases of optional capabilities failed";
    std::string names;
    for (const std::string &name : verdict.missing) names += (names.empty() ? "" : ", ") + name;
    return "FAILED: required capabilities are missing: " + names;
}

}  // namespace quire::conformance
