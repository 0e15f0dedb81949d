// SPDX-License-Identifier: Apache-2.0
//
// dtype: the element types of a pool under the names used by the options and the results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace quire::bench {

struct Dtype {
    const char *name;
    uint32_t id;           // QUIRE_DTYPE_*, of the pool
    uint32_t written_as;   // given to quire_kv_write; the pool's own type is not converted
    uint32_t computed_as;  // by a model on a GPU: its q, results, K and V before they are written
    uint32_t bits;         // of an element in the pool
    uint32_t scale_bytes;  // per token and head of K, and of V; 0: none
};

const std::vector<Dtype> &dtypes();

// Errors   throws Failure if no type has the name.
const Dtype &find_dtype(const std::string &name);
// Name of a QUIRE_DTYPE_*: "f16".
const char *name_of_dtype(uint32_t id);

// Bytes of K and V of a token, including scales, in all heads of one layer.
uint64_t token_bytes(const Dtype &dtype, uint32_t kv_heads, uint32_t dim);

// Fills `count` elements of a type that kernels take with numbers of either sign from 1/32 to 1:
// none is 0, a denormal or equal to its neighbour.
void fill_numbers(uint32_t written_as, std::byte *to, uint64_t count);
uint64_t written_bytes(uint32_t written_as);  // of an element

}  // namespace quire::bench
