// SPDX-License-Identifier: Apache-2.0
//
// faults: backends/cpu with one mistake in it, which the conformance suite must find.
//
// The plugin opens backends/cpu and hands out its table, with the slots replaced that the fault
// needs. QUIRE_WRONG names the fault; without it the table is handed out as it is, which must pass:
// so it is not the wrapping that the suite sees. It wears the name "cpu", so that what is passed on
// need not be rewritten.
//
// Threads: as backends/cpu; what a fault remembers is behind a lock.
#pragma once

#include "quire/plugin/backend.h"

namespace quire::wrong {

// The right one, for what a fault passes on.
const quire_backend_api &right();

// Puts the fault into the table; false: there is none of this name.
bool plant(const char *fault, quire_backend_api *table);

// plant() for faults of attention's options, of rope, merges and moves (options.cpp).
bool plant_in_options(const char *fault, quire_backend_api *table);

// plant() for faults of pools of codes (quantised.cpp).
bool plant_in_codes(const char *fault, quire_backend_api *table);

// "stage_N": leaves out the slots of the stages behind N of backends/README.md, from 1 on.
bool stop_at_stage(const char *name, quire_backend_api *table);

}  // namespace quire::wrong
