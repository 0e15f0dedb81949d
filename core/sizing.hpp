// SPDX-License-Identifier: Apache-2.0
//
// sizing: what a deployment holds and how fast it decodes; quire/size.h says what the numbers mean.
//
// A pure function: no cache is made, no device asked. Counts and bytes are exact, in checked
// arithmetic; seconds are the roofline, in double.
//
// Threads: any.
#pragma once

#include "core/status.hpp"
#include "quire/size.h"

namespace quire {

// Leaves `info` alone on failure, and its head always.
Status estimate_size(const quire_size_desc &desc, quire_size_info *info);

}  // namespace quire
