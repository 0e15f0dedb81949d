// SPDX-License-Identifier: Apache-2.0
//
// progress: one line on standard error that shows how far a long run is, if that is a terminal.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdio>

namespace quire::cli {

class Progress {
 public:
    // `what`: "replaying request"
    Progress(const char *what, uint64_t total)
        : what_(what), total_(total), shown_(isatty(STDERR_FILENO) != 0) {}
    ~Progress() {
        if (shown_) std::fputs("\r\033[K", stderr);
    }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    void at(uint64_t done) const {
        if (shown_ && done % 256 == 0) {
            std::fprintf(stderr, "\r%s %llu of %llu", what_, static_cast<unsigned long long>(done),
                         static_cast<unsigned long long>(total_));
        }
    }

 private:
    const char *what_;
    uint64_t total_;
    bool shown_;
};

}  // namespace quire::cli
