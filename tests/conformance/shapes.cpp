// SPDX-License-Identifier: Apache-2.0

#include "shapes.hpp"

#include <cstring>
#include <stdexcept>

#include "number.hpp"
#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::conformance {

namespace {

struct Types {
    uint32_t q, k, v;
    uint32_t k_scale, v_scale;  // QUIRE_SCALE_*
};

// Common requests of engines: all of one type, f32 queries over half pools, K finer than V.
constexpr Types kSweptTypes[] = {
    {QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 0, 0},
    {QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 0, 0},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, QUIRE_DTYPE_F32, 0, 0},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, 0, 0},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_BF16, QUIRE_DTYPE_BF16, 0, 0},
    {QUIRE_DTYPE_F32, QUIRE_DTYPE_F16, QUIRE_DTYPE_BF16, 0, 0},
};

// Codes of every type with every kind of scales, and pairs of types with K finer than V.
std::vector<Types> swept_codes() {
    std::vector<Types> swept;
    for (uint32_t dtype : kCodeTypes) {
        for (uint32_t kind : {QUIRE_SCALE_TENSOR, QUIRE_SCALE_HEAD, QUIRE_SCALE_TOKEN_HEAD}) {
            swept.push_back({QUIRE_DTYPE_F16, dtype, dtype, kind, kind});
        }
    }
    constexpr uint32_t kOwn = QUIRE_SCALE_TOKEN_HEAD;
    swept.push_back({QUIRE_DTYPE_F16, QUIRE_DTYPE_F16, QUIRE_DTYPE_I8, 0, kOwn});
    swept.push_back({QUIRE_DTYPE_F16, QUIRE_DTYPE_I8, QUIRE_DTYPE_I4, kOwn, kOwn});
    swept.push_back({QUIRE_DTYPE_F16, QUIRE_DTYPE_I8, QUIRE_DTYPE_F8_E4M3FN, kOwn, kOwn});
    return swept;
}

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
    shape.k_scale_kind = types.k_scale;
    shape.v_scale_kind = types.v_scale;
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
        for (uint32_t type : kValueTypes)
            shapes.push_back(shape_of({type, type, type, 0, 0}, {dim, dim}, 16));
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

namespace {

struct SweptKind {
    Kind kind;
    const char *name;
    void (*put)(quire_be_attention_query *shape);
    bool is_option;  // queried with blocks of 16 only, because options hardly depend on them
};

const SweptKind kSweptKinds[] = {
    {Kind::write, "kv write", [](auto *s) { s->q_heads = s->q_dtype = 0; }, false},
    {Kind::causal, "causal", [](auto *) {}, false},
    {Kind::window, "causal, window",
     [](auto *s) {
         s->group_kind = QUIRE_GROUP_WINDOW;
         s->window = 1024;
     },
     false},
    {Kind::not_causal, "not causal", [](auto *s) { s->flags = QUIRE_ATTENTION_NOT_CAUSAL; }, false},
    {Kind::window_with_sinks, "causal, window with sink tokens",
     [](auto *s) {
         s->group_kind = QUIRE_GROUP_WINDOW;
         s->window = 1024;
         s->sink_tokens = 4;
     },
     true},
    {Kind::chunked, "causal, chunked",
     [](auto *s) {
         s->group_kind = QUIRE_GROUP_CHUNKED;
         s->window = 8192;
     },
     true},
    {Kind::latent, "causal, latent",
     [](auto *s) {
         s->group_kind = QUIRE_GROUP_LATENT;
         s->q_heads = 16;
         s->kv_heads = 1;
     },
     true},
    {Kind::cross, "cross",
     [](auto *s) {
         s->group_kind = QUIRE_GROUP_CROSS;
         s->flags = QUIRE_ATTENTION_NOT_CAUSAL;
     },
     true},
    {Kind::soft_cap, "causal, soft cap", [](auto *s) { s->flags = QUIRE_BE_ATTENTION_SOFT_CAP; },
     true},
    {Kind::alibi, "causal, ALiBi", [](auto *s) { s->flags = QUIRE_BE_ATTENTION_ALIBI; }, true},
    {Kind::sink_logits, "causal, sink logits",
     [](auto *s) { s->flags = QUIRE_ATTENTION_SINK_LOGITS; }, true},
    {Kind::mask, "causal, masks", [](auto *s) { s->flags = QUIRE_ATTENTION_MASK; }, true},
    {Kind::rope_halves, "causal, rope at write in halves",
     [](auto *s) {
         s->flags = QUIRE_BE_ATTENTION_ROPE;
         s->rotated_dim = s->k_head_dim;
     },
     true},
    {Kind::rope_pairs, "causal, rope at write in pairs",
     [](auto *s) {
         s->flags = QUIRE_BE_ATTENTION_ROPE;
         s->rotated_dim = s->k_head_dim;
         s->rope_pairing = QUIRE_ROPE_PAIRS;
     },
     true},
    {Kind::batch_invariant, "causal, batch invariant",
     [](auto *s) { s->flags = QUIRE_ATTENTION_BATCH_INVARIANT; }, true},
};

}  // namespace

const char *name_of(Kind kind) {
    for (const SweptKind &one : kSweptKinds) {
        if (one.kind == kind) return one.name;
    }
    return "";
}

std::vector<SweptShape> swept_shapes() {
    std::vector<SweptShape> swept;
    for (const SweptKind &one : kSweptKinds) {
        for (Types types : kSweptTypes) {
            for (Dims dims : kSweptDims) {
                for (uint32_t block_tokens : kSweptBlocks) {
                    if (one.is_option && block_tokens != 16) continue;
                    quire_be_attention_query shape = shape_of(types, dims, block_tokens);
                    one.put(&shape);
                    swept.push_back({one.kind, shape});
                }
            }
        }
        // Whether a kernel reads codes hardly depends on its options, since
        // codes reach them as f32.
        bool asks_codes =
            one.kind == Kind::write || one.kind == Kind::causal || one.kind == Kind::latent;
        for (Types types : asks_codes ? swept_codes() : std::vector<Types>()) {
            for (Dims dims : {Dims{64, 64}, Dims{128, 128}, Dims{576, 512}}) {
                quire_be_attention_query shape = shape_of(types, dims, 16);
                one.put(&shape);
                swept.push_back({one.kind, shape});
            }
        }
    }
    return swept;
}

}  // namespace quire::conformance
