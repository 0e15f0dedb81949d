// SPDX-License-Identifier: Apache-2.0
//
// rows: checks what device memory says about the rows of an attention call.
//
// Earlier commands write the lengths, tables and masks, so these are checked when the call's turn
// comes, before anything is read through them. The extent of the mask's words is unknown and cannot
// be checked: mask_rows may name any of them.
//
// Threads: the queue's worker.
#pragma once

#include "kernels/attend_call.hpp"
#include "queue.hpp"

namespace quire::cpu {

// Returns false and sets the fault if an index would lead outside the pool, the table or the row.
bool check_rows(const AttendCall &call, Fault *fault);

}  // namespace quire::cpu
