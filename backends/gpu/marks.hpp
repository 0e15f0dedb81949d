// SPDX-License-Identifier: Apache-2.0
//
// marks: events of a driver that say where in their streams fences are raised.
//
// A queue records one of its events after each kernel that raises a fence, and the fence keeps
// the last few of them with their values. A stream that is to wait for a value waits for an event
// instead of for the fence's word: every driver can do that, and none spends a processor on it. A
// queue uses its events in turn. One that was recorded again marks a later place of the same
// stream, so whoever waits for it waits longer than necessary, but not too short, and only for
// work that the driver was already given.
//
// Threads: none; the device's mutex.
#pragma once

#include <array>
#include <cstdint>

#include "driver.hpp"

namespace quire::gpu {

// A queue's events.
class EventRing {
 public:
    // Result of the first event that could not be made. REQUIRES, for all: the context is current.
    Result open(const Driver &driver);
    void close(const Driver &driver);
    Result record(const Driver &driver, Stream stream, Event *out);

 private:
    std::array<Event, 16> events_{};
    uint32_t next_ = 0;
};

// A fence's last places; always the one with the greatest value.
class Marks {
 public:
    void add(uint64_t value, Event event);
    // The event with the least value that is not below `value`. REQUIRES: there is one.
    Event find(uint64_t value) const;

 private:
    struct Mark {
        uint64_t value = 0;
        Event event = nullptr;
    };
    std::array<Mark, 8> marks_{};
};

}  // namespace quire::gpu
