// SPDX-License-Identifier: Apache-2.0
//
// heading: the line above the figures: the device's name, and whether sizes were divided, because
// the figures then say nothing about full sizes; and a line per case as it ends.
//
// Threads: any; it keeps no state.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace quire::bench {

// Writes into the object's "machine" and, unless is_json, to standard output.
void add_heading(const std::string &device, uint32_t scale, bool is_json,
                 nlohmann::ordered_json *object);

// Adds a case to the object's "cases". If is_json, also prints it on standard error, so that it
// counts even if the run is stopped before it prints the object.
void add_case(const nlohmann::ordered_json &result, bool is_json, nlohmann::ordered_json *cases);

}  // namespace quire::bench
