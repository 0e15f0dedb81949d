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

// While it lives, the device's context is current on this thread, if the driver allowed it; then
// the previous one is restored. The device may be used only inside such a scope.
class Entered {
 public:
    explicit Entered(const Context &context) : driver_(context.driver) {
        result_ = driver_->enter(context.handle, &before_);
    }
    Entered(const Entered &) = delete;
    Entered &operator=(const Entered &) = delete;
    ~Entered() {
        if (is_in()) driver_->leave(before_);
    }

    bool is_in() const { return result_ == 0; }
    // The result of entering; Device::check_in() checks it.
    Result result() const { return result_; }

 private:
    const Driver *driver_;
    Before before_;
    Result result_ = 0;
};

// While it lives, this thread's signals are blocked and its floating-point environment is the
// default, since threads that a driver starts inherit both.
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

// Fails with the result of a driver call.
quire_status fail_driver(const Driver &driver, Result result, const char *what, quire_error *error);

// An environment variable; NULL if it is unset, empty, or the process is privileged.
const char *environment(const char *name);

}  // namespace quire::gpu
