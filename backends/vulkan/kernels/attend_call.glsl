// SPDX-License-Identifier: Apache-2.0
//
// attend_call: one attention call as its kernels see it, and which parts of it may be constants.

layout(constant_id = 1) const uint kConstKDim = 0xFFFFFFFFu;
layout(constant_id = 2) const uint kConstVDim = 0xFFFFFFFFu;
layout(constant_id = 3) const uint kConstKFormat = 0xFFFFFFFFu;
layout(constant_id = 4) const uint kConstVFormat = 0xFFFFFFFFu;
layout(constant_id = 5) const uint kConstHeadsPerKv = 0xFFFFFFFFu;
layout(constant_id = 6) const uint kConstBlockTokens = 0xFFFFFFFFu;
layout(constant_id = 7) const uint kConstOptions = 0xFFFFFFFFu;
layout(constant_id = 8) const uint kConstQFormat = 0xFFFFFFFFu;

const uint kAny = 0xFFFFFFFFu;

// shared/kernel_enums.hpp, Option; attention.cpp, WidthOption.
const uint kNotCausal = 1;
const uint kWindow = 2;
const uint kChunked = 4;
const uint kSinkLogits = 8;
const uint kSoftCap = 16;
const uint kAlibi = 32;
const uint kMask = 64;
const uint kStaticKScale = 128;
const uint kStaticVScale = 256;
const uint kOwnKScale = 512;  // in planes beside the codes
const uint kOwnVScale = 1024;
const uint kWideK = 4096;   // rows of K: 16-byte aligned, a multiple of 4 elements
const uint kWideV = 8192;   // the same for V
const uint kLatent = 2048;  // V is the beginning of K, and so are its scales

// Places per chunk; one state covers one chunk. Every query's chunks begin at multiples of it.
const int kChunkPlaces = 512;

// attention.cpp, AttendArguments.
layout(buffer_reference, scalar, buffer_reference_align = 16) readonly buffer AttendCall {
    uint64_t q, out_to, lse, block_table, lengths, cu_q, sinks;
    uint64_t positions, mask, mask_rows, mask_first, shared_prefix, slopes;
    uint64_t pool, scales;  // at the layer
    // Scratch: int [query_tokens], the row of each token or -1; then the round's states, [token]
    // [chunk][q_head]: the largest score and the sum of weights, and the weighted values
    // [v_head_dim].
    uint64_t token_rows, states, values;
    int64_t block_stride, v_offset;
    int64_t k_head_stride, k_token_stride, v_head_stride, v_token_stride;
    int64_t k_scale_offset, v_scale_offset, scale_head_stride;
    int64_t q_stride, out_stride;  // elements
    uint block_table_stride, row_count, query_tokens, block_count;
    uint block_tokens, kv_heads, q_heads, heads_per_kv;
    uint k_dim, v_dim, k_format, v_format, q_format;
    uint options;
    int window, sink_tokens;
    uint chunk_count;             // of the longest row
    uint first_token, end_token;  // of the round
    float scale, soft_cap;
};

uint k_dim_of(AttendCall call) { return kConstKDim == kAny ? call.k_dim : kConstKDim; }
uint v_dim_of(AttendCall call) { return kConstVDim == kAny ? call.v_dim : kConstVDim; }
uint k_format_of(AttendCall call) { return kConstKFormat == kAny ? call.k_format : kConstKFormat; }
uint v_format_of(AttendCall call) { return kConstVFormat == kAny ? call.v_format : kConstVFormat; }
uint q_format_of(AttendCall call) { return kConstQFormat == kAny ? call.q_format : kConstQFormat; }
uint heads_per_kv_of(AttendCall call) {
    return kConstHeadsPerKv == kAny ? call.heads_per_kv : kConstHeadsPerKv;
}
uint block_tokens_of(AttendCall call) {
    return kConstBlockTokens == kAny ? call.block_tokens : kConstBlockTokens;
}
// Loop counts over a lane's elements and a unit's queries are constants if the shape is, so that
// loops marked [[unroll]] are unrolled and their arrays become registers, as registers.py in
// tests/vulkan checks. Their bodies have no `continue`: some optimisers do not unroll it.
bool is_any_shape() { return kConstHeadsPerKv == kAny; }
uint slots_of(uint dim) { return (dim + kLanes - 1) / kLanes; }

bool has(AttendCall call, uint option) {
    return ((kConstOptions == kAny ? call.options : kConstOptions) & option) != 0;
}
