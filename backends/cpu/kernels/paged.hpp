// SPDX-License-Identifier: Apache-2.0
//
// paged: where a token's K and V lie in a pool.
//
// Units: offsets are bytes and 64 bits wide; a slot is block * block_tokens + place in the block.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstddef>
#include <cstdint>

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

}  // namespace quire::cpu
