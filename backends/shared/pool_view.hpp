// SPDX-License-Identifier: Apache-2.0
//
// pool_view: whether a described pool can be walked without leaving its memory.
//
// Threads: any; nothing is kept.
#pragma once

#include "quire/plugin/backend.h"
#include "shared/element_type.hpp"

namespace quire {

// Checks a pool's pointers, formats, scales, strides and extent, and that it has `layer`.
quire_status check_pool(const quire_be_pool *pool, uint32_t layer, quire_error *error);

// How many tokens the pool holds: each factor is below 2^32.
inline int64_t slot_count_of(const quire_be_pool &pool) {
    return int64_t{pool.block_count} * pool.block_tokens;
}

// Checks that `address` is memory that elements of this type can be read from.
quire_status check_elements(uint64_t address, const ElementType &element, const char *name,
                            quire_error *error);

// 0 becomes dense; less than one token is refused.
quire_status resolve_stride(int64_t *stride, uint64_t token_elements, const char *name,
                            quire_error *error);

}  // namespace quire
