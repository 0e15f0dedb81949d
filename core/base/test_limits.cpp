// SPDX-License-Identifier: Apache-2.0

#include "core/base/test_limits.hpp"

#include <charconv>
#include <string_view>

namespace quire {

namespace {

struct Limit {
    std::string_view name;
    uint32_t TestLimits::*value;
    uint32_t least;
    uint32_t most;
};

constexpr Limit kLimits[] = {
    {"hash_bits=", &TestLimits::hash_bits, 1, 64},
    {"handle_bits=", &TestLimits::handle_bits, 1, 56},
    {"copy_runs=", &TestLimits::copy_runs, 1, 0xFFFFFFFFu},
};

bool set_limit(std::string_view text, TestLimits *limits) {
    for (const Limit &limit : kLimits) {
        if (!text.starts_with(limit.name)) continue;
        const char *begin = text.data() + limit.name.size(), *end = text.data() + text.size();
        uint32_t &value = limits->*limit.value;
        auto [stop, error] = std::from_chars(begin, end, value);
        return error == std::errc{} && stop == end && value >= limit.least && value <= limit.most;
    }
    return false;
}

}  // namespace

bool set_test_limits(const char *text) {
    TestLimits limits;
    std::string_view rest = text;
    while (!rest.empty()) {
        size_t end = rest.find(',');
        if (!set_limit(rest.substr(0, end), &limits)) return false;
        rest = end == rest.npos ? std::string_view{} : rest.substr(end + 1);
    }
    test_limits = limits;
    return true;
}

}  // namespace quire
