// SPDX-License-Identifier: Apache-2.0
//
// dtype: the element types of a pool by the names that the options and the results have for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::bench {

struct Dtype {
    const char *name;
    uint32_t id;           // QUIRE_DTYPE_*, of the pool
    uint32_t written_as;   // of what is given to quire_kv_write; the pool's own is not converted
    uint32_t computed_as;  // by a model on a GPU: its q, results, K and V before they are written
    uint32_t bits;         // of an element in the pool
    uint32_t scale_bytes;  // beside each token and head's K, and V; 0: none
};

const std::vector<Dtype> &dtypes();

// Errors   throws Failure for a name that is none of them.
const Dtype &find_dtype(const std::string &name);
// Of a QUIRE_DTYPE_*: "f16".
const char *name_of_dtype(uint32_t id);

// Bytes of K and V of a token, scales included, in all heads of one layer.
uint64_t token_bytes(const Dtype &dtype, uint32_t kv_heads, uint32_t dim);

// Fills `count` elements of a type that kernels are given with numbers of either sign from 1/32 to
// 1: none is 0, a denormal or like its neighbour.
void fill_numbers(uint32_t written_as, std::byte *to, uint64_t count);
uint64_t written_bytes(uint32_t written_as);  // of an element

}  // namespace quire::bench
