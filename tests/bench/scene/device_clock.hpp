// SPDX-License-Identifier: Apache-2.0
//
// device_clock: how long work takes on a device itself, by two timed events of its driver's around
// what goes to a stream of our own, as an engine has one.
//
// Why not the host's clock: it counts calls, launches, and how soon the host notices the end.
//
// Threads: one, that a clock lives on; of several there the one made last ends first, for the
// device is the thread's current one meanwhile.
#pragma once

#include <quire/base.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace quire::bench {

// A driver's function by its name; NULL: it has none.
using DriverLookup = std::function<void *(const char *name)>;

// Of the driver that the backend has opened. Empty: none is known that has a clock.
DriverLookup find_driver(const std::string &backend);

struct ClockNames;
struct ClockFunctions;

class DeviceClock {
 public:
    // NULL: no driver of the backend's is known that has one.
    // REQUIRES: a device of the backend's is open, or was.
    static std::unique_ptr<DeviceClock> make(const std::string &backend, uint32_t index);

    // index   of the device among the backend's.
    // Errors  throws Failure: the driver has not what this takes, or refuses it.
    DeviceClock(const std::string &backend, uint32_t index, const DriverLookup &lookup);
    DeviceClock(const DeviceClock &) = delete;
    DeviceClock &operator=(const DeviceClock &) = delete;
    // REQUIRES: the device that a queue was bound on to the stream is closed.
    ~DeviceClock();

    // What a queue is bound to.
    quire_native stream() const;
    // On the stream, before and behind what is timed. Neither waits.
    void start() { record(begin_); }
    void stop() { record(end_); }
    // Between them; waits until the stream is idle.
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
