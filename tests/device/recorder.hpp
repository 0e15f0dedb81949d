// SPDX-License-Identifier: Apache-2.0
//
// recorder: backends/cpu behind a table that records launches and can replay them with exactly the
// same arguments, as a captured graph does on a GPU.
//
// The module and the test that opened it share these functions by dlsym.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

extern "C" {

// From now on, kv_write and attention are executed and also recorded under this number.
void quire_recorder_start(uint32_t recording);
void quire_recorder_stop(void);
// Replays all calls recorded under the number, each on the queue that it was first made on. Returns
// the number of calls, or the status of the first call that failed (negative).
int32_t quire_recorder_replay(uint32_t recording);
// What a recorded call, an attention, said of its rows.
uint64_t quire_recorder_rows_id(uint32_t recording, uint32_t index);
}
