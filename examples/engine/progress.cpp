// SPDX-License-Identifier: Apache-2.0

#include "progress.hpp"

#include <unistd.h>
#include <cstdio>

namespace engine {

Progress::Progress(bool enabled, size_t request_count)
    : enabled_(enabled), terminal_(isatty(STDERR_FILENO) != 0), request_count_(request_count) {}

void Progress::show(const Scheduler &scheduler) {
    if (enabled_ && Clock::now() >= next_) {
        print(scheduler);
        next_ = Clock::now() + std::chrono::milliseconds(terminal_ ? 100 : 2000);
    }
}

void Progress::finish(const Scheduler &scheduler) {
    if (enabled_) {
        print(scheduler);
        std::fputs(terminal_ ? "\n" : "", stderr);
    }
}

void Progress::print(const Scheduler &scheduler) {
    const Totals &totals = scheduler.totals();
    std::fprintf(stderr, "%sstep %zu: %zu of %zu requests done, %zu texts running, %zu tokens%s",
                 terminal_ ? "\r\033[K" : "", totals.steps, totals.requests_done, request_count_,
                 scheduler.running_count(), totals.generated_tokens, terminal_ ? "" : "\n");
    std::fflush(stderr);
}

}  // namespace engine
