// SPDX-License-Identifier: Apache-2.0
//
// copies: validates lists of copies and fills.
//
// Threads: any; nothing is kept.
#pragma once

#include "quire/plugin/backend.h"

namespace quire {

quire_status check_copies(const quire_be_copy *copies, uint32_t count, quire_error *error);
quire_status check_fill(const quire_be_range *ranges, uint32_t count, uint32_t byte,
                        quire_error *error);

}  // namespace quire
