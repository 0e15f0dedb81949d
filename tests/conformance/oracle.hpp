// SPDX-License-Identifier: Apache-2.0
//
// oracle: paged attention in double precision, as plainly as it can be said.
//
// It reads the bytes that were stored, so the error of storing is not the kernel's. It shares
// nothing with core or backends but the public headers: it walks pool and table by itself, makes
// two passes over all keys and knows no tiles.
//
// Threads: any; nothing is kept.
#pragma once

#include <cstdint>
#include <vector>

#include "quire/plugin/backend.h"

namespace quire::conformance {

// All in host memory. `pool` describes `bytes`; its address is not used.
struct OracleInput {
    quire_be_pool pool;
    uint32_t layer;
    const unsigned char *bytes;
    quire_be_attention_query shape;
    double scale;
    std::vector<int32_t> block_table;  // [rows][block_table_stride]
    uint32_t block_table_stride;
    std::vector<int32_t> lengths;
    std::vector<int32_t> cu_q;
    const unsigned char *q;  // [tokens][q_token_stride]
    int64_t q_token_stride;  // elements
};

struct OracleOutput {
    std::vector<double> out;          // [tokens][q_heads][v_head_dim]
    std::vector<double> lse;          // [tokens][q_heads]
    std::vector<double> largest_v;    // [tokens][q_heads]: largest visible |v|
    std::vector<double> score_range;  // [tokens][q_heads]: largest of scale * sum |q_d k_d|
};

OracleOutput oracle_attention(const OracleInput &input);

}  // namespace quire::conformance
