// SPDX-License-Identifier: Apache-2.0

#include "workers.hpp"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace quire::bench {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<uint64_t> kept;

}  // namespace

Share share_of(uint64_t total, uint32_t worker, uint32_t worker_count) {
    uint64_t each = total / worker_count;
    uint64_t more = total % worker_count;  // the first ones get one more
    auto begin = [&](uint64_t w) { return w * each + std::min(w, more); };
    return {begin(worker), begin(uint64_t{worker} + 1)};
}

double seconds_together(uint32_t worker_count, const std::function<void(uint32_t)> &job) {
    Clock::time_point start;
    std::vector<Clock::time_point> ends(worker_count);
    std::barrier gate(worker_count, [&start]() noexcept { start = Clock::now(); });
    auto work = [&](uint32_t worker) {
        gate.arrive_and_wait();
        job(worker);
        ends[worker] = Clock::now();
    };
    std::vector<std::thread> others;
    for (uint32_t worker = 1; worker < worker_count; ++worker) others.emplace_back(work, worker);
    work(0);
    for (std::thread &other : others) other.join();
    return std::chrono::duration<double>(*std::max_element(ends.begin(), ends.end()) - start)
        .count();
}

void keep(uint64_t value) { kept.fetch_xor(value, std::memory_order_relaxed); }

}  // namespace quire::bench
