// SPDX-License-Identifier: Apache-2.0

#include "border.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

namespace quire::gpu {

namespace {

bool is_time(double milliseconds) { return std::isfinite(milliseconds) && milliseconds > 0; }
bool counts(const Timing &timing) { return is_time(timing.kernel_ms) && is_time(timing.driver_ms); }

// The time the border loses where it picks the slower way, relative to the faster.
double loss(const Timing *timings, size_t count, uint64_t border) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const Timing &timing = timings[i];
        if (!counts(timing)) continue;
        double chosen = timing.size_bytes >= border ? timing.driver_ms : timing.kernel_ms;
        sum += chosen / std::min(timing.driver_ms, timing.kernel_ms) - 1;
    }
    return sum;
}

}  // namespace

uint64_t border_of(const Timing *timings, size_t count) {
    if (std::none_of(timings, timings + count, counts)) return kGuessedBorder;
    uint64_t best = kAllByKernel;
    double least = loss(timings, count, best);
    for (size_t i = 0; i < count; ++i) {
        if (!counts(timings[i])) continue;
        uint64_t border = timings[i].size_bytes;
        double lost = loss(timings, count, border);
        if (lost > least || (lost == least && border < best)) continue;
        best = border;
        least = lost;
    }
    return best;
}

bool parse_border(const char *text, uint64_t *border) {
    const char *end = text + std::strlen(text);
    auto [stopped, failed] = std::from_chars(text, end, *border);
    return failed == std::errc() && stopped == end;
}

}  // namespace quire::gpu
