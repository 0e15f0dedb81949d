// SPDX-License-Identifier: Apache-2.0
//
// replay_levels: the levels below the device in a replay: their options, and what was found on
// each, copied and read. Times are a model: bytes by bandwidth, and a latency for each load.
#pragma once

#include <nlohmann/json.hpp>

#include "replay.hpp"

namespace quire::cli {

// Throws a Failure that names the option which is wrong, or lacks another.
void check_levels(const ReplayOptions &options);

// REQUIRES: check_levels().
void add_levels(const ReplayOptions &options, const ReplayCounts &counts,
                nlohmann::ordered_json *out);

}  // namespace quire::cli
