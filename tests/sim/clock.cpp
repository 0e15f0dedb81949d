// SPDX-License-Identifier: Apache-2.0
//
// clock: this program's own clock functions, in front of those of the C library: the dynamic linker
// gives them to each library that the program loads. See clock.hpp.
#include "clock.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <algorithm>
#include <ctime>

namespace sim {
namespace {

constexpr time_t kJump = 40ll * 365 * 24 * 3600;  // seconds

constexpr uint64_t kReadNs = 1000;
constexpr int kLongestMs = 50;  // that one wait lets pass

const bool watched = (clocks_are_watched = true);

// The system's time; while it is watched, decades ahead and decades back in turn.
timespec now(clockid_t clock) {
    timespec time{};
    syscall(SYS_clock_gettime, clock, &time);
    if (clock_watch.simulated && clock == CLOCK_MONOTONIC) {
        clock_watch.now_ns += kReadNs;
        time.tv_sec = static_cast<time_t>(clock_watch.now_ns / 1000000000);
        time.tv_nsec = static_cast<long>(clock_watch.now_ns % 1000000000);
        return time;
    }
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

__attribute__((visibility("default"))) int poll(pollfd *files, nfds_t count, int timeout_ms) {
    const auto now = [&](int wait_ms) {
        timespec wait{wait_ms / 1000, wait_ms % 1000 * 1000000l};
        return static_cast<int>(
            syscall(SYS_ppoll, files, count, wait_ms < 0 ? nullptr : &wait, nullptr, 0));
    };
    if (!sim::clock_watch.simulated) return now(timeout_ms);
    const int ready = now(0);
    if (ready != 0 || timeout_ms == 0) return ready;
    const int passed = timeout_ms < 0 ? sim::kLongestMs : std::min(timeout_ms, sim::kLongestMs);
    sim::clock_watch.now_ns += static_cast<uint64_t>(passed) * 1000000;
    if (sim::clock_watch.waited != nullptr) sim::clock_watch.waited();
    return now(0);
}

}  // extern "C"
