/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: elements of three types, where a token's K and V lie, and writing them there.
 */
#ifndef QUIRE_TESTS_TOY_POOL_H
#define QUIRE_TESTS_TOY_POOL_H

#include "device.h"

uint32_t element_bytes(uint32_t dtype); /* 0 of a type that is not known */
float element_load(uint64_t address, uint32_t dtype);
void element_store(uint64_t address, uint32_t dtype, float value);

/* Does all of it lie where it says, and is there such a layer? */
quire_status pool_check(const quire_be_pool *pool, uint32_t layer, quire_error *error);

/* Addresses of a token's first element, of a pool that was checked. */
uint64_t pool_k(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head);
uint64_t pool_v(const quire_be_pool *pool, uint32_t layer, uint64_t block, uint32_t token,
                uint32_t head);

/* [tokens][heads][head_dim] of a call: does it begin at an element, and do tokens not overlap? */
int rows_fit(uint64_t address, uint32_t dtype, int64_t token_stride, uint32_t heads,
             uint32_t head_dim);

quire_status kv_write(quire_be_queue *queue, const quire_be_kv_write *args, quire_error *error);

#endif /* QUIRE_TESTS_TOY_POOL_H */
