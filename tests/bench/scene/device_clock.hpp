// SPDX-License-Identifier: Apache-2.0
//
// device_clock: how long work takes on a device itself, by two timed driver events around what is
// enqueued on a stream of our own, as an engine has one.
//
// Why not the host's clock: it includes calls, launches, and the delay until the host notices the
// end.
//
// Threads: the one on which the clock was made. Destroy several clocks of a thread in reverse
// order, because each makes its device the thread's current one while it lives.
#pragma once

#include <quire/base.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace quire::bench {

// A driver's function by its name; NULL if it has none.
using DriverLookup = std::function<void *(const char *name)>;

// Looks into the driver that the backend has opened. Empty: no driver with a clock is known for it.
DriverLookup find_driver(const std::string &backend);

struct ClockNames;
struct ClockFunctions;

class DeviceClock {
 public:
    // NULL: no driver with a clock is known for the backend.
    // REQUIRES: a device of the backend is open, or was.
    static std::unique_ptr<DeviceClock> make(const std::string &backend, uint32_t index);

    // index   of the device among the backend's.
    // Errors  throws Failure: the driver lacks a needed function, or refuses.
    DeviceClock(const std::string &backend, uint32_t index, const DriverLookup &lookup);
    DeviceClock(const DeviceClock &) = delete;
    DeviceClock &operator=(const DeviceClock &) = delete;
    // REQUIRES: the device that has a queue bound to the stream is closed.
    ~DeviceClock();

    // Bind a queue to this stream.
    quire_native stream() const;
    // Call before and after the timed work is enqueued. Neither waits.
    void start() { record(begin_); }
    void stop() { record(end_); }
    // Seconds between them; waits until the stream is idle.
    double seconds();

 private:
    void make_events();
    void release();
    void record(void *event);
    void must(int result, const char *what) const;

    const ClockNames &names_;
    std::unique_ptr<ClockFunctions> driver_;
    std::function<void()> leave_;
    void *stream_ = nullptr, *begin_ = nullptr, *end_ = nullptr;
};

}  // namespace quire::bench
