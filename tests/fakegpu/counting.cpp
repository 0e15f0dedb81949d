// SPDX-License-Identifier: Apache-2.0
//
// counting: the counters of all launches of this driver, while a test or an environment variable
// asks for them.
//
// Environment, files that are written when the process exits
//   FAKEGPU_COUNTS     what everything that was launched asked for (counters.hpp)
//   FAKEGPU_LAUNCHES   how often each kernel was launched, {name: count}
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

// The process cannot fail any more, so a variable whose file cannot be written is named on stderr.
void write_file(const char *variable, const std::string &text) {
    const char *path = std::getenv(variable);
    std::FILE *file = path == nullptr ? nullptr : std::fopen(path, "w");
    bool is_written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file != nullptr) is_written = std::fclose(file) == 0 && is_written;
    if (!is_written) std::fprintf(stderr, "%s: no counts were written\n", variable);
}

void write_counts() { write_file("FAKEGPU_COUNTS", all_counters().json()); }

void write_launches() {
    std::string text;
    for (const auto &[kernel, count] : launch_counts()) {
        text += (text.empty() ? "{\"" : ",\n\"") + kernel + "\": " + std::to_string(count);
    }
    write_file("FAKEGPU_LAUNCHES", (text.empty() ? "{" : text) + "}\n");
}

[[maybe_unused]] const bool is_asked_by_environment = [] {
    if (std::getenv("FAKEGPU_LAUNCHES") != nullptr) std::atexit(write_launches);
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
