// SPDX-License-Identifier: Apache-2.0
//
// checked: the only arithmetic on sizes that come from outside. The result is false on overflow.
#pragma once

#include <cstdint>

namespace quire {

[[nodiscard]] inline bool checked_mul(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

[[nodiscard]] inline bool checked_add(uint64_t a, uint64_t b, uint64_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

inline uint32_t ceil_div(uint32_t a, uint32_t b) { return a / b + (a % b != 0 ? 1 : 0); }

inline bool is_power_of_two(uint64_t v) { return v != 0 && (v & (v - 1)) == 0; }

// `v` must be at most 2^63.
inline uint64_t next_power_of_two(uint64_t v) {
    return v <= 1 ? 1 : uint64_t{1} << (64 - __builtin_clzll(v - 1));
}

}  // namespace quire
