// SPDX-License-Identifier: Apache-2.0
//
// describe: what the backend reports, as JSON: its table, its device, its answers.
//
// Why apart from the cases: the report shows it, and it decides which capabilities are offered. It
// runs in a child process, because a plugin may crash when queried.
//
//   {"name", "version", "abi", "slots": [names that are not NULL], "device_count",
//    "device": {"name", "memory_total_bytes", "memory_free_bytes", "host_visible"},
//    "matrix": [{"kind", "q", "k", "v", "k_dim", "v_dim", "block_tokens", "support", "reason"}],
//    "offered": {capability: "" or the reason why not}}
//
// Threads: none.
#pragma once

#include <nlohmann/json.hpp>

namespace quire::conformance {

using Json = nlohmann::ordered_json;

// REQUIRES: load_subject() was successful.
Json describe();

// One line, whatever bytes a plugin's text contains.
inline std::string text_of(const Json &json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace quire::conformance
