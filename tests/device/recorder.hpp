// SPDX-License-Identifier: Apache-2.0
//
// recorder: backends/cpu behind a table that writes down what is launched, and can launch it again
// to the last argument, as a captured graph does on a GPU.
//
// The module and the test that opened it share these functions by dlsym.
//
// Threads: one at a time.
#pragma once

#include <cstdint>

extern "C" {

// From now on kv_write and attention are written down, besides being done, under this number.
void quire_recorder_start(uint32_t recording);
void quire_recorder_stop(void);
// Does again all that was written down under the number, on the queue it was first done on. Returns
// how many calls that were; negative: the first one that failed.
int32_t quire_recorder_replay(uint32_t recording);
}
