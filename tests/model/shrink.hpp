// SPDX-License-Identifier: Apache-2.0
//
// shrink: makes a failing script small enough to read.
//
// Operations are left out in ever smaller runs while the script still fails (delta debugging:
// Zeller, Hildebrandt, IEEE TSE 2002), then the remaining numbers are made smaller. Every script is
// valid: both sides refuse an operation that makes no sense at its place.
//
// Threads: none.
#pragma once

#include <functional>

#include "script.hpp"

namespace quire::model {

using Fails = std::function<bool(const Script &)>;

// The smallest script found within `tries` calls of `fails`, which decides by the script alone.
// REQUIRES: fails(script). The first operation, the configuration, stays.
Script shrink(Script script, const Fails &fails, uint32_t tries = 5000);

}  // namespace quire::model
