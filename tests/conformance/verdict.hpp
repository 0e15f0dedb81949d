// SPDX-License-Identifier: Apache-2.0
//
// verdict: derives a verdict on the backend from the cases' outcomes and what the backend offers.
//
// A capability is
//   yes   offered, none of its cases failed, and at least one passed
//   skip  a `may` that is not offered, or none of whose cases could run; the reason is kept
//   no    everything else: a case failed, or a `must` is not offered or could not be shown
// The verdict is `passed` if no must is a no and no case failed. A run of chosen cases judges only
// those cases: what was not run is neither yes nor no.
//
// Threads: none; pure functions.
#pragma once

#include <string>
#include <vector>

#include "capabilities.hpp"
#include "describe.hpp"

namespace quire::conformance {

enum class Outcome { passed, failed, skipped, not_run };

struct CaseResult {
    std::string name;  // Suite.case
    Outcome outcome = Outcome::not_run;
    double seconds = 0.0;
    std::string text;  // of a failure or a skip
    Json figures = Json::object();
};

struct Finding {
    const Capability *capability = nullptr;
    Outcome outcome = Outcome::not_run;  // passed: yes, failed: no, skipped: skip
    std::string reason;                  // of a no or a skip
    uint32_t passed = 0;
    uint32_t failed = 0;
    uint32_t skipped = 0;
};

struct Count {
    uint32_t passed = 0;
    uint32_t failed = 0;
    uint32_t skipped = 0;
};

struct Verdict {
    std::vector<Finding> findings;
    Count capabilities;
    Count cases;
    bool is_partial = false;  // some cases were not chosen
    bool has_passed = false;
    std::vector<std::string> missing;  // musts that are a no
};

// `offered` is describe()'s: by the capability's name, empty or the reason why not.
Verdict judge(const std::vector<Capability> &list, const Json &offered,
              const std::vector<CaseResult> &cases, bool is_partial);

// "yes", "no", "skip", "not run"
const char *word_of(Outcome outcome);
// One line for a person.
std::string sentence_of(const Verdict &verdict);

}  // namespace quire::conformance
