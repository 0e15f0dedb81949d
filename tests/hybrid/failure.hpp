// SPDX-License-Identifier: Apache-2.0
//
// failure: a check that did not hold, as an exception that ends its seed.
//
// Threads: any.
#pragma once
#include <cstdint>
#include <sstream>
#include <string>

namespace hybrid {

struct Failure {
    std::string check;  // its name
    std::string text;
};

template <class... Parts>
std::string join(const Parts &...parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

template <class... Parts>
[[noreturn]] void fail(const char *check, const Parts &...parts) {
    throw Failure{check, join(parts...)};
}

inline std::string hex(uint64_t handle) {
    std::ostringstream out;
    out << std::hex << handle;
    return out.str();
}

}  // namespace hybrid
