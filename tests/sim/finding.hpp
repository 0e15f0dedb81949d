// SPDX-License-Identifier: Apache-2.0
//
// finding: a promise of a header that did not hold, thrown out of the run that saw it.
//
// `promise` is a short stable name: shrinking keeps a script only while it breaks the same promise.
// Threads: none.
#pragma once
#include <cstdarg>
#include <cstdio>
#include <string>

namespace sim {

struct Finding {
    std::string promise;
    std::string text;
};

[[noreturn]] __attribute__((format(printf, 2, 3))) inline void fail(const char *promise,
                                                                    const char *format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Finding{promise, text};
}

}  // namespace sim
