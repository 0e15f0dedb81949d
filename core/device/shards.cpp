// SPDX-License-Identifier: Apache-2.0

#include "core/device/shards.hpp"

#include <new>

#include "core/base/test_limits.hpp"
#include "core/device/backend_call.hpp"

namespace quire {

namespace {

// One past the last of `count` from `begin` on; 0 stands for all.
uint64_t end_of(uint32_t begin, uint32_t count, uint32_t all) {
    return count != 0 ? uint64_t{begin} + count : all;
}

uint32_t most_heads(const Geometry &whole) {
    uint32_t most = 0;
    for (uint32_t g = 0; g < whole.group_count; ++g) {
        if (whole.groups[g].kv_heads > most) most = whole.groups[g].kv_heads;
    }
    return most;
}

Status check_range(const ShardRange *ranges, uint32_t i, const Geometry &whole) {
    const ShardRange &range = ranges[i];
    for (uint32_t k = 0; k < i; ++k) {
        if (ranges[k].device != range.device) continue;
        return fail(
            QUIRE_E_ARG,
            "shards[{}] has the same device object as shards[{}]: open the device once per shard",
            i, k);
    }
    if (range.layer_begin >= whole.layer_count) {
        return fail(QUIRE_E_ARG, "shards[{}].layer_begin is past the model's {} layers", i,
                    whole.layer_count);
    }
    if (end_of(range.layer_begin, range.layer_count, whole.layer_count) > whole.layer_count) {
        return fail(QUIRE_E_ARG, "shards[{}].layer_count reaches past the model's {} layers", i,
                    whole.layer_count);
    }
    uint32_t heads = most_heads(whole);
    if (range.head_begin >= heads) {
        return fail(QUIRE_E_ARG, "shards[{}].head_begin is past the {} KV heads", i, heads);
    }
    if (end_of(range.head_begin, range.head_count, heads) > heads) {
        return fail(QUIRE_E_ARG, "shards[{}].head_count reaches past the {} KV heads", i, heads);
    }
    return Status{};
}

// Computes the part of each group that the shard holds.
Status compute_shard(const ShardRange &range, const LayerInGroup *places, const Geometry &whole,
                     ShardGeometry *out) {
    *out = ShardGeometry{};
    out->free_bytes = range.device->props.memory_free_bytes;
    out->held = whole;
    uint32_t layers[kMaxGroups] = {};
    uint64_t layer_end = end_of(range.layer_begin, range.layer_count, whole.layer_count);
    for (uint32_t layer = range.layer_begin; layer < layer_end; ++layer) {
        const LayerInGroup &place = places[layer];
        if (layers[place.group]++ == 0) out->first_layer[place.group] = place.layer;
    }
    uint64_t most = most_heads(whole);
    uint64_t head_end = end_of(range.head_begin, range.head_count, static_cast<uint32_t>(most));
    for (uint32_t g = 0; g < whole.group_count; ++g) {
        uint64_t own = whole.groups[g].kv_heads;
        uint64_t first = range.head_begin * own / most, end = (head_end * own + most - 1) / most;
        out->first_head[g] = static_cast<uint32_t>(first);
        QUIRE_TRY(compute_part(whole, g, layers[g], static_cast<uint32_t>(end - first),
                               &out->held.groups[g]));
    }
    return Status{};
}

bool holds_layer(const ShardGeometry &shard, uint32_t group, uint32_t layer) {
    uint32_t first = shard.first_layer[group];
    return layer >= first && layer - first < shard.held.groups[group].layer_count;
}

// The first head of a layer that no shard holds; `heads` if every head is held.
uint32_t first_bare_head(const ShardGeometry *shards, uint32_t count, const LayerInGroup &place,
                         uint32_t heads) {
    uint32_t covered = 0;
    for (bool grown = true; grown && covered < heads;) {
        grown = false;
        for (uint32_t i = 0; i < count; ++i) {
            uint32_t first = shards[i].first_head[place.group];
            uint32_t end = first + shards[i].held.groups[place.group].kv_heads;
            if (!holds_layer(shards[i], place.group, place.layer)) continue;
            if (first > covered || end <= covered) continue;
            covered = end;
            grown = true;
        }
    }
    return covered;
}

}  // namespace

Shards::~Shards() {
    for (Binding *binding : bindings_) {
        if (binding == nullptr) continue;
        binding->~Binding();
        host_->release(host_->user, binding, sizeof(Binding), kCacheLine);
    }
}

Status Shards::compute(const ShardRange *ranges, uint32_t count, const LayerInGroup *places,
                       const Geometry &whole, bool partial, ShardGeometry *out) const {
    for (uint32_t i = 0; i < count; ++i) {
        QUIRE_TRY(check_range(ranges, i, whole));
        QUIRE_TRY(compute_shard(ranges[i], places, whole, &out[i]));
    }
    for (uint32_t layer = 0; !partial && layer < whole.layer_count; ++layer) {
        uint32_t heads = whole.groups[places[layer].group].kv_heads;
        uint32_t bare = first_bare_head(out, count, places[layer], heads);
        if (bare != heads) {
            return fail(QUIRE_E_ARG, "no shard holds layer {}'s KV head {}: see shards' ranges",
                        layer, bare);
        }
    }
    return Status{};
}

Status Shards::divide(const quire_cache_desc &desc, const ShardRange *ranges, uint32_t count,
                      const LayerInGroup *places, Geometry *geometry) {
    if (count == 0) {
        ShardGeometry whole;
        whole.held = *geometry;
        return compute_sizes(desc, &whole, 1, geometry);
    }
    if (!parts_.create(count) || !kept_.create(uint64_t{count} * kMaxGroups)) {
        return no_host_memory();
    }
    bool partial = (desc.flags & (QUIRE_CACHE_LOG | QUIRE_CACHE_FOLLOWER)) != 0;
    QUIRE_TRY(compute(ranges, count, places, *geometry, partial, parts_.data()));
    QUIRE_TRY(compute_sizes(desc, parts_.data(), count, geometry));
    for (uint32_t i = 0; i < count; ++i) devices_[i] = ranges[i].device;
    return Status{};
}

Status Shards::create(const StaticScales &scales, bool calibrates, quire_error *error) {
    for (uint32_t i = 0; i < parts_.size(); ++i) {
        void *memory = host_->allocate(host_->user, sizeof(Binding), kCacheLine);
        if (memory == nullptr) return no_host_memory();
        bindings_[i] = new (memory) Binding();
        QUIRE_TRY(bindings_[i]->create(devices_[i], parts_[i], scales, calibrates, error));
    }
    count_ = static_cast<uint32_t>(parts_.size());
    return Status{};
}

BlockPart Shards::planned_part(uint32_t shard, uint32_t group) const {
    const ShardGeometry &part = parts_[shard];
    return part_of(describe_pool(part.held.groups[group], part.held.block_tokens),
                   part.first_layer[group], part.first_head[group]);
}

void Shards::keep_host_tier(uint32_t shard, uint32_t group, Binding *from) {
    kept_[uint64_t{shard} * kMaxGroups + group] = from;
    parts_[shard].held.groups[group].host_blocks = 0;
}

void Shards::take_host_tiers() {
    for (uint64_t i = 0; i < kept_.size(); ++i) {
        auto group = static_cast<uint32_t>(i % kMaxGroups);
        if (kept_[i] != nullptr) bindings_[i / kMaxGroups]->take_host_tier(group, kept_[i]);
        kept_[i] = nullptr;
    }
}

void Shards::swap(Shards &other) {
    parts_.swap(other.parts_);
    kept_.swap(other.kept_);
    std::swap(devices_, other.devices_);
    std::swap(count_, other.count_);
    std::swap(bindings_, other.bindings_);
    std::swap(run_, other.run_);
}

// Before run numbers repeat, the blocks forget theirs: otherwise a block marked 2^32 runs ago would
// pass for one of this run, and not be zeroed.
void Shards::begin_run(Journal *journal) {
    if (run_ == test_limits.copy_runs) {
        journal->forget_runs();
        run_ = 0;
    }
    ++run_;
}

// True if the copy may run concurrently with the others of the current run; it is then marked as
// one of them.
bool Shards::joins_run(const quire_block_copy &copy, Journal *journal) {
    bool from_host = copy.kind == QUIRE_COPY_SWAP_IN;
    bool to_host = copy.kind == QUIRE_COPY_SWAP_OUT;
    BlockPool &sources = from_host ? *journal->host_pool(copy.group) : journal->pool(copy.group);
    BlockPool &targets = to_host ? *journal->host_pool(copy.group) : journal->pool(copy.group);
    BlockOrigin &src = sources.origin(static_cast<uint32_t>(copy.src));
    BlockOrigin &dst = targets.origin(static_cast<uint32_t>(copy.dst));
    if (src.copied_to == run_ || dst.copied_to == run_ || dst.copied_from == run_) return false;
    src.copied_from = run_;
    dst.copied_to = run_;
    return true;
}

bool Shards::can_move() const {
    for (uint32_t i = 0; i < count_; ++i) {
        if (bindings_[i]->device()->api->move_tokens == nullptr) return false;
    }
    return true;
}

// Enqueues the moves of one group that begin at *i in one call; advances *i past them.
Status Shards::move(const Binding &binding, Queue *queue, const Array<quire_block_copy> &copies,
                    uint64_t *i, quire_error *error) {
    uint32_t group = copies[*i].group;
    const quire_be_pool &pool = binding.pool(group);
    moves_.shrink(0);
    for (; *i < copies.size(); ++*i) {
        const quire_block_copy &copy = copies[*i];
        if (copy.kind == kVoidCopy) continue;
        if (copy.kind != QUIRE_COPY_TOKEN || copy.group != group) break;
        moves_.push(quire_be_move{int64_t{copy.src} * pool.block_tokens + copy.src_place,
                                  int64_t{copy.dst} * pool.block_tokens + copy.dst_place});
    }
    if (!binding.holds(group)) return Status{};
    return call<&quire_backend_api::move_tokens>(
        *binding.device()->api, error, queue->handle, &pool,
        static_cast<const quire_be_move *>(moves_.data()), static_cast<uint32_t>(moves_.size()));
}

// Zeroes the blocks that are listed from *i on, each once and all in one call; advances *i past
// them.
Status Shards::zero(const Binding &binding, Queue *queue, const Array<quire_block_copy> &copies,
                    Journal *journal, uint64_t *i, quire_error *error) {
    ranges_.shrink(0);
    begin_run(journal);
    uint32_t group = kMaxGroups;  // of the last range; `end`: where it ends
    uint64_t end = 0;
    for (; *i < copies.size(); ++*i) {
        const quire_block_copy &copy = copies[*i];
        if (copy.kind == kVoidCopy) continue;
        if (copy.kind != QUIRE_COPY_ZERO) break;
        if (!binding.holds(copy.group)) continue;
        BlockOrigin &block = journal->pool(copy.group).origin(static_cast<uint32_t>(copy.dst));
        if (block.copied_to == run_) continue;
        block.copied_to = run_;
        const quire_be_pool &pool = binding.pool(copy.group);
        auto stride = static_cast<uint64_t>(pool.block_stride);
        uint64_t address = pool.address + static_cast<uint64_t>(copy.dst) * stride;
        if (copy.group == group && address == end) {
            ranges_[ranges_.size() - 1].size_bytes += stride;
        } else {
            ranges_.push(quire_be_range{address, stride});
        }
        group = copy.group;
        end = address + stride;
    }
    if (ranges_.empty()) return Status{};
    return call<&quire_backend_api::fill>(*binding.device()->api, error, queue->handle,
                                          static_cast<const quire_be_range *>(ranges_.data()),
                                          static_cast<uint32_t>(ranges_.size()), 0u);
}

Status Shards::enqueue(uint32_t shard, Queue *queue, const Array<quire_block_copy> &copies,
                       Journal *journal, quire_error *error) {
    const Binding &binding = *bindings_[shard];
    uint64_t i = 0;
    while (i < copies.size()) {
        descriptors_.shrink(0);
        begin_run(journal);
        for (; i < copies.size(); ++i) {
            if (copies[i].kind == QUIRE_COPY_TOKEN || copies[i].kind == QUIRE_COPY_ZERO) break;
            if (copies[i].kind == kVoidCopy || !binding.holds(copies[i].group)) continue;
            if (!joins_run(copies[i], journal)) break;
            descriptors_.push(binding.describe(copies[i]));
        }
        if (!descriptors_.empty()) {
            QUIRE_TRY(call<&quire_backend_api::copy>(*binding.device()->api, error, queue->handle,
                                                     descriptors_.data(),
                                                     static_cast<uint32_t>(descriptors_.size())));
        }
        if (i < copies.size() && copies[i].kind == QUIRE_COPY_TOKEN) {
            QUIRE_TRY(move(binding, queue, copies, &i, error));
        } else if (i < copies.size() && copies[i].kind == QUIRE_COPY_ZERO) {
            QUIRE_TRY(zero(binding, queue, copies, journal, &i, error));
        }
    }
    return Status{};
}

}  // namespace quire
