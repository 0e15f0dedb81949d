// SPDX-License-Identifier: Apache-2.0
//
// clock: this program's own clock functions, in front of those of the C library: the dynamic linker
// gives them to each library that the program loads. See clock.hpp.
#include "clock.hpp"

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <ctime>

namespace sim {
namespace {

constexpr time_t kJump = 40ll * 365 * 24 * 3600;  // seconds

const bool watched = (clocks_are_watched = true);

// The system's time; while it is watched, decades ahead and decades back in turn.
timespec now(clockid_t clock) {
    timespec time{};
    syscall(SYS_clock_gettime, clock, &time);
    if (!clock_watch.on) return time;
    clock_watch.dates += clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    time.tv_sec += ++clock_watch.reads % 2 == 0 ? -kJump / 2 : kJump;
    return time;
}

}  // namespace
}  // namespace sim

extern "C" {

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, timespec *time) noexcept {
    *time = sim::now(clock);
    return 0;
}

__attribute__((visibility("default"))) int gettimeofday(timeval *time, void *) noexcept {
    const timespec now = sim::now(CLOCK_REALTIME);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

__attribute__((visibility("default"))) time_t time(time_t *out) noexcept {
    const timespec now = sim::now(CLOCK_REALTIME);
    if (out != nullptr) *out = now.tv_sec;
    return now.tv_sec;
}

__attribute__((visibility("default"))) int timespec_get(timespec *out, int base) noexcept {
    *out = sim::now(CLOCK_REALTIME);
    return base;
}

__attribute__((visibility("default"))) clock_t clock() noexcept {
    const timespec now = sim::now(CLOCK_PROCESS_CPUTIME_ID);
    return now.tv_sec * CLOCKS_PER_SEC + now.tv_nsec / (1000000000 / CLOCKS_PER_SEC);
}

}  // extern "C"
