// SPDX-License-Identifier: Apache-2.0
//
// report: named numbers, as a table for people or as JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

namespace quire::cli {

void print_report(const nlohmann::ordered_json &report, bool as_json);

}  // namespace quire::cli
