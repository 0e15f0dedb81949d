// SPDX-License-Identifier: Apache-2.0

#include "core/move/migration.hpp"

#include <algorithm>
#include <new>

#include "core/transfer/block_mover.hpp"

namespace quire {

namespace {

bool has_layer(const BlockPart &part, uint32_t layer) {
    return layer >= part.first_layer && layer - part.first_layer < part.layer_count;
}

bool has_head(const BlockPart &part, uint32_t head) {
    return head >= part.first_head && head - part.first_head < part.head_count;
}

bool is_of(const Share &share, const BlockPart &part) {
    return share.first_layer == part.first_layer && share.layer_count == part.layer_count &&
           share.first_head == part.first_head && share.head_count == part.head_count;
}

// The layers and heads of a part that a share names.
BlockPart narrowed(BlockPart part, const Share &share) {
    for (PlaneLayout &plane : part.planes) {
        plane.offset += (share.first_layer - part.first_layer) * plane.layer_stride +
                        (share.first_head - part.first_head) * plane.head_bytes;
    }
    part.first_layer = share.first_layer;
    part.layer_count = share.layer_count;
    part.first_head = share.first_head;
    part.head_count = share.head_count;
    return part;
}

uint64_t count_numbered(const Array<uint32_t> &ids) {
    uint64_t count = 0;
    for (uint64_t i = 0; i < ids.size(); ++i) count += ids[i] != kNone;
    return count;
}

// The shard that supplies a layer's head: one with the same block layout, preferably the one with
// the target's number; else the one with that number; else the one that holds most heads from this
// one on. source.count(): no shard holds it.
uint32_t find_giver(const Shards &source, const BlockPart &wanted, uint32_t target, uint32_t group,
                    uint32_t layer, uint32_t head) {
    uint32_t best = source.count(), best_worth = 0;
    for (uint32_t s = 0; s < source.count(); ++s) {
        if (!source[s].holds(group)) continue;
        BlockPart part = source[s].part(group);
        if (!has_layer(part, layer) || !has_head(part, head)) continue;
        uint32_t worth = part.first_head + part.head_count - head;  // below 2^32: heads are
        if (s == target) worth = UINT32_MAX - 2;
        if (same_part(part, wanted)) worth = UINT32_MAX - (s == target ? 0 : 1);
        if (worth > best_worth) best = s, best_worth = worth;
    }
    return best;
}

}  // namespace

// Plans rectangles, from the first layer on: the heads of a layer from one giver after another, and
// the layers after it as long as all these givers have them too.
Status Migration::plan_shares_of(const Shards &source, uint32_t target, uint32_t group) {
    BlockPart wanted = shards.planned_part(target, group);
    uint32_t layer_end = wanted.first_layer + wanted.layer_count;
    uint32_t head_end = wanted.first_head + wanted.head_count;
    for (uint32_t layer = wanted.first_layer; layer < layer_end;) {
        uint64_t first = shares_.size();
        uint32_t layers = layer_end - layer;
        for (uint32_t head = wanted.first_head; head < head_end;) {
            uint32_t giver = find_giver(source, wanted, target, group, layer, head);
            if (giver == source.count()) {
                return fail(QUIRE_E_ARG,
                            "shards[{}] would hold layers or KV heads of group {} that no shard of "
                            "this cache has",
                            target, group);
            }
            BlockPart part = source[giver].part(group);
            uint32_t end = std::min(head_end, part.first_head + part.head_count);
            layers = std::min(layers, part.first_layer + part.layer_count - layer);
            if (!shares_.push_growing(Share{group, giver, target, layer, 0, head, end - head})) {
                return no_host_memory();
            }
            head = end;
        }
        for (uint64_t i = first; i < shares_.size(); ++i) shares_[i].layer_count = layers;
        layer += layers;
    }
    return Status{};
}

Status Migration::plan_shares(const Shards &source) {
    for (uint32_t t = 0; t < shards.planned_count(); ++t) {
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            if (shards.planned_part(t, g).layer_count != 0) {
                QUIRE_TRY(plan_shares_of(source, t, g));
            }
        }
    }
    // With followers the shards do not hold the whole model, but everything held here must stay
    // here.
    for (uint32_t s = 0; s < source.count(); ++s) {
        for (uint32_t g = 0; g < geometry.group_count; ++g) {
            if (source[s].holds(g)) QUIRE_TRY(check_taken(source[s].part(g), g));
        }
    }
    return Status{};
}

Status Migration::check_taken(const BlockPart &part, uint32_t group) const {
    auto is_taken = [&](uint32_t layer, uint32_t head) {
        for (uint32_t t = 0; t < shards.planned_count(); ++t) {
            BlockPart target = shards.planned_part(t, group);
            if (has_layer(target, layer) && has_head(target, head)) return true;
        }
        return false;
    };
    for (uint32_t l = 0; l < part.layer_count; ++l) {
        for (uint32_t h = 0; h < part.head_count; ++h) {
            if (is_taken(part.first_layer + l, part.first_head + h)) continue;
            return fail(QUIRE_E_ARG,
                        "shards: no shard would hold layer {} of its group, KV head {}, which the "
                        "cache holds now",
                        part.first_layer + l, part.first_head + h);
        }
    }
    return Status{};
}

// True if the target can use the memory as it is: on the same device, or between devices of one
// backend whose addresses are host pointers, with the same layout and size.
bool Migration::may_keep(const Shards &source, uint32_t from, uint32_t to, uint32_t group) const {
    const Device *old_device = source[from].device(), *device = shards.planned_device(to);
    bool reaches = old_device == device ||
                   (old_device->api == device->api && old_device->props.host_visible != 0 &&
                    device->props.host_visible != 0);
    const quire_be_pool &pool = source[from].pool(group);
    uint64_t size_bytes =
        uint64_t{geometry.groups[group].host_blocks} * static_cast<uint64_t>(pool.block_stride);
    return reaches && same_part(source[from].part(group), shards.planned_part(to, group)) &&
           source[from].host_tier(group).size_bytes == size_bytes;
}

void Migration::keep_host_tiers(Shards *source) {
    for (const Share &share : shares_) {
        if (geometry.groups[share.group].host_blocks == 0) continue;
        if (!is_of(share, shards.planned_part(share.target, share.group))) continue;
        if (!may_keep(*source, share.source, share.target, share.group)) continue;
        bool is_taken = false;
        for (uint32_t t = 0; t < shards.planned_count(); ++t) {
            is_taken |= shards.kept_host_tier(t, share.group) == &(*source)[share.source];
        }
        if (!is_taken) {
            shards.keep_host_tier(share.target, share.group, &(*source)[share.source]);
        }
    }
}

// Finds the pieces of a block that a share moves, adjacent ones joined.
Status Migration::find_pieces(const Shards &source, const Share &share) {
    pieces_.shrink(0);
    BlockPart from = source[share.source].part(share.group);
    BlockPart to = shards.planned_part(share.target, share.group);
    if (same_part(from, to) && is_of(share, to)) {
        auto stride = static_cast<uint64_t>(source[share.source].pool(share.group).block_stride);
        return pieces_.push_growing(PartPiece{0, 0, stride}) ? Status{} : no_host_memory();
    }
    bool has_room = true;
    each_piece(from, narrowed(to, share), [&](const PartPiece &piece) {
        if (!pieces_.empty()) {
            PartPiece &last = *(pieces_.end() - 1);
            if (last.from + last.size_bytes == piece.from &&
                last.to + last.size_bytes == piece.to) {
                last.size_bytes += piece.size_bytes;
                return;
            }
        }
        has_room = has_room && pieces_.push_growing(piece);
    });
    return has_room ? Status{} : no_host_memory();
}

uint64_t Migration::block_bytes(const Shards &source, const Share &share) const {
    BlockPart from = source[share.source].part(share.group);
    BlockPart to = shards.planned_part(share.target, share.group);
    if (same_part(from, to) && is_of(share, to)) {
        return static_cast<uint64_t>(source[share.source].pool(share.group).block_stride);
    }
    uint64_t bytes = 0;
    each_piece(from, narrowed(to, share),
               [&](const PartPiece &piece) { bytes += piece.size_bytes; });
    return bytes;
}

void Migration::count(const Journal &journal, const Shards &source, const Array<uint32_t> *refs) {
    uint64_t moved[kMaxGroups] = {}, host_moved[kMaxGroups] = {}, held[kMaxGroups] = {};
    bool copies_host[kMaxGroups] = {};
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        copies_host[g] = shares_.empty();  // no memory of ours: the engine copies
        moved[g] = count_numbered(relocation.ids[g]);
        host_moved[g] = count_numbered(relocation.host_ids[g]);
        for (uint32_t b = 0; b < relocation.ids[g].size(); ++b) {
            bool is_held =
                refs != nullptr ? refs[g][b] != 0 : journal.pool(g)[b].state != BlockState::cached;
            held[g] += relocation.ids[g][b] != kNone && is_held;
        }
        info.blocks_moved += moved[g];
        info.move_count += static_cast<uint32_t>(moved[g] + host_moved[g]);
    }
    info.blocks_dropped = relocation.blocks_dropped;
    for (const Share &share : shares_) {
        uint64_t bytes = block_bytes(source, share);
        info.bytes_moved += moved[share.group] * bytes;
        info.live_bytes += held[share.group] * bytes;
        if (host_moved[share.group] == 0) continue;
        if (shards.kept_host_tier(share.target, share.group) != nullptr) continue;
        copies_host[share.group] = true;
        info.host_bytes_copied += host_moved[share.group] * bytes;
    }
    for (uint32_t g = 0; g < geometry.group_count; ++g) {
        (copies_host[g] ? info.host_blocks_copied : info.host_blocks_kept) += host_moved[g];
    }
}

Status Migration::copy_between(const Shards &source, uint32_t from, uint32_t to,
                               quire_error *error) {
    uint64_t total_bytes = 0;
    for (const Share &share : shares_) {
        if (share.source != from || share.target != to) continue;
        total_bytes += count_numbered(relocation.ids[share.group]) * block_bytes(source, share);
    }
    if (total_bytes == 0) return Status{};
    void *memory = host_->allocate(host_->user, sizeof(BlockMover), alignof(BlockMover));
    if (memory == nullptr) return no_host_memory();
    auto *mover = new (memory) BlockMover(host_);
    Status moved = mover->create(source[from].device(), shards[to].device(), total_bytes, error);
    if (moved.ok()) moved = move_between(source, from, to, mover, error);
    if (mover->is_abandoned()) {  // what is on its queues may run for ever
        mover->next = kept_;
        kept_ = mover;
        return moved;
    }
    mover->~BlockMover();
    host_->release(host_->user, mover, sizeof(BlockMover), alignof(BlockMover));
    return moved;
}

Status Migration::move_between(const Shards &source, uint32_t from, uint32_t to, BlockMover *mover,
                               quire_error *error) {
    for (const Share &share : shares_) {
        if (share.source != from || share.target != to) continue;
        QUIRE_TRY(find_pieces(source, share));
        const Array<uint32_t> &ids = relocation.ids[share.group];
        for (uint32_t b = 0; b < ids.size(); ++b) {
            if (ids[b] == kNone) continue;
            uint64_t src = source[from].block_address(share.group, b);
            uint64_t dst = shards[to].block_address(share.group, ids[b]);
            for (const PartPiece &piece : pieces_) {
                QUIRE_TRY(mover->move(src + piece.from, dst + piece.to, piece.size_bytes, error));
            }
        }
    }
    return mover->finish(error);
}

// Both tiers are host memory.
Status Migration::copy_host_tier(const Shards &source, const Share &share) {
    if (shards.kept_host_tier(share.target, share.group) != nullptr) return Status{};
    const Array<uint32_t> &ids = relocation.host_ids[share.group];
    if (count_numbered(ids) == 0) return Status{};
    QUIRE_TRY(find_pieces(source, share));
    for (uint32_t b = 0; b < ids.size(); ++b) {
        if (ids[b] == kNone) continue;
        const uint8_t *from = source[share.source].host_block(share.group, b);
        uint8_t *to = shards[share.target].host_block(share.group, ids[b]);
        for (const PartPiece &piece : pieces_) {
            std::memcpy(to + piece.to, from + piece.from, piece.size_bytes);
        }
    }
    return Status{};
}

Status Migration::copy(const Shards &source, quire_error *error) {
    for (uint32_t t = 0; t < shards.count(); ++t) {
        for (uint32_t s = 0; s < source.count(); ++s) {
            QUIRE_TRY(copy_between(source, s, t, error));
        }
    }
    for (const Share &share : shares_) QUIRE_TRY(copy_host_tier(source, share));
    return Status{};
}

}  // namespace quire
