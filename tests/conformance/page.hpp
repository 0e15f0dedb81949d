// SPDX-License-Identifier: Apache-2.0
//
// page: a run's result as one self-contained HTML file.
//
// All text from a plugin goes through escape(): people who did not run the plugin open
// the report in a browser.
//
// Threads: none.
#pragma once

#include <string>

#include "runner.hpp"

namespace quire::conformance {

std::string page_of(const RunResult &result);

// For text between tags and in quoted attributes; invalid UTF-8 becomes U+FFFD.
std::string escape(const std::string &text);

}  // namespace quire::conformance
