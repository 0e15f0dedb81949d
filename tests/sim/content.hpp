// SPDX-License-Identifier: Apache-2.0
//
// content: what one slot holds, as one number.
//
//   bits 63..52  tenant, 1 to 4,095; 0 in all bits: the slot was zeroed, or never written
//   bit  51      poison: a failed step wrote it, or something that depends on one
//   bits 50..0   hash of all that decides K and V there
//
// Why a hash: two runs of the same tokens give interchangeable K and V, and only those. With 51
// bits and some 10^4 contents alive, a false match has a chance of about 10^-8 in a run.
//
// Threads: none; values.
#pragma once
#include <cstdint>

#include "rng.hpp"

namespace sim {

using Content = uint64_t;

constexpr uint32_t kTenantShift = 52;
constexpr Content kPoison = 1ull << 51;
constexpr Content kHashMask = kPoison - 1;

inline Content make_content(uint32_t tenant, uint64_t hash) {
    return static_cast<Content>(tenant) << kTenantShift | (scramble(hash) & kHashMask);
}
inline uint32_t tenant_of(Content content) {
    return static_cast<uint32_t>(content >> kTenantShift);
}
inline Content poisoned(Content content) {
    return content == 0 ? 0 : (content & ~kHashMask) | kPoison | (scramble(content) & kHashMask);
}

}  // namespace sim
