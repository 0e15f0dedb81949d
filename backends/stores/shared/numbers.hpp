// SPDX-License-Identifier: Apache-2.0
//
// numbers: counts and sizes in the text of an option.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace quire {

inline bool read_count(std::string_view text, uint64_t *out) {
    if (text.empty() || text.size() > 19) return false;
    *out = 0;
    for (char c : text) {
        if (c < '0' || c > '9') return false;
        *out = *out * 10 + static_cast<uint64_t>(c - '0');
    }
    return true;
}

inline bool read_size(std::string_view text, uint64_t *out) {
    unsigned shift = 0;
    constexpr std::pair<std::string_view, unsigned> kUnits[] = {
        {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
    for (const auto &[unit, bits] : kUnits) {
        if (!text.ends_with(unit)) continue;
        text.remove_suffix(unit.size());
        shift = bits;
    }
    if (!read_count(text, out) || *out > UINT64_MAX >> shift) return false;
    *out <<= shift;
    return true;
}

}  // namespace quire
