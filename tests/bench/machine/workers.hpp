// SPDX-License-Identifier: Apache-2.0
//
// workers: threads that do one job together, timed from the first start to the last end.
//
// Threads: the caller is one of them; the others have ended when the call returns.
#pragma once

#include <cstdint>
#include <functional>

namespace quire::bench {

// One worker's part of `total` things; parts are contiguous and cover all.
struct Share {
    uint64_t begin;
    uint64_t end;
};
Share share_of(uint64_t total, uint32_t worker, uint32_t worker_count);

// Seconds in which job(0) to job(worker_count - 1) ran, each in a thread of its own.
double seconds_together(uint32_t worker_count, const std::function<void(uint32_t)> &job);

// Keeps a kernel's result alive.
void keep(uint64_t value);

}  // namespace quire::bench
