// SPDX-License-Identifier: Apache-2.0
//
// hanging: backends/cpu behind a table whose calls can hang, like those of a driver that hangs, and
// whose fences can stop being signalled.
//
// The module and the test that opened it share these functions by dlsym.
//
// Threads: any.
#pragma once

#include <cstdint>

enum : uint32_t {
    kFencesNeverSignal = 1 << 0,  // fence_signal returns QUIRE_OK but does nothing
    kReadsFail = 1 << 1,          // fence_read returns QUIRE_E_DEVICE_LOST
    kWaitsHang = 1 << 2,          // fence_wait_host
    kCopiesHang = 1 << 3,
    kSignalsHang = 1 << 4,
};

extern "C" {

// Plants these faults from now on; 0: all calls work again.
void quire_hanging_plant(uint32_t what);
// The number of calls that hang now.
uint32_t quire_hanging_inside(void);
// All calls that hang return QUIRE_E_DEVICE_LOST, and nothing is planted any longer.
void quire_hanging_release(void);
// The number of calls of mem_free, queue_release, fence_destroy and device_close so far.
uint32_t quire_hanging_given_back(void);
}
