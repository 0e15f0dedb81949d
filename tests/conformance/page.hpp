// SPDX-License-Identifier: Apache-2.0
//
// page: a run's result as one HTML file that needs nothing but itself.
//
// Every text that a plugin gave goes through escape(): a report is opened in a browser by people
// who did not run the plugin.
//
// Threads: none.
#pragma once

#include <string>

#include "runner.hpp"

namespace quire::conformance {

std::string page_of(const RunResult &result);

// For text between tags and in quoted attributes; what is no UTF-8 becomes U+FFFD.
std::string escape(const std::string &text);

}  // namespace quire::conformance
