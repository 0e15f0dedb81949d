// SPDX-License-Identifier: Apache-2.0
//
// pool_view: checks that a described pool can be walked without leaving its memory.
//
// Threads: any; nothing is kept.
#pragma once

#include "quire/plugin/backend.h"
#include "shared/element_type.hpp"

namespace quire {

// Checks a pool's pointers, formats, scales, strides and extent, and that it has `layer`.
quire_status check_pool(const quire_be_pool *pool, uint32_t layer, quire_error *error);

// The number of tokens that the pool can hold; each factor is below 2^32.
inline int64_t slot_count_of(const quire_be_pool &pool) {
    return int64_t{pool.block_count} * pool.block_tokens;
}

// Checks that `address` is not NULL and is aligned for elements of this type.
quire_status check_elements(uint64_t address, const ElementType &element, const char *name,
                            quire_error *error);

// Replaces a stride of 0 by the dense one; refuses one of less than a token, or too long.
quire_status resolve_stride(int64_t *stride, uint64_t token_elements, const char *name,
                            quire_error *error);

}  // namespace quire
