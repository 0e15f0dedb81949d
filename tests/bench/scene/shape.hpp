// SPDX-License-Identifier: Apache-2.0
//
// shape: the sizes of an attention case.
#pragma once

#include <cstdint>
#include <string>

namespace quire::bench {

constexpr uint32_t kBlockTokens = 16;

struct Shape {
    uint32_t sequences;
    uint32_t tokens;  // per sequence, including those of the measured step
    uint32_t q_heads;
    uint32_t kv_heads;
    uint32_t dim;

    uint64_t blocks() const { return uint64_t{sequences} * ((tokens - 1) / kBlockTokens + 1); }
    std::string name() const {
        return std::to_string(sequences) + "x" + std::to_string(tokens) + "-" +
               std::to_string(q_heads) + "/" + std::to_string(kv_heads) + "-d" +
               std::to_string(dim);
    }
};

// Operations of new tokens that follow `past` others of their sequence: two products of 2 * dim for
// each query head and visible key, and half of that for the new keys among themselves.
inline double attention_operations(const Shape &shape, uint64_t past, uint64_t new_tokens) {
    double n = static_cast<double>(new_tokens);
    // A single token sees itself completely.
    double keys = n * static_cast<double>(past) + (new_tokens == 1 ? 1 : n * n / 2);
    return 4.0 * shape.dim * shape.q_heads * shape.sequences * keys;
}

}  // namespace quire::bench
