// SPDX-License-Identifier: Apache-2.0
//
// runner: plays a script on the library, through the C ABI, and on the reference, and compares
// results, counts, tables and the library's own check after every operation.
#pragma once

#include <quire/quire.h>

#include <string>

#include "reference.hpp"
#include "script.hpp"

namespace quire::model {

struct Tally {
    uint64_t ops = 0, runs = 0, waits = 0, hits = 0, preemptions = 0, failures = 0, forks = 0,
             evictions = 0, swaps_in = 0, lost = 0, drops = 0, aborts_compared = 0, moves = 0,
             migrations = 0, renumbered = 0, short_targets = 0, blocks_dropped = 0, host_moves = 0;
};

// Returns an empty string, or a description of the first difference.
std::string play(const quire_api &api, const Script &script, Tally *tally);

}  // namespace quire::model
