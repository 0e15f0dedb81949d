// SPDX-License-Identifier: Apache-2.0
//
// progress: a line on stderr that shows how far the run is; redrawn on a terminal, else repeated.

#pragma once

#include "scheduler.hpp"

#include <chrono>
#include <cstddef>
#include <string>

namespace engine {

class Progress {
 public:
    // enabled  false: prints nothing.
    Progress(bool enabled, size_t request_count);

    void show(const Scheduler &scheduler);
    // Ends the line.
    void finish(const Scheduler &scheduler);

 private:
    using Clock = std::chrono::steady_clock;

    void print(const Scheduler &scheduler);

    bool enabled_;
    bool terminal_;
    size_t request_count_;
    Clock::time_point next_;
};

}  // namespace engine
