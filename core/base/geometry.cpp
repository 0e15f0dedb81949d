// SPDX-License-Identifier: Apache-2.0

#include "core/base/geometry.hpp"

namespace quire {

namespace {

Status check_latent(const quire_group_desc &desc, uint32_t index) {
    if (desc.kv_heads != 1) {
        return fail(QUIRE_E_ARG, "groups[{}].kv_heads is {}: all heads share a latent row, set 1",
                    index, desc.kv_heads);
    }
    if (desc.v_head_dim > desc.k_head_dim) {
        return fail(QUIRE_E_ARG,
                    "groups[{}].v_head_dim {} is above k_head_dim: V is the front part of the row",
                    index, desc.v_head_dim);
    }
    if (desc.v_dtype != 0 && desc.v_dtype != desc.k_dtype) {
        return fail(QUIRE_E_ARG, "groups[{}].v_dtype {dtype} is not k_dtype: they are one row",
                    index, desc.v_dtype);
    }
    if (desc.v_scale != 0 && desc.v_scale != desc.k_scale) {
        return fail(QUIRE_E_ARG, "groups[{}].v_scale {} is not k_scale: they are one row", index,
                    desc.v_scale);
    }
    return Status{};
}

// Nothing describes the inside of an opaque row.
Status check_opaque(const quire_group_desc &desc, uint32_t index) {
    if (desc.kind == QUIRE_GROUP_LATENT) {
        return fail(QUIRE_E_ARG,
                    "groups[{}].opaque_bytes is {}, but a latent row is no opaque one: use "
                    "QUIRE_GROUP_FULL",
                    index, desc.opaque_bytes);
    }
    const bool described = desc.kv_heads != 0 || desc.k_head_dim != 0 || desc.v_head_dim != 0 ||
                           desc.k_dtype != 0 || desc.v_dtype != 0 || desc.k_scale != 0 ||
                           desc.v_scale != 0;
    if (!described) return Status{};
    return fail(QUIRE_E_ARG,
                "groups[{}].opaque_bytes is {}, but heads, dims, types or scales are given too: "
                "set them to 0, or opaque_bytes",
                index, desc.opaque_bytes);
}

// How many states of a recurrence there are.
Status check_states(const quire_group_desc &desc, uint32_t index, uint32_t block_tokens) {
    if (desc.state_interval == 0 && desc.draft_states == 0) return Status{};
    if (desc.kind != QUIRE_GROUP_RECURRENT) {
        return fail(QUIRE_E_ARG,
                    "groups[{}] has a state_interval or draft_states: only a recurrent group has "
                    "states",
                    index);
    }
    if (desc.state_interval == 0 || desc.state_interval % block_tokens != 0) {
        return fail(QUIRE_E_ARG,
                    "groups[{}].state_interval is {}: must be a multiple of its block_tokens, and "
                    "above 0 where there are draft_states",
                    index, desc.state_interval);
    }
    if (desc.draft_states > kMaxDraftStates) {
        return fail(QUIRE_E_ARG, "groups[{}].draft_states is {}: at most 64", index,
                    desc.draft_states);
    }
    return Status{};
}

Status check_group(const quire_group_desc &desc, uint32_t index) {
    if (desc.kind > QUIRE_GROUP_RECURRENT) {
        return fail(QUIRE_E_UNSUPPORTED, "groups[{}].kind {} is not known", index, desc.kind);
    }
    bool windowed = desc.kind == QUIRE_GROUP_WINDOW || desc.kind == QUIRE_GROUP_CHUNKED;
    if (windowed && desc.window == 0) {
        return fail(QUIRE_E_ARG, "groups[{}].window is 0: a window or a chunk needs at least 1",
                    index);
    }
    if (!windowed && desc.window != 0) {
        return fail(QUIRE_E_ARG,
                    "groups[{}].window is {}, but a group of this kind has no window: set it to 0",
                    index, desc.window);
    }
    if (desc.kind != QUIRE_GROUP_WINDOW && desc.sink_tokens != 0) {
        return fail(QUIRE_E_ARG, "groups[{}].sink_tokens is {}: only a window group keeps sinks",
                    index, desc.sink_tokens);
    }
    if (desc.sink_tokens > kMaxTokens) {
        return fail(QUIRE_E_ARG, "groups[{}].sink_tokens is {}: at most 2^31-1", index,
                    desc.sink_tokens);
    }
    if (desc.layer_count == 0 || desc.layer_count > kMaxLayers) {
        return fail(QUIRE_E_ARG, "groups[{}].layer_count is {}: must be 1 to 4096", index,
                    desc.layer_count);
    }
    if (desc.opaque_bytes != 0) return check_opaque(desc, index);
    if (desc.kv_heads == 0) return fail(QUIRE_E_ARG, "groups[{}].kv_heads is 0", index);
    if (desc.k_head_dim == 0) return fail(QUIRE_E_ARG, "groups[{}].k_head_dim is 0", index);
    if (desc.v_head_dim == 0) return fail(QUIRE_E_ARG, "groups[{}].v_head_dim is 0", index);
    return desc.kind == QUIRE_GROUP_LATENT ? check_latent(desc, index) : Status{};
}

// The type and the kind of scales of a group's K, or of its V.
Status check_side(uint32_t dtype, uint32_t scale, uint32_t head_dim, uint32_t index) {
    bool holds_values = dtype_size_bytes(dtype) != 0;
    if (pool_dtype_bits(dtype) == 0) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "groups[{}]: k_dtype or v_dtype is {dtype}: f32, f16, bf16, int8, int4, "
                    "fp8_e4m3 or fp8_e5m2",
                    index, dtype);
    }
    if (scale > QUIRE_SCALE_TOKEN_HEAD) {
        return fail(QUIRE_E_UNSUPPORTED, "groups[{}]: k_scale or v_scale is {}: not known", index,
                    scale);
    }
    if (holds_values && scale != QUIRE_SCALE_NONE) {
        return fail(QUIRE_E_ARG,
                    "groups[{}]: k_scale or v_scale is {}: f32, f16 and bf16 have no scales", index,
                    scale);
    }
    if (!holds_values && scale == QUIRE_SCALE_NONE) {
        return fail(
            QUIRE_E_ARG,
            "groups[{}]: k_scale or v_scale is 0 with type {dtype}: codes need a scale; a unit "
            "scale is never assumed",
            index, dtype);
    }
    if (dtype == QUIRE_DTYPE_I4 && head_dim % 2 != 0) {
        return fail(QUIRE_E_ARG,
                    "groups[{}]: k_head_dim or v_head_dim is {}: i4 packs two elements in a byte, "
                    "so it must be even",
                    index, head_dim);
    }
    return Status{};
}

// The planes of a layer, one after another. `fits` is false if they exceed 64 bits.
struct Planes {
    uint64_t end = 0;
    uint64_t alignment = 1;
    bool fits = true;

    // Returns where the plane begins.
    uint64_t add(uint64_t head_bytes, uint32_t heads, uint64_t element_bytes) {
        uint64_t rest = end % element_bytes, size = 0;
        fits = fits && checked_add(end, rest != 0 ? element_bytes - rest : 0, &end);
        uint64_t begin = end;
        fits = fits && checked_mul(head_bytes, heads, &size) && checked_add(end, size, &end);
        if (element_bytes > alignment) alignment = element_bytes;
        return begin;
    }
    void close() { add(0, 1, alignment); }
};

uint64_t row_bytes(uint32_t head_dim, uint32_t dtype) {
    return uint64_t{head_dim} * pool_dtype_bits(dtype) / 8;  // whole bytes: check_side()
}

// The address of a row is a multiple of this.
uint64_t element_bytes(uint32_t dtype) {
    uint32_t bits = pool_dtype_bits(dtype);
    return bits > 8 ? bits / 8 : 1;
}

// An opaque row lies where K does. 2^32 bytes in 2^12 tokens and 2^12 layers are 2^56.
void compute_opaque_strides(GroupGeometry *g, uint32_t block_tokens) {
    g->k_token_stride = g->opaque_bytes;
    g->k_head_stride = g->layer_stride = int64_t{g->opaque_bytes} * block_tokens;
    g->block_stride = g->layer_stride * g->layer_count;
}

// Strides of one group's block; everything fits an int64 or the call fails.
Status compute_strides(GroupGeometry *g, uint32_t block_tokens, uint32_t index) {
    Status too_large = fail(QUIRE_E_LIMIT, "groups[{}]: a block is larger than 2^62 bytes", index);
    uint64_t k_token = row_bytes(g->k_head_dim, g->k_dtype);
    bool latent = g->kind == QUIRE_GROUP_LATENT;  // V lies within K
    uint64_t v_token = latent ? k_token : row_bytes(g->v_head_dim, g->v_dtype);
    uint64_t k_head = k_token * block_tokens;  // < 2^32 * 2^2 * 2^12
    uint64_t v_head = v_token * block_tokens;
    uint64_t scale_head = uint64_t{block_tokens} * sizeof(float);
    bool k_scaled = g->k_scale == QUIRE_SCALE_TOKEN_HEAD;
    bool v_scaled = g->v_scale == QUIRE_SCALE_TOKEN_HEAD;
    Planes planes;
    planes.add(k_head, g->kv_heads, element_bytes(g->k_dtype));
    uint64_t v_at = 0, k_scales_at = 0, v_scales_at = 0, block = 0;
    if (!latent) v_at = planes.add(v_head, g->kv_heads, element_bytes(g->v_dtype));
    if (k_scaled) k_scales_at = planes.add(scale_head, g->kv_heads, sizeof(float));
    if (latent) {
        v_scales_at = k_scales_at;
    } else if (v_scaled) {
        v_scales_at = planes.add(scale_head, g->kv_heads, sizeof(float));
    }
    planes.close();
    if (!planes.fits || !checked_mul(planes.end, g->layer_count, &block)) return too_large;
    if (block >> 62 != 0) return too_large;
    g->k_token_stride = static_cast<int64_t>(k_token);
    g->v_token_stride = static_cast<int64_t>(v_token);
    g->k_head_stride = static_cast<int64_t>(k_head);
    g->v_head_stride = static_cast<int64_t>(v_head);
    g->v_offset = static_cast<int64_t>(v_at);
    g->k_scale_offset = static_cast<int64_t>(k_scales_at);
    g->v_scale_offset = static_cast<int64_t>(v_scales_at);
    g->scale_head_stride = k_scaled || v_scaled ? static_cast<int64_t>(scale_head) : 0;
    g->layer_stride = static_cast<int64_t>(planes.end);
    g->block_stride = static_cast<int64_t>(block);
    return Status{};
}

// The tokens of a group's blocks. unit: those of the cache.
Status choose_size(const quire_group_desc &desc, uint32_t index, uint32_t unit, bool has_memory,
                   uint32_t *block_tokens) {
    *block_tokens = desc.block_tokens != 0 ? desc.block_tokens : unit;
    if (*block_tokens == unit) return Status{};
    if (has_memory) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "groups[{}].block_tokens is {}: in a cache with memory all groups have the "
                    "cache's block_tokens",
                    index, desc.block_tokens);
    }
    if (*block_tokens > kMaxBlockTokens || *block_tokens % unit != 0) {
        return fail(QUIRE_E_ARG,
                    "groups[{}].block_tokens is {}: must be a multiple of the cache's, up to 4096",
                    index, desc.block_tokens);
    }
    return Status{};
}

Status fill_group(const quire_group_desc &desc, uint32_t index, uint32_t block_tokens,
                  GroupGeometry *g) {
    QUIRE_TRY(check_group(desc, index));
    QUIRE_TRY(check_states(desc, index, block_tokens));
    g->size = BlockSize(block_tokens);
    g->kind = desc.kind;
    g->full = desc.kind == QUIRE_GROUP_FULL || desc.kind == QUIRE_GROUP_LATENT;
    g->recurrent = desc.kind == QUIRE_GROUP_RECURRENT;
    g->state_interval = desc.state_interval;
    g->draft_states = desc.draft_states;
    g->windowed =
        desc.kind == QUIRE_GROUP_WINDOW || desc.kind == QUIRE_GROUP_CHUNKED || g->recurrent;
    g->cross = desc.kind == QUIRE_GROUP_CROSS;
    g->window = desc.window;
    g->sink_tokens = desc.sink_tokens;
    g->kept_blocks = static_cast<uint32_t>(ceil_div(desc.sink_tokens, block_tokens));
    g->layer_count = desc.layer_count;
    g->blocks = desc.blocks;
    g->opaque_bytes = desc.opaque_bytes;
    if (g->opaque_bytes != 0) {
        compute_opaque_strides(g, block_tokens);
        return Status{};
    }
    g->kv_heads = desc.kv_heads;
    g->k_head_dim = desc.k_head_dim;
    g->v_head_dim = desc.v_head_dim;
    g->k_dtype = desc.k_dtype != 0 ? desc.k_dtype : uint32_t{QUIRE_DTYPE_F16};
    g->v_dtype = desc.v_dtype != 0 ? desc.v_dtype : g->k_dtype;
    g->k_scale = desc.k_scale;
    // A latent row has one kind of scale, which may be given twice.
    bool as_k = desc.v_scale == 0 && (desc.v_dtype == 0 || desc.kind == QUIRE_GROUP_LATENT);
    g->v_scale = as_k ? desc.k_scale : desc.v_scale;
    QUIRE_TRY(check_side(g->k_dtype, g->k_scale, g->k_head_dim, index));
    QUIRE_TRY(check_side(g->v_dtype, g->v_scale, g->v_head_dim, index));
    return compute_strides(g, block_tokens, index);
}

// A node of the prefix tree spans the least tokens that are whole blocks of all groups. A prefix
// says nothing about another input, so groups of cross attention have no part in it.
Status compute_span(Geometry *out) {
    uint64_t span = out->block_tokens;
    bool any = false;
    for (uint32_t g = 0; g < out->group_count; ++g) {
        const GroupGeometry &group = out->groups[g];
        if (group.size.tokens() != out->block_tokens) out->uniform = false;
        if (group.cross) continue;
        span = any ? std::lcm(span, uint64_t{group.size.tokens()}) : group.size.tokens();
        any = true;
        if (span <= kMaxSpanTokens) continue;
        return fail(QUIRE_E_LIMIT,
                    "groups[{}].block_tokens: a prefix ends where blocks of all groups end, which "
                    "is at every {}th token; at most every 65536th",
                    g, span);
    }
    if (!out->uniform && !out->any_full) {
        return fail(
            QUIRE_E_UNSUPPORTED,
            "groups with block_tokens of their own need one with full attention among them");
    }
    out->span = BlockSize(static_cast<uint32_t>(span));
    for (uint32_t g = 0; g < out->group_count; ++g) {
        GroupGeometry &group = out->groups[g];
        if (!group.cross) group.per_span = out->span.tokens() / group.size.tokens();
    }
    return Status{};
}

// Bytes of one block of each group.
Status row_bytes_of(const Geometry &geometry, uint64_t *bytes) {
    *bytes = 0;
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        uint64_t block_bytes = static_cast<uint64_t>(geometry.groups[g].block_stride);
        if (!checked_add(*bytes, block_bytes, bytes)) {
            return fail(QUIRE_E_LIMIT, "one block of each group is larger than 2^64 bytes");
        }
    }
    return Status{};
}

// Lowers *blocks to the number that pool_bytes or pool_fraction has room for, the same in each
// group.
Status blocks_from_bytes(const quire_cache_desc &desc, const ShardGeometry &shard,
                         uint64_t *blocks) {
    uint64_t bytes = desc.pool_bytes;
    if (desc.pool_fraction != 0) {
        if (!(desc.pool_fraction > 0 && desc.pool_fraction <= 1)) {
            return fail(QUIRE_E_ARG, "pool_fraction is not in (0, 1]");
        }
        double share =
            static_cast<double>(shard.free_bytes) * static_cast<double>(desc.pool_fraction);
        bytes = static_cast<uint64_t>(share);
        if (bytes <= desc.reserve_bytes) {
            return fail(QUIRE_E_ARG, "pool_fraction of {} free bytes is not above reserve_bytes {}",
                        shard.free_bytes, desc.reserve_bytes);
        }
        bytes -= desc.reserve_bytes;
    }
    uint64_t row_bytes = 0;
    QUIRE_TRY(row_bytes_of(shard.held, &row_bytes));
    uint64_t paid = bytes / row_bytes;
    if (paid < 2) {
        return fail(QUIRE_E_ARG,
                    "{} bytes hold no block besides the null block: a block takes {} bytes", bytes,
                    row_bytes);
    }
    if (paid < *blocks) *blocks = paid;
    return Status{};
}

// Checks that the size of this many of the shard's blocks is in range. `what` is the error's text,
// which names the memory.
Status check_bytes(const ShardGeometry &shard, uint32_t group, uint64_t blocks, const char *what) {
    uint64_t bytes = 0;
    uint64_t stride = static_cast<uint64_t>(shard.held.groups[group].block_stride);
    if (checked_mul(blocks, stride, &bytes) && bytes >> 62 == 0) return Status{};
    return fail(QUIRE_E_LIMIT, what, group);
}

Status size_pools(const quire_cache_desc &desc, const ShardGeometry *shards, uint32_t count,
                  Geometry *out) {
    int ways = (desc.blocks != 0) + (desc.pool_bytes != 0) + (desc.pool_fraction != 0);
    bool all_stated = true;
    for (uint32_t g = 0; g < out->group_count; ++g) all_stated &= out->groups[g].blocks != 0;
    if (ways > 1) return fail(QUIRE_E_ARG, "give one of blocks, pool_bytes and pool_fraction");
    if (ways == 0 && !all_stated) {
        return fail(QUIRE_E_ARG,
                    "the pool has zero blocks: give blocks, pool_bytes or pool_fraction");
    }
    uint64_t blocks = desc.blocks;
    if (desc.pool_bytes != 0 || desc.pool_fraction != 0) {
        blocks = kMaxBlocks;
        for (uint32_t i = 0; i < count; ++i) QUIRE_TRY(blocks_from_bytes(desc, shards[i], &blocks));
    }
    for (uint32_t g = 0; g < out->group_count; ++g) {
        GroupGeometry &group = out->groups[g];
        if (group.blocks == 0) group.blocks = static_cast<uint32_t>(blocks);
        if (group.blocks < 2 || group.blocks > kMaxBlocks) {
            return fail(QUIRE_E_ARG,
                        "group {} has {} blocks: must be 2 (one is the null block) to 2^31-1", g,
                        group.blocks);
        }
        if (out->one_pool && group.blocks != out->groups[0].blocks) {
            return fail(QUIRE_E_ARG,
                        "group {} has {} blocks: with QUIRE_CACHE_ONE_POOL all groups share one "
                        "pool, so give blocks to the cache alone",
                        g, group.blocks);
        }
        for (uint32_t i = 0; i < count; ++i) {
            QUIRE_TRY(check_bytes(shards[i], g, group.blocks,
                                  "group {}: the pool is larger than 2^62 bytes"));
        }
    }
    return Status{};
}

// Every group has the same number of host blocks, as on the device.
Status size_host_tier(const quire_cache_desc &desc, const ShardGeometry *shards, uint32_t count,
                      Geometry *out) {
    uint64_t usable = desc.host_blocks;
    if (desc.host_bytes != 0) {
        if (desc.host_blocks != 0) return fail(QUIRE_E_ARG, "give host_bytes or host_blocks");
        usable = kMaxBlocks - 1;
        for (uint32_t i = 0; i < count; ++i) {
            uint64_t row_bytes = 0;
            QUIRE_TRY(row_bytes_of(shards[i].held, &row_bytes));
            if (desc.host_bytes / row_bytes < usable) usable = desc.host_bytes / row_bytes;
        }
    }
    if (usable >= kMaxBlocks) usable = kMaxBlocks - 1;
    for (uint32_t g = 0; g < out->group_count; ++g) {
        for (uint32_t i = 0; i < count; ++i) {
            QUIRE_TRY(check_bytes(shards[i], g, usable + 1,
                                  "group {}: the host tier is larger than 2^62 bytes"));
        }
        out->groups[g].host_blocks = usable != 0 ? static_cast<uint32_t>(usable) + 1 : 0;
    }
    return Status{};
}

}  // namespace

uint32_t dtype_size_bytes(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_F32:
            return 4;
        case QUIRE_DTYPE_F16:
        case QUIRE_DTYPE_BF16:
            return 2;
        default:
            return 0;
    }
}

uint32_t pool_dtype_bits(uint32_t dtype) {
    switch (dtype) {
        case QUIRE_DTYPE_I4:
            return 4;
        case QUIRE_DTYPE_I8:
        case QUIRE_DTYPE_F8_E4M3FN:
        case QUIRE_DTYPE_F8_E5M2:
            return 8;
        default:
            return dtype_size_bytes(dtype) * 8;
    }
}

Status compute_shape(const quire_cache_desc &desc, const quire_group_desc *groups, Geometry *out) {
    *out = Geometry{};
    out->block_tokens = desc.block_tokens != 0 ? desc.block_tokens : 16;
    const bool any_size = desc.shard_count == 0;
    const uint32_t most = any_size ? kMaxBlockTokens : kMaxDeviceBlockTokens;
    if (out->block_tokens > most || !(any_size || is_power_of_two(out->block_tokens))) {
        return fail(QUIRE_E_ARG,
                    any_size ? "block_tokens is {}: must be 1 to {}"
                             : "block_tokens is {}: must be a power of two up to {}, because the "
                               "cache has memory, which kernels read",
                    desc.block_tokens, most);
    }
    if (desc.group_count == 0 || desc.group_count > kMaxGroups) {
        return fail(QUIRE_E_ARG, "group_count is {}: must be 1 to {}", desc.group_count,
                    kMaxGroups);
    }
    out->group_count = desc.group_count;
    out->one_pool = (desc.flags & QUIRE_CACHE_ONE_POOL) != 0;
    out->partial_hits = (desc.flags & QUIRE_CACHE_PARTIAL_HITS) != 0;
    out->max_sequence_tokens =
        desc.max_sequence_tokens != 0 ? desc.max_sequence_tokens : kMaxTokens;
    if (out->max_sequence_tokens > kMaxTokens) {
        return fail(QUIRE_E_ARG, "max_sequence_tokens is {}: at most 2^31-1",
                    desc.max_sequence_tokens);
    }
    for (uint32_t g = 0; g < desc.group_count; ++g) {
        if (groups[g].kind == QUIRE_GROUP_RECURRENT && !any_size) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "groups[{}].kind is {}, a recurrence: only in a cache without memory", g,
                        groups[g].kind);
        }
        if (groups[g].opaque_bytes != 0 && !any_size) {
            return fail(QUIRE_E_UNSUPPORTED,
                        "groups[{}].opaque_bytes is {}: only in a cache without memory, because no "
                        "kernel knows the format",
                        g, groups[g].opaque_bytes);
        }
        uint32_t block_tokens = 0;
        QUIRE_TRY(choose_size(groups[g], g, out->block_tokens, !any_size, &block_tokens));
        QUIRE_TRY(fill_group(groups[g], g, block_tokens, &out->groups[g]));
        out->layer_count += out->groups[g].layer_count;
        out->any_full |= out->groups[g].full;
        out->any_window |= out->groups[g].windowed;
        out->any_cross |= out->groups[g].cross;
        out->any_recurrent |= out->groups[g].recurrent;
        out->any_dense |= out->groups[g].recurrent && out->groups[g].state_interval == 0;
        out->any_opaque |= out->groups[g].opaque_bytes != 0;
        if (out->layer_count > kMaxLayers) {
            return fail(QUIRE_E_LIMIT, "more than {} layers", kMaxLayers);
        }
    }
    return compute_span(out);
}

Status compute_part(const Geometry &whole, uint32_t group, uint32_t layer_count, uint32_t kv_heads,
                    GroupGeometry *out) {
    *out = whole.groups[group];
    out->layer_count = layer_count;
    out->kv_heads = kv_heads;
    return compute_strides(out, out->size.tokens(), group);
}

Status compute_sizes(const quire_cache_desc &desc, ShardGeometry *shards, uint32_t count,
                     Geometry *out) {
    QUIRE_TRY(size_pools(desc, shards, count, out));
    QUIRE_TRY(size_host_tier(desc, shards, count, out));
    for (uint32_t i = 0; i < count; ++i) {
        for (uint32_t g = 0; g < out->group_count; ++g) {
            shards[i].held.groups[g].blocks = out->groups[g].blocks;
            shards[i].held.groups[g].host_blocks = out->groups[g].host_blocks;
        }
    }
    return Status{};
}

Status compute_geometry(const quire_cache_desc &desc, const quire_group_desc *groups,
                        uint64_t free_bytes, Geometry *out) {
    QUIRE_TRY(compute_shape(desc, groups, out));
    ShardGeometry whole;
    whole.free_bytes = free_bytes;
    whole.held = *out;
    return compute_sizes(desc, &whole, 1, out);
}

Status place_layers(const uint32_t *layer_groups, const Geometry &geometry, LayerInGroup *places) {
    uint32_t next[kMaxGroups] = {};
    uint32_t by_default = 0;
    for (uint32_t layer = 0; layer < geometry.layer_count; ++layer) {
        if (layer_groups == nullptr &&
            next[by_default] == geometry.groups[by_default].layer_count) {
            ++by_default;
        }
        uint32_t group = layer_groups != nullptr ? layer_groups[layer] : by_default;
        if (group >= geometry.group_count) {
            return fail(QUIRE_E_ARG, "layer_groups[{}] is {}: no such group", layer, group);
        }
        places[layer] = LayerInGroup{group, next[group]++};
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        if (next[g] != geometry.groups[g].layer_count) {
            return fail(QUIRE_E_ARG, "layer_groups does not give group {} its {} layers", g,
                        geometry.groups[g].layer_count);
        }
    }
    return Status{};
}

}  // namespace quire
