// SPDX-License-Identifier: Apache-2.0

#include "spec.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "quire/attention.h"
#include "quire/cache.h"

namespace quire::conformance {

namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// The draft that the masked token at `place` continues; -1 is the last unmasked token.
int64_t parent_of(const AttentionSpec &spec, const MaskedToken &token, int64_t place) {
    int64_t index = place - token.first_masked;
    uint64_t roll = mix(spec.seed, token.content, static_cast<uint64_t>(place), 11);
    int64_t parent = static_cast<int64_t>(roll % static_cast<uint64_t>(index + 1)) - 1;
    return parent < 0 ? -1 : token.first_masked + parent;
}

void put_rows(AttentionSpec *spec, Dice *dice) {
    for (uint32_t i = dice->roll(1, 6); i > 0; --i) {
        RowSpec row;
        row.content = static_cast<uint32_t>(spec->rows.size());
        row.length =
            static_cast<int32_t>(dice->pick({0u, 1u, dice->roll(1, 40), dice->roll(1, 300)}));
        auto length = static_cast<uint32_t>(row.length);
        row.new_tokens = static_cast<int32_t>(
            dice->pick({0u, 1u, 1u, length, dice->roll(0, std::min(length, 20u))}));
        row.new_tokens = std::min(row.new_tokens, std::max(row.length, 1));
        if (!spec->rows.empty() && dice->roll(0, 2) == 0) {
            int32_t most = std::min(row.length, spec->rows.back().length);
            auto block = static_cast<int32_t>(spec->shape.block_tokens);
            row.shared_tokens = most / block * block;
        }
        spec->rows.push_back(row);
    }
}

void make_latent(AttentionSpec *spec, Dice *dice, const quire_be_attention_query *fit) {
    quire_be_attention_query &shape = spec->shape;
    shape.group_kind = QUIRE_GROUP_LATENT;
    shape.q_heads = dice->pick({1u, 4u, 16u, dice->roll(1, 20)});
    shape.kv_heads = 1;
    shape.v_dtype = shape.k_dtype;
    if (fit != nullptr) return;
    uint32_t small = dice->roll(1, 96);
    shape.k_head_dim = dice->pick({576u, 576u, small + dice->roll(0, 32)});
    shape.v_head_dim = shape.k_head_dim == 576 ? 512 : small;
}

void make_cross(AttentionSpec *spec, Dice *dice) {
    spec->shape.group_kind = QUIRE_GROUP_CROSS;
    spec->shape.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
    // Any number of queries, whatever the number of keys.
    for (RowSpec &row : spec->rows) row.new_tokens = static_cast<int32_t>(dice->roll(0, 40));
}

void make_window(AttentionSpec *spec, Dice *dice, bool has_sinks) {
    spec->shape.group_kind = QUIRE_GROUP_WINDOW;
    spec->shape.window = dice->pick({1u, 7u, 64u, dice->roll(1, 200)});
    if (has_sinks) spec->shape.sink_tokens = dice->pick({1u, 4u, 64u, dice->roll(1, 100)});
}

void make_masks(AttentionSpec *spec, Dice *dice, MaskKind kind) {
    spec->shape.flags |= QUIRE_ATTENTION_MASK;
    spec->mask_kind = kind;
    for (RowSpec &row : spec->rows) {
        row.masked_tokens = static_cast<int32_t>(dice->roll(0, 40));
        row.mask_first = static_cast<int32_t>(dice->roll(0, 300));
    }
}

void make_mixed(AttentionSpec *spec, Dice *dice, const quire_be_attention_query *fit) {
    switch (dice->roll(0, 5)) {
        case 0:
            make_window(spec, dice, true);
            break;
        case 1:
            spec->shape.group_kind = QUIRE_GROUP_CHUNKED;
            spec->shape.window = dice->roll(1, 150);
            break;
        case 2:
            make_latent(spec, dice, fit);
            break;
        case 3:
            make_cross(spec, dice);
            break;
        case 4:
            spec->shape.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
            break;
        default:
            break;
    }
    bool is_causal = !spec->has(QUIRE_ATTENTION_NOT_CAUSAL);
    bool is_cross = spec->shape.group_kind == QUIRE_GROUP_CROSS;
    if (dice->roll(0, 1) == 0) spec->shape.flags |= QUIRE_BE_ATTENTION_SOFT_CAP;
    if (dice->roll(0, 1) == 0) spec->shape.flags |= QUIRE_ATTENTION_SINK_LOGITS;
    if (dice->roll(0, 1) == 0 && !is_cross) spec->shape.flags |= QUIRE_BE_ATTENTION_ALIBI;
    if (dice->roll(0, 1) == 0) spec->shape.flags |= QUIRE_ATTENTION_BATCH_INVARIANT;
    if (dice->roll(0, 1) == 0 && is_causal) {
        make_masks(spec, dice, dice->roll(0, 1) == 0 ? MaskKind::bits : MaskKind::tree);
    }
    spec->tells_shared = dice->roll(0, 1) == 0;
}

void make_variant(AttentionSpec *spec, Variant variant, Dice *dice,
                  const quire_be_attention_query *fit) {
    switch (variant) {
        case Variant::causal:
            break;
        case Variant::window:
            return make_window(spec, dice, false);
        case Variant::window_with_sinks:
            return make_window(spec, dice, true);
        case Variant::chunked:
            spec->shape.group_kind = QUIRE_GROUP_CHUNKED;
            spec->shape.window = dice->pick({1u, 7u, 64u, dice->roll(1, 200)});
            break;
        case Variant::latent:
            return make_latent(spec, dice, fit);
        case Variant::cross:
            return make_cross(spec, dice);
        case Variant::not_causal:
            spec->shape.flags |= QUIRE_ATTENTION_NOT_CAUSAL;
            break;
        case Variant::soft_cap:
            spec->shape.flags |= QUIRE_BE_ATTENTION_SOFT_CAP;
            break;
        case Variant::alibi:
            spec->shape.flags |= QUIRE_BE_ATTENTION_ALIBI;
            break;
        case Variant::sink_logits:
            spec->shape.flags |= QUIRE_ATTENTION_SINK_LOGITS;
            break;
        case Variant::mask_bits:
            return make_masks(spec, dice, MaskKind::bits);
        case Variant::mask_trees:
            return make_masks(spec, dice, MaskKind::tree);
        case Variant::shared_prefix:
            spec->tells_shared = true;
            break;
        case Variant::mixed:
            return make_mixed(spec, dice, fit);
    }
}

// Random types, heads, dims, layout and rows; no option but scale.
AttentionSpec random_plain(uint64_t seed, Dice *dice, const quire_be_attention_query *fit) {
    AttentionSpec spec;
    spec.seed = seed;
    spec.pages_seed = mix(seed);
    quire_be_attention_query &shape = spec.shape;
    shape.struct_size = sizeof shape;
    shape.q_dtype = dice->pick(kValueTypes);
    shape.k_dtype = dice->pick(kValueTypes);
    shape.v_dtype = dice->roll(0, 2) == 0 ? dice->pick(kValueTypes) : shape.k_dtype;
    shape.kv_heads = dice->pick({1u, 1u, 2u, 3u, 8u});
    shape.q_heads = shape.kv_heads * dice->pick({1u, 1u, 2u, 4u, 7u});
    shape.k_head_dim = dice->pick({8u, 16u, 40u, 64u, 80u, 128u, 256u, dice->roll(1, 256)});
    shape.v_head_dim = dice->roll(0, 3) == 0 ? dice->roll(1, 256) : shape.k_head_dim;
    shape.block_tokens = dice->pick({1u, 4u, 8u, 16u, 16u, 32u, 64u, dice->roll(1, 64)});
    if (fit != nullptr) {
        shape.q_dtype = fit->q_dtype;
        shape.k_dtype = fit->k_dtype;
        shape.v_dtype = fit->v_dtype;
        shape.k_head_dim = fit->k_head_dim;
        shape.v_head_dim = fit->v_head_dim;
        shape.block_tokens = fit->block_tokens;
    }
    spec.layout = dice->roll(0, 1) == 0 ? Layout::head_major : Layout::token_major;
    spec.padding = dice->pick({0u, 0u, 1u, 5u});
    spec.q_size = dice->pick({0.5, 1.0, 4.0});
    if (dice->roll(0, 1) == 0) spec.scale = 0.1f;
    spec.wants_lse = dice->roll(0, 3) != 0;
    put_rows(&spec, dice);
    return spec;
}

}  // namespace

namespace {

// Lays out planes of scales from `end` on; their end becomes the layer's stride.
void put_scales(const quire_be_attention_query &shape, uint32_t padding_bytes, int64_t end,
                quire_be_pool *pool) {
    pool->k_scale_kind = shape.k_scale_kind;
    pool->v_scale_kind = shape.v_scale_kind;
    bool is_latent = shape.group_kind == QUIRE_GROUP_LATENT;
    pool->scale_head_stride = int64_t{4} * shape.block_tokens + padding_bytes;
    int64_t plane = pool->scale_head_stride * shape.kv_heads;
    if (shape.k_scale_kind == QUIRE_SCALE_TOKEN_HEAD) {
        pool->k_scale_offset = end;
        end += plane;
    }
    if (is_latent) {
        pool->v_scale_offset = pool->k_scale_offset;
    } else if (shape.v_scale_kind == QUIRE_SCALE_TOKEN_HEAD) {
        pool->v_scale_offset = end;
        end += plane;
    }
    pool->layer_stride = round_up(end, 16);
}

}  // namespace

quire_be_pool make_pool(const quire_be_attention_query &shape, Layout layout, uint32_t layer_count,
                        uint32_t block_count, uint32_t padding_bytes) {
    quire_be_pool pool{};
    pool.struct_size = sizeof pool;
    pool.block_count = block_count;
    pool.block_tokens = shape.block_tokens;
    pool.layer_count = layer_count;
    pool.kv_heads = shape.kv_heads;
    pool.k_head_dim = shape.k_head_dim;
    pool.v_head_dim = shape.v_head_dim;
    pool.k_dtype = shape.k_dtype;
    pool.v_dtype = shape.v_dtype;
    pool.group_kind = shape.group_kind;
    int64_t k_row = row_bytes(shape.k_head_dim, shape.k_dtype) + padding_bytes;
    int64_t v_row = row_bytes(shape.v_head_dim, shape.v_dtype) + padding_bytes;
    bool is_latent = shape.group_kind == QUIRE_GROUP_LATENT;
    if (is_latent) v_row = k_row;
    bool heads_first = layout == Layout::head_major;
    pool.k_token_stride = heads_first ? k_row : k_row * shape.kv_heads;
    pool.v_token_stride = heads_first ? v_row : v_row * shape.kv_heads;
    pool.k_head_stride = heads_first ? k_row * shape.block_tokens : k_row;
    pool.v_head_stride = heads_first ? v_row * shape.block_tokens : v_row;
    int64_t rows = int64_t{shape.kv_heads} * shape.block_tokens;
    pool.v_offset = is_latent ? 0 : round_up(k_row * rows, 16);
    put_scales(shape, padding_bytes, round_up(pool.v_offset + v_row * rows, 16), &pool);
    pool.layer_stride += padding_bytes;
    pool.block_stride = pool.layer_stride * layer_count + padding_bytes;
    pool.size_bytes = static_cast<uint64_t>(pool.block_stride) * block_count;
    return pool;
}

std::string AttentionSpec::text() const {
    std::ostringstream text;
    text << "seed " << seed << ": q " << name_of(shape.q_dtype) << " K " << name_of(shape.k_dtype)
         << " V " << name_of(shape.v_dtype) << ", scales " << shape.k_scale_kind << "/"
         << shape.v_scale_kind << ", heads " << shape.q_heads << "/" << shape.kv_heads << ", dims "
         << shape.k_head_dim << "/" << shape.v_head_dim << ", block " << shape.block_tokens
         << ", group kind " << shape.group_kind << ", window " << shape.window << ", sinks "
         << shape.sink_tokens << ", flags 0x" << std::hex << shape.flags << std::dec;
    if (tells_shared) text << ", with shared prefixes";
    text << ", rows (length+new)";
    for (const RowSpec &row : rows) {
        text << " " << row.length << "+" << row.new_tokens;
        if (row.masked_tokens != 0) text << "(" << row.masked_tokens << " masked)";
    }
    return text.str();
}

bool mask_bit(const AttentionSpec &spec, const MaskedToken &token, int64_t key_place) {
    if (spec.mask_kind == MaskKind::bits) {
        return (mix(spec.seed, token.content, static_cast<uint64_t>(token.place),
                    static_cast<uint64_t>(key_place), 10) &
                1) != 0;
    }
    for (int64_t at = token.place; at >= 0; at = parent_of(spec, token, at)) {
        if (at == key_place) return true;
    }
    return key_place < token.first_masked;
}

int64_t mask_position(const AttentionSpec &spec, const MaskedToken &token, int64_t last_place) {
    if (spec.mask_kind == MaskKind::bits) {
        uint64_t roll = mix(spec.seed, token.content, static_cast<uint64_t>(token.place), 12);
        int64_t choices = last_place - token.first_masked + 1;
        return token.first_masked + static_cast<int64_t>(roll % static_cast<uint64_t>(choices));
    }
    int64_t position = token.first_masked - 1;
    for (int64_t at = token.place; at >= 0; at = parent_of(spec, token, at)) ++position;
    return position;
}

PlanOptions::PlanOptions(const AttentionSpec &spec) {
    const quire_be_attention_query &shape = spec.shape;
    if (spec.has(QUIRE_BE_ATTENTION_SOFT_CAP)) soft_cap = spec.soft_cap;
    if (spec.has(QUIRE_BE_ATTENTION_SOFT_CAP) && soft_cap == 0.0f) soft_cap = 1.5f;
    for (uint32_t h = 0; h < shape.q_heads && spec.has(QUIRE_BE_ATTENTION_ALIBI); ++h) {
        float of_head =
            std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(shape.q_heads));
        slopes.push_back(spec.slope != 0.0f ? spec.slope : of_head);
    }
    if (!spec.has(QUIRE_BE_ATTENTION_ROPE)) return;
    for (uint32_t i = 0; i < shape.rotated_dim / 2; ++i) {
        frequencies.push_back(static_cast<float>(std::pow(10'000.0, -2.0 * i / shape.rotated_dim)));
    }
    rope = {sizeof rope, 1.0f, frequencies.data()};
}

void PlanOptions::put_into(quire_be_plan_desc *desc) const {
    desc->soft_cap = soft_cap;
    desc->alibi_slopes = slopes.empty() ? nullptr : slopes.data();
    desc->rope = frequencies.empty() ? nullptr : &rope;
}

std::vector<float> sinks_of(const AttentionSpec &spec) {
    std::vector<float> sinks;
    for (uint32_t h = 0; h < spec.shape.q_heads && spec.has(QUIRE_ATTENTION_SINK_LOGITS); ++h) {
        float sink = static_cast<float>(4.0 * chance(spec.seed, h, 13));
        bool is_off = mix(spec.seed, h, 14) % 8 == 0;
        sinks.push_back(is_off ? -std::numeric_limits<float>::infinity() : sink);
    }
    return sinks;
}

AttentionSpec random_spec(uint64_t seed, const quire_be_attention_query *fit) {
    Dice dice(seed);
    AttentionSpec spec = random_plain(seed, &dice, fit);
    if (dice.roll(0, 3) == 0)
        spec.shape.flags = QUIRE_ATTENTION_NOT_CAUSAL;
    else if (dice.roll(0, 2) == 0)
        make_window(&spec, &dice, false);
    return spec;
}

void put_types(const PoolTypes &types, quire_be_attention_query *shape) {
    bool is_latent = shape->group_kind == QUIRE_GROUP_LATENT;
    shape->k_dtype = types.k_dtype;
    shape->k_scale_kind = types.k_scale_kind;
    shape->v_dtype = is_latent ? types.k_dtype : types.v_dtype;
    shape->v_scale_kind = is_latent ? types.k_scale_kind : types.v_scale_kind;
    if (shape->k_dtype == QUIRE_DTYPE_I4) shape->k_head_dim += shape->k_head_dim % 2;
    if (shape->v_dtype == QUIRE_DTYPE_I4) shape->v_head_dim += shape->v_head_dim % 2;
}

PoolTypes random_codes(uint64_t seed) {
    constexpr uint32_t kKinds[] = {QUIRE_SCALE_TENSOR, QUIRE_SCALE_HEAD, QUIRE_SCALE_TOKEN_HEAD};
    Dice dice(mix(seed, 16));
    PoolTypes types = {dice.pick(kCodeTypes), 0, dice.pick(kKinds), 0};
    types.v_dtype = types.k_dtype;
    types.v_scale_kind = types.k_scale_kind;
    switch (dice.roll(0, 3)) {
        case 0:  // values beside codes
            types.v_dtype = dice.pick(kValueTypes);
            types.v_scale_kind = QUIRE_SCALE_NONE;
            break;
        case 1:
            types.v_dtype = dice.pick(kCodeTypes);
            types.v_scale_kind = dice.pick(kKinds);
            break;
        case 2:
            types.v_scale_kind = dice.pick(kKinds);
            break;
        default:
            break;
    }
    if (dice.roll(0, 3) != 0) return types;
    return {types.v_dtype, types.k_dtype, types.v_scale_kind, types.k_scale_kind};
}

AttentionSpec random_variant(Variant variant, uint64_t seed, const quire_be_attention_query *fit) {
    Dice dice(seed);
    AttentionSpec spec = random_plain(seed, &dice, fit);
    make_variant(&spec, variant, &dice, fit);
    spec.soft_cap = dice.pick({0.5f, 2.0f, 30.0f});
    finish_rows(&spec);
    return spec;
}

void fit_mask(const AttentionSpec &spec, RowSpec *row) {
    int32_t most = spec.has(QUIRE_ATTENTION_MASK) ? std::min(row->new_tokens, row->length) : 0;
    row->masked_tokens = std::min(row->masked_tokens, most);
    bool is_tree = spec.mask_kind == MaskKind::tree;
    row->mask_first =
        is_tree ? row->length - row->masked_tokens : std::min(row->mask_first, row->length);
}

void finish_rows(AttentionSpec *spec) {
    auto block = static_cast<int32_t>(spec->shape.block_tokens);
    for (size_t r = 0; r < spec->rows.size(); ++r) {
        RowSpec &row = spec->rows[r];
        fit_mask(*spec, &row);
        if (!spec->tells_shared || r == 0) continue;
        row.shared_tokens = std::min(row.length, spec->rows[r - 1].length) / block * block;
    }
}

const char *name_of(Variant variant) {
    switch (variant) {
        case Variant::causal:
            return "causal";
        case Variant::window:
            return "window";
        case Variant::window_with_sinks:
            return "window with sinks";
        case Variant::chunked:
            return "chunked";
        case Variant::latent:
            return "latent";
        case Variant::cross:
            return "cross";
        case Variant::not_causal:
            return "not causal";
        case Variant::soft_cap:
            return "soft cap";
        case Variant::alibi:
            return "ALiBi";
        case Variant::sink_logits:
            return "sink logits";
        case Variant::mask_bits:
            return "masks of random bits";
        case Variant::mask_trees:
            return "masks of trees";
        case Variant::shared_prefix:
            return "shared prefix";
        case Variant::mixed:
            return "all mixed";
    }
    return "";
}

}  // namespace quire::conformance
