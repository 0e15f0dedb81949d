// SPDX-License-Identifier: Apache-2.0
//
// print: a run's result for a person on a terminal, and as JSON for programs.
//
// Threads: none.
#pragma once

#include <string>

#include "runner.hpp"

namespace quire::conformance {

// The kind of random shapes of a case, from its name: "..._over_THESE_agree...".
std::string row_of(const std::string &case_name);

std::string table_of(const RunResult &result);
Json json_of(const RunResult &result);

// A plugin's text, with control characters replaced so that it cannot control the terminal.
std::string harmless(const std::string &text);

}  // namespace quire::conformance
