// SPDX-License-Identifier: Apache-2.0
//
// oracle: paged attention in double precision, in the plainest way.
//
// It reads the stored bytes exactly, codes times their scales, so the error of storing does not
// count as the kernel's. It shares only the public headers with core and backends: it walks pool
// and table itself, checks for every key whether it is visible, makes two passes over the visible
// ones, and knows no tiles.
//
// Threads: any; keeps no state.
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
    std::vector<float> scales;  // [layers][2][kv_heads]: static ones
    quire_be_attention_query shape;
    double scale;
    double soft_cap;                   // 0 = none
    std::vector<float> alibi_slopes;   // [q_heads]; empty = none
    std::vector<float> sinks;          // [q_heads]; empty = none
    std::vector<int32_t> block_table;  // [rows][block_table_stride]
    uint32_t block_table_stride;
    std::vector<int32_t> lengths;
    std::vector<int32_t> cu_q;
    std::vector<int32_t> positions;  // [tokens]; empty with the next three = no masks
    std::vector<uint32_t> mask;
    std::vector<int32_t> mask_rows;
    std::vector<int32_t> mask_first;
    const unsigned char *q;  // [tokens][q_token_stride]
    int64_t q_token_stride;  // elements
};

struct OracleOutput {
    std::vector<double> out;          // [tokens][q_heads][v_head_dim]
    std::vector<double> lse;          // [tokens][q_heads]
    std::vector<double> largest_v;    // [tokens][q_heads]: largest visible |v|
    std::vector<double> score_range;  // [tokens][q_heads]: largest sum of magnitudes in a score
};

OracleOutput oracle_attention(const OracleInput &input);

// True if the query token of the row sees the key at this place.
bool oracle_sees(const OracleInput &input, uint32_t row, int64_t token, int64_t place);
// The position of the row's query token.
int64_t oracle_position(const OracleInput &input, uint32_t row, int64_t token);

}  // namespace quire::conformance
