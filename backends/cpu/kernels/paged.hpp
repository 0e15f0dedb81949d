// SPDX-License-Identifier: Apache-2.0
//
// paged: where a token's K, V and scales lie in a pool.
//
// Units: offsets are bytes and 64 bits wide; a slot is block * block_tokens + place in the block.
//
// REQUIRES, for all: the pool was checked (pool_view.hpp), and the place is in it.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quire/cache.h"
#include "quire/plugin/backend.h"

namespace quire::cpu {

struct TokenPlace {
    int64_t block;
    int64_t place;
};

inline std::byte *k_row(const quire_be_pool &pool, uint32_t layer, uint32_t head,
                        TokenPlace token) {
    return reinterpret_cast<std::byte *>(pool.address) + token.block * pool.block_stride +
           layer * pool.layer_stride + head * pool.k_head_stride +
           token.place * pool.k_token_stride;
}

inline std::byte *v_row(const quire_be_pool &pool, uint32_t layer, uint32_t head,
                        TokenPlace token) {
    return reinterpret_cast<std::byte *>(pool.address) + token.block * pool.block_stride +
           layer * pool.layer_stride + pool.v_offset + head * pool.v_head_stride +
           token.place * pool.v_token_stride;
}

// Address of a row's own scale. REQUIRES: the side's kind is TOKEN_HEAD.
inline float *row_scale_at(const quire_be_pool &pool, int64_t scale_offset, uint32_t layer,
                           uint32_t head, TokenPlace token) {
    auto *block = reinterpret_cast<std::byte *>(pool.address) + token.block * pool.block_stride +
                  layer * pool.layer_stride;
    return reinterpret_cast<float *>(block + scale_offset + head * pool.scale_head_stride) +
           token.place;
}

// The static scale of a head's K or V, from calibration. `side`: 0 for K, 1 for V.
inline float static_scale(const quire_be_pool &pool, uint32_t side, uint32_t layer, uint32_t head) {
    const auto *scales = reinterpret_cast<const float *>(pool.scales);
    return scales[(uint64_t{layer} * 2 + side) * pool.kv_heads + head];
}

// Address of the largest magnitude of a head's K or V. `side`: 0 for K, 1 for V.
inline uint32_t *amax_at(const quire_be_pool &pool, uint32_t side, uint32_t layer, uint32_t head) {
    auto *numbers = reinterpret_cast<uint32_t *>(pool.amax);
    return numbers + (uint64_t{layer} * 2 + side) * pool.kv_heads + head;
}

}  // namespace quire::cpu
