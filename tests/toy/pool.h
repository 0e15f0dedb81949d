/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: elements of three types, the places of a token's K and V, and KV writes.
 */
#ifndef QUIRE_TESTS_TOY_POOL_H
#define QUIRE_TESTS_TOY_POOL_H

#include "device.h"

uint32_t element_bytes(uint32_t dtype); /* 0 for an unknown type */
float element_load(uint64_t address, uint32_t dtype);
void element_store(uint64_t address, uint32_t dtype, float value);

/* Checks that all of the pool lies within its memory, and that it has the layer. */
quire_status pool_check(const quire_be_pool *pool, uint32_t layer, quire_error *error);

/* Address of the first element of a token's head. REQUIRES: the pool was checked. */
uint64_t pool_k(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head);
uint64_t pool_v(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head);

/* True if a call's [tokens][heads][head_dim] begins at an element and tokens do not overlap. */
int rows_fit(uint64_t address, uint32_t dtype, int64_t token_stride, uint32_t heads,
             uint32_t head_dim);

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);

#endif /* QUIRE_TESTS_TOY_POOL_H */
