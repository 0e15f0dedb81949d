// SPDX-License-Identifier: Apache-2.0
//
// heading: what stands above figures: of which device they are, and that sizes were divided, for
// of whole ones they say nothing then.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace quire::bench {

// Into the object's "machine"; and, where is_json is not set, onto standard output.
void add_heading(const std::string &device, uint32_t scale, bool is_json,
                 nlohmann::ordered_json *object);

}  // namespace quire::bench
