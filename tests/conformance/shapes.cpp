// SPDX-License-Identifier: Apache-2.0

#include "shapes.hpp"

#include <cstring>
#include <stdexcept>

#include "quire/attention.h"

namespace quire::conformance {

namespace {

constexpr uint32_t kTypes[] = {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16};

struct Types {
    uint32_t q, k, v;
};

// What engines ask for: all of one type, f32 queries over half pools, K finer than V.
constexpr Types kSweptTypes[] = {
    {QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_DTYPE_F16},
    {QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, QUIRE_DTYPE_F32},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_F16},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16},
};

struct Dims {
    uint32_t k, v;
};

// Llama and Qwen 128 and 64, Phi 80 and 96, Gemma 256, DeepSeek 192 with 128 and, latent, 576 with
// 512; 8 and 40 lie off the tiles of matrix units.
constexpr Dims kSweptDims[] = {{8, 8},     {40, 40},   {64, 64},   {80, 80},  {96, 96},
                               {128, 128}, {192, 128}, {256, 256}, {576, 512}};

constexpr uint32_t kSweptBlocks[] = {1, 8, 16, 32, 64, 128};

quire_be_attention_query shape_of(Types types, Dims dims, uint32_t block_tokens) {
    quire_be_attention_query shape{};
    shape.struct_size = sizeof shape;
    shape.q_heads = 4;
    shape.kv_heads = 2;
    shape.k_head_dim = dims.k;
    shape.v_head_dim = dims.v;
    shape.q_dtype = types.q;
    shape.k_dtype = types.k;
    shape.v_dtype = types.v;
    shape.block_tokens = block_tokens;
    return shape;
}

}  // namespace

Answer ask(Rig &rig, const quire_be_attention_query &shape) {
    quire_be_answer answer{};
    answer.struct_size = sizeof answer;
    Error error;
    must(api().query_attention(rig.device(), &shape, &answer, &error), error);
    return {answer.support, answer.workspace_bytes,
            std::string(answer.reason, strnlen(answer.reason, sizeof answer.reason))};
}

bool is_offered(Rig &rig, const quire_be_attention_query &shape) {
    return ask(rig, shape).support != QUIRE_BE_NO;
}

std::vector<quire_be_attention_query> common_shapes() {
    std::vector<quire_be_attention_query> shapes;
    for (uint32_t dim : {64u, 128u}) {
        for (uint32_t type : kTypes) shapes.push_back(shape_of({type, type, type}, {dim, dim}, 16));
    }
    return shapes;
}

quire_be_attention_query plain_shape(Rig &rig) {
    std::vector<quire_be_attention_query> shapes = common_shapes();
    for (const auto &shape : shapes) {
        if (is_offered(rig, shape)) return shape;
    }
    throw std::runtime_error(
        "no common shape is offered: causal, f32, f16 or bf16 throughout, head dim 64 or 128, "
        "blocks of 16 tokens; the last was refused with: " +
        ask(rig, shapes.back()).reason);
}

std::vector<SweptShape> swept_shapes() {
    std::vector<SweptShape> swept;
    for (Kind kind : {Kind::write, Kind::causal, Kind::window, Kind::not_causal}) {
        for (Types types : kSweptTypes) {
            for (Dims dims : kSweptDims) {
                for (uint32_t block_tokens : kSweptBlocks) {
                    quire_be_attention_query shape = shape_of(types, dims, block_tokens);
                    if (kind == Kind::write) shape.q_heads = shape.q_dtype = 0;
                    if (kind == Kind::window) shape.window = 1024;
                    if (kind == Kind::not_causal) shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
                    swept.push_back({kind, shape});
                }
            }
        }
    }
    return swept;
}

}  // namespace quire::conformance
