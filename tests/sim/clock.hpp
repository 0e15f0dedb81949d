// SPDX-License-Identifier: Apache-2.0
//
// clock: who reads a clock while a script is played.
//
// Why: a result that depends on the time is not the same twice. The headers name no time but the
// timeouts of functions that wait, and those are the backend's to measure.
//   watched  an operation that reads a clock is a finding; for caches with an engine's allocator,
//            because the library's own gives memory back to the system after a while. Where that
//            allocates all the same, for batches, and in a migration, which waits for its copies, a
//            clock may be read that is not the date's
//   jumping  whoever reads a clock may, and it jumps by decades
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
};

// While a World plays an operation with the feature `clocks`.
inline thread_local ClockWatch clock_watch;
inline bool clocks_are_watched = false;

}  // namespace sim
