// SPDX-License-Identifier: Apache-2.0
//
// hash: the keyed chain hash of the prefix tree: hash_i = H(hash_{i-1}, tokens_i, extra_i).
//
// The hash only finds candidates; each is verified, so no property of it is needed for correctness.
// The key keeps a caller from crowding one bucket on purpose. XXH3, 64 bits, is used with the
// previous hash as its seed; the first one is drawn from the cache's random key.
// QUIRE_WEAK_HASH_BITS cuts it short, so that tests meet collisions all the time.
#pragma once

#ifndef XXH_INLINE_ALL
#define XXH_INLINE_ALL
#endif
#include <xxhash.h>

#include <cstdint>

namespace quire {

inline uint64_t weaken(uint64_t hash) {
#ifdef QUIRE_WEAK_HASH_BITS
    return hash & ((uint64_t{1} << QUIRE_WEAK_HASH_BITS) - 1);
#else
    return hash;
#endif
}

inline uint64_t chain_hash(uint64_t previous, const void *bytes, uint64_t size_bytes) {
    return weaken(XXH3_64bits_withSeed(bytes, size_bytes, previous));
}

}  // namespace quire
