// SPDX-License-Identifier: Apache-2.0
//
// counting: the counters of all launches of this driver, while a test or an environment variable
// asks for them.
//
// Environment
//   FAKEGPU_COUNTS   a file to which everything that was launched is written when the process exits
//
// Threads: any. The counters are never freed, because launches may outlive a test.

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "machine.hpp"

namespace fakegpu {

namespace {

Counters &all_counters() {
    static auto *counters = new Counters;
    return *counters;
}

std::atomic<bool> is_counting{false};

// The process cannot fail any more, so a file that cannot be written is named on stderr.
void write_counts() {
    const char *path = std::getenv("FAKEGPU_COUNTS");
    std::FILE *file = path == nullptr ? nullptr : std::fopen(path, "w");
    std::string text = all_counters().json();
    bool is_written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file != nullptr) is_written = std::fclose(file) == 0 && is_written;
    if (!is_written) std::fprintf(stderr, "FAKEGPU_COUNTS: no counts were written\n");
}

[[maybe_unused]] const bool is_asked_by_environment = [] {
    if (std::getenv("FAKEGPU_COUNTS") == nullptr) return false;
    is_counting.store(true);
    return std::atexit(write_counts) == 0;
}();

}  // namespace

Counters *counting() { return is_counting.load() ? &all_counters() : nullptr; }

}  // namespace fakegpu

void fakegpu_count(int is_on) {
    if (is_on != 0) fakegpu::all_counters().clear();
    fakegpu::is_counting.store(is_on != 0);
}

uint64_t fakegpu_counted(fakegpu::SiteCount *counts, uint64_t room) {
    std::vector<fakegpu::SiteCount> all = fakegpu::all_counters().counts();
    for (uint64_t i = 0; i < all.size() && i < room; ++i) counts[i] = all[i];
    return all.size();
}
