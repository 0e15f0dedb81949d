// SPDX-License-Identifier: Apache-2.0
//
// library: opens the libquire under test, which may be older than these headers, so that a script
// can be shown to fail on a library that still has the defect.
//
// Functions were only ever added at the end of the table. What an older library lacks stays null;
// the simulator calls quire_api.cache_dump only where there is one, and nothing after it.
//
// Threads: open_library once, before any other thread.
#pragma once
#include <string>

#include "quire/quire.h"

namespace sim {

// path: empty for what quire_dyn_load opens. Throws std::string.
const quire_api *open_library(const std::string &path);

// The flags that a library must know to be tested, and an older one may not: with them
// quire_cache_check proves the most. A library whose table is whole gets all of them.
uint32_t proving_flags(const quire_api *api);

}  // namespace sim
