// SPDX-License-Identifier: Apache-2.0
//
// runner: the whole suite on one backend, each group of cases in a child process.
//
// A case in which the child dies or falls silent has failed, and is named; the cases after
// it run in another child.
//
// Threads: none.
#pragma once

#include <string>
#include <vector>

#include "verdict.hpp"

namespace quire::conformance {

struct RunOptions {
    bool has_lines = false;  // a line of JSON on standard error for each case that ended
    std::string backend = "cpu";
    std::string only;                  // GoogleTest patterns; empty: all
    std::vector<std::string> without;  // names of `may` capabilities that are not claimed
    std::string readme;
    bool is_short = false;
    uint64_t seed = 0;
    bool is_huge = false;
    bool is_fast_16bit = false;
    bool is_inline = false;
    uint32_t patience_s = 120;  // of silence, after which a child is killed
};

struct RunResult {
    Json subject = Json::object();  // describe(); empty when that failed
    std::string cannot;             // why nothing could be run; empty if it could
    std::vector<CaseResult> cases;  // in the order of the suite
    Verdict verdict;
    double seconds = 0.0;
    uint64_t random_shapes = 0;
    double largest_error = 0.0;  // in units of the bound
    std::string started;         // UTC, ISO 8601
    std::string again;           // the command that reruns one case, without the case's name
    std::string library;         // version of the libquire that started this; empty if none did
};

RunResult run_suite(const RunOptions &options);

// Every case that is linked into this program.
std::vector<std::string> all_cases();

}  // namespace quire::conformance
