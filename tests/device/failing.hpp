// SPDX-License-Identifier: Apache-2.0
//
// failing: backends/cpu behind a table whose n-th call fails, as on a device that is lost.
//
// The module and the test that opened it share this function by dlsym.
//
// Threads: one at a time.
#pragma once

#include <quire/base.h>

#include <cstdint>

extern "C" {

// From now on, the copies-th copy and the signals-th fence_signal return QUIRE_E_DEVICE_LOST, and
// the fence of the reads-th fence_read gives QUIRE_FENCE_FAILED from then on. 0: none fails; reads
// 0 also repairs the failed fences.
void quire_failing_plant(uint32_t copies, uint32_t signals, uint32_t reads);

// From now on, the calls-th call of any slot that returns a status fails. 0: none fails. Returns
// how many calls the previously planted failure was still away; 0 if it has happened.
uint32_t quire_failing_plant_call(uint32_t calls);
// Sets what that call returns; QUIRE_E_DEVICE_LOST by default.
void quire_failing_answer(quire_status status);
}
