// SPDX-License-Identifier: Apache-2.0
//
// block_part: where the planes of a block lie for the layers and heads that one holder has, and
// which bytes two such parts have in common.
//
// Why planes: shards cut a group by layers and heads, so two cuts have a rectangle of (layer, head)
// in common, which is one contiguous piece in each plane of a layer. The canonical form of a block
// is a part like any other: it holds what its header says.
//
// Threads: any; everything here is constant or local.
#pragma once

#include "core/base/geometry.hpp"
#include "quire/plugin/backend.h"

namespace quire {

// One plane of each layer: a piece of head_bytes per head, one after another.
struct PlaneLayout {
    uint64_t offset = 0;  // of the first layer's plane, from the start of the block
    uint64_t layer_stride = 0;
    uint64_t head_bytes = 0;  // 0: the part has no such plane
};

enum PlaneKind : uint32_t { kPlaneK, kPlaneV, kPlaneKScale, kPlaneVScale, kPlanes };

struct BlockPart {
    uint32_t first_layer = 0;  // counted in the group's layers
    uint32_t layer_count = 0;
    uint32_t first_head = 0;
    uint32_t head_count = 0;
    PlaneLayout planes[kPlanes];
};

// The part that a pool's blocks hold. In a latent group V lies within K, and so do its scales.
BlockPart part_of(const quire_be_pool &pool, uint32_t first_layer, uint32_t first_head);

// True if a block of either part has the same bytes in the same places.
bool same_part(const BlockPart &a, const BlockPart &b);

struct PartPiece {
    uint64_t from;  // bytes from the start of the block, in each part
    uint64_t to;
    uint64_t size_bytes;
};

// Calls visit(piece) for everything that both parts hold, in the order of `to`'s layers.
template <typename Visit>
void each_piece(const BlockPart &from, const BlockPart &to, Visit visit) {
    auto later = [](uint32_t a, uint32_t b) { return a > b ? a : b; };
    auto earlier = [](uint32_t a, uint32_t b) { return a < b ? a : b; };
    uint32_t layer = later(from.first_layer, to.first_layer);
    uint32_t layer_end =
        earlier(from.first_layer + from.layer_count, to.first_layer + to.layer_count);
    uint32_t head = later(from.first_head, to.first_head);
    uint32_t head_end = earlier(from.first_head + from.head_count, to.first_head + to.head_count);
    if (head >= head_end) return;
    for (; layer < layer_end; ++layer) {
        for (uint32_t i = 0; i < kPlanes; ++i) {
            const PlaneLayout &a = from.planes[i], &b = to.planes[i];
            if (a.head_bytes == 0 || b.head_bytes == 0) continue;
            QUIRE_ASSERT(a.head_bytes == b.head_bytes);
            visit(PartPiece{a.offset + (layer - from.first_layer) * a.layer_stride +
                                (head - from.first_head) * a.head_bytes,
                            b.offset + (layer - to.first_layer) * b.layer_stride +
                                (head - to.first_head) * b.head_bytes,
                            (head_end - head) * a.head_bytes});
        }
    }
}

}  // namespace quire
