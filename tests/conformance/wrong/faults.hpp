// SPDX-License-Identifier: Apache-2.0
//
// faults: backends/cpu with one mistake in it, which the conformance suite must find.
//
// The plugin opens backends/cpu and returns its table, with the functions replaced that the fault
// needs. QUIRE_WRONG names the fault; without it the table is returned unchanged and must pass,
// which proves that the suite does not fail because of the wrapping. The plugin is named "cpu", so
// that results passed on need not be rewritten.
//
// Threads: as backends/cpu; state that a fault keeps is behind a lock.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::wrong {

// The correct backend, to which faults forward their calls.
const quire_backend_api &right();

// Puts the fault into the table; false if there is none of this name.
bool plant(const char *fault, quire_backend_api *table);

// plant() for faults of attention's options, of rope, merges and moves (options.cpp).
bool plant_in_options(const char *fault, quire_backend_api *table);

// plant() for faults of pools of codes (quantised.cpp).
bool plant_in_codes(const char *fault, quire_backend_api *table);

// "stage_N": leaves out the functions of the stages after N of backends/README.md, from 1 on.
bool stop_at_stage(const char *name, quire_backend_api *table);

}  // namespace quire::wrong
