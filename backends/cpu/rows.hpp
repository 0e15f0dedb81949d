// SPDX-License-Identifier: Apache-2.0
//
// rows: whether what device memory says of the rows of an attention call can be followed.
//
// Lengths, tables and masks are written by earlier commands, so they are looked at when the call's
// turn comes, before anything is read through them. What cannot be seen is the size of the mask's
// words: mask_rows may name any of them.
//
// Threads: the queue's.
#pragma once

#include "kernels/attend_call.hpp"
#include "queue.hpp"

namespace quire::cpu {

// False, with the fault, if an index would lead outside the pool, the table or the row.
bool check_rows(const AttendCall &call, Fault *fault);

}  // namespace quire::cpu
