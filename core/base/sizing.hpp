// SPDX-License-Identifier: Apache-2.0
//
// sizing: how much a deployment holds and how fast it decodes; quire/size.h says what the numbers
// mean.
//
// A pure function: it creates no cache and queries no device. Counts and bytes are exact, in
// checked arithmetic; seconds are the roofline, in double.
//
// Threads: any.
#pragma once

#include "core/base/status.hpp"
#include "quire/size.h"

namespace quire {

// Leaves `info` unchanged on failure, and its struct head in any case.
Status estimate_size(const quire_size_desc &desc, quire_size_info *info);

}  // namespace quire
