// SPDX-License-Identifier: Apache-2.0
//
// geometry: the shape of a cache: groups of layers, their strides and pool sizes; computed once,
// with checked arithmetic.
//
// Quire-owned memory is block-major, [block][layer][K|V|K's scales|V's scales]: a swap moves whole
// blocks, and a (block, layer) is one contiguous piece. K and V are [kv_head][token][dim], scales
// f32 [kv_head][token], present only where each token has a scale. A plane begins at a multiple of
// its element size, a layer at a multiple of the largest element size.
//
// Units: strides are bytes, windows tokens, pool sizes blocks (the null block included).
#pragma once

#include <numeric>

#include "core/base/block_size.hpp"
#include "core/base/host_memory.hpp"
#include "quire/cache.h"

namespace quire {

constexpr uint32_t kMaxGroups = 16;
constexpr uint32_t kMaxLayers = 4096;
constexpr uint32_t kMaxShards = 64;
constexpr uint32_t kMaxBlocks = 0x7FFFFFFF;
constexpr uint32_t kMaxTokens = 0x7FFFFFFF;
constexpr uint32_t kMaxBlockTokens = 4096;  // in a cache without memory
// Kernels, and with them sessions and tiers, know powers of two up to this.
constexpr uint32_t kMaxDeviceBlockTokens = 256;
constexpr uint32_t kMaxSpanTokens = 65536;  // of a node of the prefix tree
constexpr uint32_t kMaxDraftStates = 64;

struct GroupGeometry {
    BlockSize size;          // of its blocks
    uint32_t per_span = 1;   // blocks of it that a node of the prefix tree names
    uint32_t kind = 0;       // QUIRE_GROUP_*
    bool full = false;       // keeps every token's block: full attention and latent
    bool windowed = false;   // gives up blocks that have left its window or chunk, or old states
    bool recurrent = false;  // a block holds the state after its last token
    // In a recurrent group whose table names only the newest state: where a snapshot is published.
    uint32_t state_interval = 0;
    uint32_t draft_states = 0;  // blocks after that of the running state
    uint32_t opaque_bytes = 0;  // of a token in a layer, in the caller's format; 0: K and V
    bool cross = false;         // holds the other input; its table does not grow with the tokens
    uint32_t window = 0;
    uint32_t sink_tokens = 0;
    uint32_t kept_blocks = 0;  // in front of a window, for the sinks
    uint32_t layer_count = 0;
    uint32_t kv_heads = 0;
    uint32_t k_head_dim = 0;
    uint32_t v_head_dim = 0;
    uint32_t k_dtype = 0;
    uint32_t v_dtype = 0;
    uint32_t k_scale = 0;  // QUIRE_SCALE_*
    uint32_t v_scale = 0;
    uint32_t blocks = 0;
    uint32_t host_blocks = 0;  // the null one included; 0 = no host tier
    int64_t k_token_stride = 0;
    int64_t v_token_stride = 0;
    int64_t k_head_stride = 0;
    int64_t v_head_stride = 0;
    int64_t v_offset = 0;
    int64_t k_scale_offset = 0;
    int64_t v_scale_offset = 0;
    int64_t scale_head_stride = 0;
    int64_t layer_stride = 0;
    int64_t block_stride = 0;

    // The first block that a token at `position` can see, not counting the kept ones.
    uint32_t first_visible_block(uint32_t position) const {
        if (recurrent) return position != 0 ? size.block_of(position - 1) : 0;
        if (!windowed || position < window) return 0;
        if (kind == QUIRE_GROUP_CHUNKED) return size.block_of(position - position % window);
        return size.block_of(position - window + 1);
    }
    // True if the block may be published when it is full.
    bool is_snapshot(uint32_t index) const {
        return state_interval == 0 || size.first_token(index + 1) % state_interval == 0;
    }
    // Number of blocks before token `n` (at a block boundary) that the token at n needs, not
    // counting the kept ones.
    uint32_t needed_before(uint32_t n) const { return size.block_of(n) - first_visible_block(n); }
    // How many entries are not null in a table whose entries [kept_blocks, null_front) are.
    uint32_t held_entries(uint32_t length, uint32_t null_front) const {
        return null_front > kept_blocks ? length - (null_front - kept_blocks) : length;
    }
    bool is_null(uint32_t index, uint32_t null_front) const {
        return index >= kept_blocks && index < null_front;
    }
    // The longest length up to n from which a sequence with `computed` tokens, whose table has such
    // a gap, can continue.
    uint32_t longest_whole(uint32_t n, uint32_t null_front, uint32_t computed) const {
        if (recurrent) {
            const uint32_t snapshots = size.block_of(n);
            if (n == computed) return n;  // the running state
            if (state_interval != 0) return 0;
            return snapshots > null_front ? size.first_token(snapshots) : 0;
        }
        if (null_front <= kept_blocks || null_front <= first_visible_block(n) ||
            n <= size.first_token(kept_blocks)) {
            return n;
        }
        if (kind != QUIRE_GROUP_CHUNKED) return size.first_token(kept_blocks);
        // The first token of a chunk sees nothing before it, and if it also begins a block, needs
        // no earlier block.
        uint64_t both = std::lcm(uint64_t{window}, uint64_t{size.tokens()});
        return static_cast<uint32_t>(n - n % both);
    }
};

struct Geometry {
    uint32_t block_tokens = 0;
    BlockSize span;  // the tokens of a node of the prefix tree
    uint32_t group_count = 0;
    uint32_t layer_count = 0;
    uint32_t max_sequence_tokens = 0;
    bool any_full = false;
    bool any_window = false;
    bool any_cross = false;
    bool any_recurrent = false;
    bool any_dense = false;  // recurrent, with a state in every block
    bool any_opaque = false;
    bool one_pool = false;      // all groups take their blocks from one pool
    bool uniform = true;        // all groups have the cache's block_tokens
    bool partial_hits = false;  // a hit may end within a block
    GroupGeometry groups[kMaxGroups];

    // Pools that hold different blocks, and the one that a group has.
    uint32_t pool_count() const { return one_pool ? 1 : group_count; }
    uint32_t pool_of(uint32_t group) const { return one_pool ? 0 : group; }
    // Table entries that a sequence of this many tokens needs in a group.
    uint32_t table_length(uint32_t group, uint32_t tokens, uint32_t cross_tokens) const {
        return groups[group].size.blocks_of(groups[group].cross ? cross_tokens : tokens);
    }
};

// Where a layer of the model lies.
struct LayerInGroup {
    uint32_t group;
    uint32_t layer;  // within the group
};

// The part of a geometry that one device holds: a range of layers and a range of heads of each
// group, with the strides of a block of just those. A group without a layer on the device has
// layer_count 0.
struct ShardGeometry {
    uint64_t free_bytes = 0;  // of the device, for pool_fraction
    uint32_t first_layer[kMaxGroups] = {};
    uint32_t first_head[kMaxGroups] = {};
    Geometry held;
};

// Bytes of one element; 0 for a type that q, out and the input of kv_write cannot have.
uint32_t dtype_size_bytes(uint32_t dtype);
// Bits of one element of K or V; 0 for a type that does not exist.
uint32_t pool_dtype_bits(uint32_t dtype);

// Validates the description and computes everything except the numbers of blocks.
Status compute_shape(const quire_cache_desc &desc, const quire_group_desc *groups, Geometry *out);

// The strides of the part of a group that has `layer_count` layers and `kv_heads` heads.
Status compute_part(const Geometry &whole, uint32_t group, uint32_t layer_count, uint32_t kv_heads,
                    GroupGeometry *out);

// The numbers of blocks, the same on all shards: where bytes are given, as many as the smallest
// shard has room for.
Status compute_sizes(const quire_cache_desc &desc, ShardGeometry *shards, uint32_t count,
                     Geometry *out);

// Shape and sizes of a cache on one device with free_bytes free; 0 without a device.
Status compute_geometry(const quire_cache_desc &desc, const quire_group_desc *groups,
                        uint64_t free_bytes, Geometry *out);

// Maps layers to groups; places has room for geometry.layer_count.
Status place_layers(const uint32_t *layer_groups, const Geometry &geometry, LayerInGroup *places);

}  // namespace quire
