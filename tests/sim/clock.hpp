// SPDX-License-Identifier: Apache-2.0
//
// clock: who reads a clock while a script is played, and clocks that jump.
//
// Why: a result that depends on the time is not the same twice. The headers name no time but the
// timeouts of functions that wait. So an operation that reads the date is a finding. The monotonic
// clock may be read, by a migration or by the library's allocator, which gives memory back to the
// system after a while; what is read jumps by decades, and must change no result.
//
// In a program that does not link clock.cpp neither is done.
//
// Threads: one watch per thread.
#pragma once
#include <cstdint>

namespace sim {

struct ClockWatch {
    bool on = false;
    uint64_t reads = 0;  // while it was on
    uint64_t dates = 0;  // those of a clock that anyone may set
    // While a cache may have a tier: the monotonic clock is the script's, and each read of it takes
    // a microsecond. A poll() that would wait lets so much time pass, and calls `waited`.
    bool simulated = false;
    uint64_t now_ns = 0;
    void (*waited)() = nullptr;
};

// While a World plays an operation with the feature `clocks`.
inline thread_local ClockWatch clock_watch;
inline bool clocks_are_watched = false;

}  // namespace sim
