// SPDX-License-Identifier: Apache-2.0

#include "test_limits.hpp"

#include <charconv>
#include <string_view>

namespace quire {

namespace {

bool set_limit(std::string_view text, TestLimits *limits) {
    constexpr std::string_view kHashBits = "hash_bits=";
    if (!text.starts_with(kHashBits)) return false;
    text.remove_prefix(kHashBits.size());
    const char *end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, limits->hash_bits);
    return error == std::errc{} && stop == end && limits->hash_bits >= 1 && limits->hash_bits <= 64;
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
