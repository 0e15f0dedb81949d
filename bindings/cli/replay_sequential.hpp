// SPDX-License-Identifier: Apache-2.0
//
// replay_sequential: one request after another: a step for the prompt, one for each decoded token.
#pragma once

#include "replay.hpp"
#include "trace.hpp"

namespace quire::cli {

ReplayCounts replay_sequential(const ReplayOptions &options, const Trace &trace);

}  // namespace quire::cli
