// SPDX-License-Identifier: Apache-2.0

#include "core/inspect/figures.hpp"

#include "core/scales/calibration.hpp"

namespace quire {

void read_info(const CacheParts &parts, quire_cache_info *out) {
    const CacheBooks &books = parts.books;
    out->group_count = books.geometry.group_count;
    out->layer_count = books.geometry.layer_count;
    out->block_tokens = books.geometry.block_tokens;
    out->shard_count = books.shards.count();
    out->span_tokens = books.geometry.span.tokens();
    for (uint32_t i = 0; i < books.shards.count(); ++i) {
        out->pool_bytes += books.shards[i].pool_bytes();
        out->host_bytes += books.shards[i].host_bytes();
    }
    uint64_t tokens = UINT64_MAX, sequences = UINT64_MAX;
    uint64_t blocks_of_span = 0, blocks_of_sequence = 0;  // in all groups
    for (uint32_t g = 0; g < books.geometry.group_count; ++g) {
        const GroupGeometry &group = books.geometry.groups[g];
        uint64_t usable = group.blocks - 1;
        out->span_blocks += group.per_span;
        if (group.cross) continue;
        bool counts = group.full || !books.geometry.any_full;
        blocks_of_span += counts ? books.geometry.span.tokens() / group.size.tokens() : 0;
        if (counts && usable * group.size.tokens() < tokens) tokens = usable * group.size.tokens();
        uint32_t longest = books.geometry.max_sequence_tokens;
        uint64_t in_window =
            uint64_t{group.sink_tokens} + group.window + 3 * uint64_t{group.size.tokens()};
        if (group.windowed && longest > in_window) {
            longest = static_cast<uint32_t>(in_window);  // dead slots at the gap, a partial tail
        }
        const uint64_t blocks = ceil_div(longest, group.size.tokens());
        blocks_of_sequence += blocks;
        if (usable / blocks < sequences) sequences = usable / blocks;
    }
    if (books.geometry.one_pool && blocks_of_span != 0) {
        const uint64_t usable = books.geometry.groups[0].blocks - 1;
        tokens = usable / blocks_of_span * books.geometry.span.tokens();
        sequences = usable / blocks_of_sequence;
    }
    out->pool_tokens = tokens;
    out->max_sequences = sequences;
}

Status check_shard(const CacheParts &parts, uint32_t shard) {
    const CacheBooks &books = parts.books;
    uint32_t count = books.has_memory ? books.shards.count() : 1;
    if (shard < count) return Status{};
    return fail(QUIRE_E_ARG, "shard is {}: the cache has {}", shard, count);
}

Status read_pool_info(const CacheParts &parts, uint32_t group, uint32_t shard,
                      quire_pool_info *out) {
    const CacheBooks &books = parts.books;
    if (group >= books.geometry.group_count) {
        return fail(QUIRE_E_ARG, "group is {}: the cache has {}", group,
                    books.geometry.group_count);
    }
    QUIRE_TRY(check_shard(parts, shard));
    const GroupGeometry &g = books.geometry.groups[group];
    out->blocks = g.blocks;
    out->block_tokens = g.size.tokens();
    out->host_blocks = g.host_blocks;
    quire_be_pool pool = describe_pool(g, g.size.tokens());
    pool.size_bytes = 0;
    if (books.has_memory) {
        pool = books.shards[shard].pool(group);
        out->layer_begin = books.shards[shard].first_layer(group);
        out->head_begin = books.shards[shard].first_head(group);
    }
    out->address = pool.address;
    out->size_bytes = pool.size_bytes;
    out->block_stride = pool.block_stride;
    out->layer_stride = pool.layer_stride;
    out->v_offset = pool.v_offset;
    out->k_head_stride = pool.k_head_stride;
    out->k_token_stride = pool.k_token_stride;
    out->v_head_stride = pool.v_head_stride;
    out->v_token_stride = pool.v_token_stride;
    out->layer_count = pool.layer_count;
    out->head_count = pool.kv_heads;
    out->k_scale_offset = pool.k_scale_offset;
    out->v_scale_offset = pool.v_scale_offset;
    out->scale_head_stride = pool.scale_head_stride;
    out->scales = pool.scales;
    return Status{};
}

Status read_calibration_size(const CacheParts &parts, uint64_t *size_bytes) {
    if (!parts.books.calibrates) {
        return fail(QUIRE_E_UNSUPPORTED,
                    "the cache measures nothing: create it with QUIRE_CACHE_CALIBRATE");
    }
    *size_bytes = calibration_bytes(parts.books.geometry, parts.books.places.data());
    return Status{};
}

void read_stats(const CacheParts &parts, quire_cache_stats *out) {
    const CacheBooks &books = parts.books;
    const Follower &follower = parts.follower.follower();
    uint32_t struct_size = out->struct_size;
    *out = books.counts;
    out->struct_size = struct_size;
    out->num_preemptions = books.counts.preemptions_swap + books.counts.preemptions_recompute;
    out->evictions = books.journal.evictions();
    out->blocks_demoted = books.journal.demotions();
    out->blocks_promoted = books.journal.promotions();
    out->bytes_compared =
        books.journal.tree().bytes_compared() + books.journal.block_tree().bytes_compared();
    out->sequences = books.handles.live() - books.leases;
    out->leases = books.leases;
    out->blocks_leased = books.journal.leased();
    out->nodes = books.journal.tree().node_count() + books.journal.block_tree().count();
    for (uint32_t p = 0; p < books.journal.pool_count(); ++p) {
        const BlockPool &pool = books.journal.pool(p);
        out->blocks_total += pool.block_count() - 1;
        out->blocks_free += pool.free_count() + pool.parked_count();
        out->blocks_cached += pool.cached_count();
        out->blocks_held += pool.held_count();
        const BlockPool *host = books.journal.host_pool(p);
        if (host != nullptr) {
            out->host_blocks_used += host->held_count();
            out->host_blocks_cached += host->cached_count();
        }
        if (!follower.active()) continue;
        out->blocks_held += follower.held()[p];
        out->blocks_free -= follower.held()[p];
        out->host_blocks_used += follower.host_held()[p];
    }
    out->kv_cache_usage_perc =
        static_cast<double>(out->blocks_held) / static_cast<double>(out->blocks_total);
}

}  // namespace quire
