// SPDX-License-Identifier: Apache-2.0
//
// failing: backends/cpu behind a table whose n-th call fails, as a device that is lost.
//
// The module and the test that opened it share this function by dlsym.
//
// Threads: one at a time.
#pragma once

#include <quire/base.h>

#include <cstdint>

extern "C" {

// From now on the copies-th copy and the signals-th fence_signal answer QUIRE_E_DEVICE_LOST, and
// the fence of the reads-th fence_read gives QUIRE_FENCE_FAILED from then on. 0: none; reads 0
// mends the fences.
void quire_failing_plant(uint32_t copies, uint32_t signals, uint32_t reads);

// From now on the calls-th call of any slot that answers a status fails. 0: none. Returns how many
// calls the last one planted was still away, 0 when it has failed.
uint32_t quire_failing_plant_call(uint32_t calls);
// What that call answers; QUIRE_E_DEVICE_LOST at first.
void quire_failing_answer(quire_status status);
}
