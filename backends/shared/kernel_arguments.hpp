// SPDX-License-Identifier: Apache-2.0
//
// kernel_arguments: fills in GPU kernels' arguments for a pool, a write, a move or an attention.
//
// Each backend has its own structs, because it passes them in its own way, but their fields have
// the same names and meanings, so they are filled here once. A backend fills in the fields that
// only it has.
//
// REQUIRES, for all: the call was resolved and checked (pool_calls.hpp).
//
// Threads: any; nothing is kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "quire/attention.h"
#include "quire/cache.h"
#include "quire/plugin/backend.h"
#include "shared/element_type.hpp"
#include "shared/kernel_enums.hpp"
#include "shared/plan_options.hpp"
#include "shared/pool_view.hpp"

namespace quire {

// REQUIRES: the type is one of those in element_type.hpp.
Format format_of(uint32_t dtype);

// The options that an attention's shape and arguments ask for, without a backend's own.
uint32_t attend_options(const PlanOptions &plan, const quire_be_attention &args);

// How far one position turns each pair of a plan's rope, modulo whole turns, as fractions of 2^64;
// empty without a rope. An angle is then one integer product, which wraps as turns do and is exact
// except for this rounding: at position 2^31 it is wrong by 2^-33 of a turn.
std::vector<uint64_t> rope_turns(const PlanOptions &options);

// Where a layer's numbers begin in f32 [layer_count][2][kv_heads]; 0 stays 0.
uint64_t at_layer(uint64_t address, const quire_be_pool &pool, uint32_t layer);

// Chunks of a row of up to this many places, at least 1.
inline uint32_t chunk_count(uint64_t places, uint64_t chunk_places) {
    return static_cast<uint32_t>(std::max<uint64_t>(1, (places + chunk_places - 1) / chunk_places));
}

// As a signed number; a window larger than INT32_MAX covers every token anyway.
int32_t capped_tokens(uint32_t tokens);

template <typename Arguments>
void put_strides(const quire_be_pool &pool, Arguments *to) {
    to->block_stride = pool.block_stride;
    to->v_offset = pool.v_offset;
    to->k_head_stride = pool.k_head_stride;
    to->k_token_stride = pool.k_token_stride;
    to->v_head_stride = pool.v_head_stride;
    to->v_token_stride = pool.v_token_stride;
    to->k_scale_offset = pool.k_scale_offset;
    to->v_scale_offset = pool.v_scale_offset;
    to->scale_head_stride = pool.scale_head_stride;
    to->block_tokens = pool.block_tokens;
    to->kv_heads = pool.kv_heads;
}

template <typename Arguments>
void put_rows(const quire_be_pool &pool, uint32_t layer, Arguments *to) {
    put_strides(pool, to);
    to->pool = pool.address + layer * static_cast<uint64_t>(pool.layer_stride);
    to->k_dim = pool.k_head_dim;
    to->v_dim = pool.v_head_dim;
    to->k_format = format_of(pool.k_dtype);
    to->v_format = format_of(pool.v_dtype);
}

// plan: NULL if there is no rope.
template <typename Arguments>
void put_kv_write(const quire_be_kv_write &args, const PlanOptions *plan, Arguments *to) {
    const quire_be_pool &pool = *args.pool;
    put_rows(pool, args.layer, to);
    bool has_scales =
        pool.k_scale_kind == QUIRE_SCALE_TENSOR || pool.k_scale_kind == QUIRE_SCALE_HEAD ||
        pool.v_scale_kind == QUIRE_SCALE_TENSOR || pool.v_scale_kind == QUIRE_SCALE_HEAD;
    to->scales = has_scales ? at_layer(pool.scales, pool, args.layer) : 0;
    to->amax = at_layer(pool.amax, pool, args.layer);
    to->k = args.k;
    to->v = args.v;
    to->slots = args.slots;
    to->slot_count = slot_count_of(pool);
    to->k_given_stride = args.k_token_stride;
    to->v_given_stride = args.v_token_stride;
    to->k_scale = pool.k_scale_kind;
    to->v_scale = pool.v_scale_kind;
    to->given_format = format_of(args.dtype);
    to->is_latent = pool.group_kind == QUIRE_GROUP_LATENT ? 1 : 0;
    if (plan == nullptr || !plan->has(QUIRE_BE_ATTENTION_ROPE)) return;
    to->positions = args.positions;
    to->q = args.q;
    to->q_stride = args.q_token_stride;
    to->q_format = format_of(plan->shape.q_dtype);
    to->q_heads = plan->shape.q_heads;
    to->rotated_dim = plan->shape.rotated_dim;
    to->is_in_pairs = plan->shape.rope_pairing == QUIRE_ROPE_PAIRS ? 1 : 0;
    to->magnitude = plan->rope_magnitude;
}

// Everything except the moves.
template <typename Arguments>
void put_move(const quire_be_pool &pool, Arguments *to) {
    bool has_v = pool.group_kind != QUIRE_GROUP_LATENT;
    bool has_k_scale = pool.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    bool has_v_scale = has_v && pool.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD;
    auto row_bytes = [](uint32_t dtype, uint32_t dim) {
        return static_cast<uint32_t>(find_type(dtype)->row_bytes(dim));
    };
    put_strides(pool, to);
    to->pool = pool.address;
    to->layer_stride = pool.layer_stride;
    to->k_bytes = row_bytes(pool.k_dtype, pool.k_head_dim);
    to->v_bytes = has_v ? row_bytes(pool.v_dtype, pool.v_head_dim) : 0;
    to->k_scale_bytes = has_k_scale ? sizeof(float) : 0;
    to->v_scale_bytes = has_v_scale ? sizeof(float) : 0;
}

// Everything except the slopes and how the call is divided: chunks, rounds, scratch memory.
template <typename Arguments>
void put_attention(const PlanOptions &plan, const quire_be_attention &args, Arguments *to) {
    const quire_be_pool &pool = *args.pool;
    to->options = attend_options(plan, args);
    put_rows(pool, args.layer, to);
    to->block_count = pool.block_count;
    if ((to->options & (kStaticKScale | kStaticVScale)) != 0) {
        to->scales = at_layer(pool.scales, pool, args.layer);
    }
    to->q = args.q;
    to->out = args.out;
    to->lse = args.lse;
    to->block_table = args.block_table;
    to->lengths = args.lengths;
    to->cu_q = args.cu_q;
    to->sinks = args.sinks;
    to->shared_prefix = args.shared_prefix;
    if (args.mask != 0) {
        to->positions = args.positions;
        to->mask = args.mask;
        to->mask_rows = args.mask_rows;
        to->mask_first = args.mask_first;
    }
    to->q_stride = args.q_token_stride;
    to->out_stride = args.out_token_stride;
    to->block_table_stride = args.block_table_stride;
    to->row_count = args.row_count;
    to->query_tokens = args.query_tokens;
    to->q_heads = plan.shape.q_heads;
    to->heads_per_kv = plan.shape.q_heads / plan.shape.kv_heads;
    to->q_format = format_of(plan.shape.q_dtype);
    to->window = capped_tokens(plan.shape.window);
    to->sink_tokens = capped_tokens(plan.shape.sink_tokens);
    to->scale = plan.scale;
    to->soft_cap = plan.soft_cap;
}

template <typename Arguments>
void put_merge(const quire_be_merge &args, Arguments *to) {
    to->parts = args.parts;
    to->lses = args.lses;
    to->out = args.out;
    to->lse = args.lse;
    to->row_count = uint64_t{args.token_count} * args.heads;
    to->part_count = args.part_count;
    to->head_dim = args.head_dim;
    to->format = format_of(args.dtype);
}

}  // namespace quire
