// SPDX-License-Identifier: Apache-2.0
//
// context: the device's primary context, and the guards under which the driver is called.
//
// Threads: any.
#pragma once

#include <cfenv>
#include <csignal>

#include "driver.hpp"

namespace quire::gpu {

struct Context {
    const Driver *driver = nullptr;
    void *handle = nullptr;
    int index = 0;
};

// While it lives the device's context is this thread's current one; then what was current before is
// again.
class Entered {
 public:
    explicit Entered(const Context &context) : driver_(context.driver) {
        is_in_ = driver_->enter(context.handle, &before_) == 0;
    }
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;
    ~Entered() {
        if (is_in_) driver_->leave(before_);
    }

 private:
    const Driver *driver_;
    void *before_ = nullptr;
    bool is_in_ = false;
};

// While it lives this thread's signals are blocked and its floating-point environment is the
// default: threads that a driver starts meanwhile inherit both.
class DriverThreads {
 public:
    DriverThreads();
    DriverThreads(const DriverThreads &) = delete;
    DriverThreads &operator=(const DriverThreads &) = delete;
    ~DriverThreads();

 private:
    sigset_t signals_;
    fenv_t environment_;
};

// Fails with what a driver call returned.
quire_status fail_driver(const Driver &driver, Result result, const char *what, quire_error *error);

// A variable of the environment; NULL where it is not set, empty, or not to be believed.
const char *environment(const char *name);

}  // namespace quire::gpu
