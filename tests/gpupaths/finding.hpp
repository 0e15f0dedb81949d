// SPDX-License-Identifier: Apache-2.0
//
// finding: a promise of the headers that the library broke.
//
// Threads: none; a value.
#pragma once

#include <cstdarg>
#include <cstdio>
#include <string>

namespace gpupaths {

struct Finding {
    std::string promise;
    std::string text;
};

[[noreturn, gnu::format(printf, 2, 3)]] inline void fail(const char *promise, const char *format,
                                                         ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Finding{promise, text};
}

}  // namespace gpupaths
