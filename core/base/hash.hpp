// SPDX-License-Identifier: Apache-2.0
//
// hash: the keyed chain hash of the prefix tree: hash_i = H(hash_{i-1}, tokens_i, extra_i).
//
// The hash only finds candidates; each is verified, so correctness needs no property of the hash.
// The key keeps a caller from crowding one bucket on purpose. XXH3, 64 bits, is used with the
// previous hash as its seed; the first seed comes from the cache's random key. A test build can
// truncate the hash (test_limits.hpp), so that hashes collide all the time.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstdint>

#include "core/base/test_limits.hpp"

namespace quire {

inline uint64_t weaken(uint64_t hash) {
    return hash & (~uint64_t{0} >> (64 - test_limits.hash_bits));
}

inline uint64_t chain_hash(uint64_t previous, const void *bytes, uint64_t size_bytes) {
    return weaken(XXH3_64bits_withSeed(bytes, size_bytes, previous));
}

}  // namespace quire
