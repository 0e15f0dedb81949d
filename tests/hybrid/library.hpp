// SPDX-License-Identifier: Apache-2.0
//
// library: opens the libquire under test.
//
// Threads: open_library once, before any other thread.
#pragma once
#include <string>

#include "quire/quire.h"

namespace hybrid {

// path: empty for what quire_dyn_load opens. Throws std::string.
const quire_api *open_library(const std::string &path);

}  // namespace hybrid
