// SPDX-License-Identifier: Apache-2.0
//
// write_case: one kv_write into unwritten memory, and the memory afterwards.
//
// Threads: none.
#pragma once

#include <cstdint>
#include <vector>

#include "spec.hpp"
#include "subject.hpp"

namespace quire::conformance {

constexpr uint32_t kWrittenLayer = 1;  // of 3

struct WriteSpec {
    quire_be_attention_query shape{};
    uint32_t dtype = QUIRE_DTYPE_F32;  // of K and V as given
    Layout layout = Layout::head_major;
    uint32_t padding = 0;  // elements between given tokens; 8 times as many bytes in the pool
    uint32_t block_count = 9;
    std::vector<float> scales;  // static scales of the written layer: [2][kv_heads]
    std::vector<float> amax;    // initial, all layers: [3][2][kv_heads]; empty: the pool has none
    quire_be_plan *plan = nullptr;   // with a rope
    std::vector<int32_t> positions;  // [tokens]; with a plan
};

// Two KV heads, blocks of 16; no attention.
quire_be_attention_query write_shape(const PoolTypes &types, uint32_t k_dim, uint32_t v_dim);

struct Written {
    quire_be_pool pool;
    std::vector<unsigned char> bytes;
    std::vector<float> amax;  // after the write
};

// Writes tokens of these bits, dense [slots][kv_heads][dim], into kWrittenLayer.
Written write_tokens(Rig &rig, const WriteSpec &spec, const std::vector<int64_t> &slots,
                     const std::vector<uint32_t> &k_bits, const std::vector<uint32_t> &v_bits);

// Where a row of the written layer, or its scale, begins in the pool.
int64_t offset_of(const quire_be_pool &pool, int64_t slot, uint32_t head, bool is_v);
int64_t scale_offset_of(const quire_be_pool &pool, int64_t slot, uint32_t head, bool is_v);

}  // namespace quire::conformance
